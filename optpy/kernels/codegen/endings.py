"""Endings of conjugate gradients: numbers that native code and Python share."""

from __future__ import annotations

from enum import IntEnum

from optpy.kernels.codegen.structures import enumeration


class Ending(IntEnum):
    """The ending of the loop, or that it is running."""

    RUNNING = 0
    NO_GRADIENT = 1
    BAD_START = 2
    NO_CURVATURE = 3
    NOT_POSITIVE = 4
    MODEL = 5
    ZERO = 6
    RESIDUAL = 7
    LIMIT = 8
    TIME = 9
    STAGNATED = 10


STAGNATION = 100
"""Iterations without progress after which the loop may end."""


def endings_source() -> str:
    """The same in C and CUDA: PCG_RUNNING, ..., and PCG_PATIENCE."""
    return f"{enumeration('PCG_', Ending)}\nenum {{ PCG_PATIENCE = {STAGNATION} }};"
