"""Kernels on NVIDIA GPUs: the CUDA harness around the same bodies, and the devices that run it."""
