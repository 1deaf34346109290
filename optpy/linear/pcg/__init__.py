"""Conjugate gradients on native code, whatever preconditions them."""
