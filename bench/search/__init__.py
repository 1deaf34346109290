"""A search for wrong answers among thousands of small problems whose minima are known: `python -m bench.search`."""
