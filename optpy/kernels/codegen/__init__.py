"""Routines to loops, and loops to C and CUDA source."""
