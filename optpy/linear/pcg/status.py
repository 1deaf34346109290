"""Endings of conjugate gradients: numbers that native code and Python share, and their summary for the solver."""

from __future__ import annotations

import math
from enum import IntEnum

from optpy.kernels.codegen.structures import enumeration
from optpy.kernels.toolchain.headers import native_header
from optpy.linear.pcg.state import PCG_ROW, PcgState
from optpy.solver.pcg import PATIENCE
from optpy.solver.protocol import LinearLimits, LinearStatus, LinearSummary


class PcgStatus(IntEnum):
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


def pcg_iteration_source() -> str:
    """The code after each stage of an iteration, for C and CUDA, with all PCG_...; goes after ``PCG_ITERATION``."""
    constants = f"{enumeration('PCG_', PcgStatus)}\nenum {{ PCG_PATIENCE = {PATIENCE} }};"
    return "\n\n".join([constants, PCG_ROW.text, native_header("linear/pcg/pcg_iteration.h")])


_SUMMARIES: dict[PcgStatus, tuple[LinearStatus, str]] = {
    PcgStatus.NO_GRADIENT: (LinearStatus.CONVERGED, "b = 0, so the solution is 0."),
    PcgStatus.BAD_START: (LinearStatus.FAILURE, "r.z = {s.rho:.3e} before the first iteration."),
    PcgStatus.NO_CURVATURE: (
        LinearStatus.BREAKDOWN,
        "The matrix is not positive definite along p: p.Ap = {s.pAp:.3e}.",
    ),
    PcgStatus.NOT_POSITIVE: (LinearStatus.BREAKDOWN, "r.z = {s.rho:.3e} is not positive."),
    PcgStatus.MODEL: (LinearStatus.CONVERGED, "k (Q_k - Q_k-1) / Q_k = {s.zeta:.3e} < eta = {limits.eta:.3e}."),
    PcgStatus.ZERO: (LinearStatus.CONVERGED, "r.z = 0."),
    PcgStatus.RESIDUAL: (
        LinearStatus.CONVERGED,
        "sqrt(r.z / r0.z0) = {reduction:.3e} < r_tolerance = {limits.r_tolerance:.3e}.",
    ),
    PcgStatus.LIMIT: (LinearStatus.MAX_ITERATIONS, "{s.k} iterations done."),
    PcgStatus.TIME: (LinearStatus.TIME_LIMIT, "Out of time after {s.k} iterations."),
    PcgStatus.STAGNATED: (LinearStatus.BREAKDOWN, "Rounding keeps r.z = {s.rho:.3e} from falling further."),
}


def linear_summary(state: PcgState, limits: LinearLimits) -> LinearSummary:
    """The summary of a linear solve that has ended by limits whose eta was decided."""
    ended = PcgStatus(state.status)
    status, message = _SUMMARIES[ended]
    if status is LinearStatus.BREAKDOWN and state.k == 0:
        status = LinearStatus.FAILURE
    reduction = math.sqrt(state.rho / state.rho_0) if state.rho > 0 and state.rho_0 > 0 else 0.0
    sentence = message.format(s=state, limits=limits, reduction=reduction)
    suited = limits.suited if ended is PcgStatus.MODEL else 0.0
    return LinearSummary(state.k, status, sentence, reduction, -state.Q, suited)
