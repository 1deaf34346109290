"""Compilers, and the cache of what they have compiled."""
