"""Energies as users write them, and the routines that follow."""
