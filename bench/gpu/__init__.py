"""Benchmarks on a GPU: `python -m bench.gpu`. See ../README.md for what is counted."""
