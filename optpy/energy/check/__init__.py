"""Residuals and derivatives at given data by the NumPy interpreter, and checks of them."""
