"""The geometric multigrid preconditioner of a grid."""
