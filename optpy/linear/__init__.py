"""Solving (J^T J + D) delta = -g with compiled code: conjugate gradients, their preconditioners, and which to take."""
