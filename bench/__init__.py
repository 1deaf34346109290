"""Benchmarks of optpy, beside its peers: `python -m bench`. See README.md here for what is counted."""
