"""Compiled programs bound to memory, and run."""
