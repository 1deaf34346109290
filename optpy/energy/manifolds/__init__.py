"""Rotations, poses and unit vectors, as unknowns, as data and in formulas."""
