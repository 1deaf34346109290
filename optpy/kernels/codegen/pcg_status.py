"""The status of conjugate gradients: numbers that native code and Python share."""

from __future__ import annotations

from enum import IntEnum

from optpy.kernels.codegen.structures import enumeration


class PcgStatus(IntEnum):
    """Whether the loop is running, or by which test it has ended."""

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


def pcg_status_source() -> str:
    """The statuses in C and CUDA: PCG_RUNNING, ..., and PCG_PATIENCE."""
    return f"{enumeration('PCG_', PcgStatus)}\nenum {{ PCG_PATIENCE = {STAGNATION} }};"
