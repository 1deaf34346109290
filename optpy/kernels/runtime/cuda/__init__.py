"""Compiled programs on NVIDIA GPUs."""
