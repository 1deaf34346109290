"""The algebraic multigrid preconditioner of an assembled matrix."""
