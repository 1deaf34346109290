"""J^T J + D as an assembled sparse matrix."""
