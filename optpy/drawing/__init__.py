"""Pictures and pages of energies, residuals and results. Matplotlib is loaded when the first is drawn."""
