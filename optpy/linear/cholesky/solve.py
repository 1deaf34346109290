"""Conjugate gradients with a factorisation of J^T J + D."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import final

import numpy as np

from optpy.linear.assembled.solve import CholeskyFactor
from optpy.linear.choice import Outcome
from optpy.linear.loop import Solved, begin_anew, is_unreduced
from optpy.linear.pcg.state import PcgState
from optpy.solver.pcg import PCGScalars, dot, pcg
from optpy.solver.protocol import LinearLimits, LinearStatus

_ENDED = -1
"""A status of the state that is none of the native loop's."""


@final
class CholeskySolve:
    """See ``PreconditionedSolve``: the textbook's loop, of which two iterations are most of the time enough.

    Args:
        factor: which has been built for the present linearisation.
    """

    name = "cholesky"

    def __init__(self, factor: CholeskyFactor) -> None:
        self._factor = factor

    def solve(self, state: PcgState, limits: LinearLimits, damped: bool, patience: int | None) -> Solved:
        """It is given up where it does not solve a singular system, whatever the patience."""
        factor = self._factor
        trace: list[PCGScalars] = []
        b = -factor.gradient()
        delta, summary = pcg(factor, b, replace(limits, eta=limits.forcing()), trace)
        # In what a singular M leaves out, r.z does not see that r is as it was.
        if factor.singular and summary.status is LinearStatus.CONVERGED:
            r = factor.apply(delta) - b
            if is_unreduced({"r_squared": dot(r, r), "g_squared": dot(b, b)}):
                begin_anew(state)
                return Solved(summary, Outcome.UNFIT)
        factor.set_step(delta)
        state.k, state.status = summary.iterations, _ENDED
        if state.trace is not None:
            rows = np.array([[s.k, s.rho, s.pAp, s.alpha, s.Q, s.zeta, s.rho_next] for s in trace])
            ctypes.memmove(state.trace, rows.ctypes.data, rows.nbytes)
        return Solved(summary, Outcome.SERVED)
