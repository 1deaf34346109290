"""A sparse Cholesky factorisation of an assembled matrix."""
