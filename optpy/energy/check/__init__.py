"""What an energy is at given data, by the NumPy interpreter: residuals, derivatives, what is wrong with them."""
