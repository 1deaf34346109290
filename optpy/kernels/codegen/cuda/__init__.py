"""The CUDA harness around the same bodies."""
