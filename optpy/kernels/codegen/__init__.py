"""Routine to loops to C and CUDA source."""
