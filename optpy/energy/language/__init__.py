"""The language: declarations, expressions and functions that users write energies with."""
