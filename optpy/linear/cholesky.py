"""Conjugate gradients with a factorisation of J^T J + D."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from ..kernels.context import PcgState
from ..kernels.library import BoundProgram
from ..solver.protocol import LinearLimits, LinearStatus
from .assembled import CholeskyFactor
from .choice import Outcome
from .loop import Solved, begin_anew, is_unreduced, run


@final
class CholeskySolve:
    """See ``PreconditionedSolve``.

    Args:
        bound: the energy's program with its memory.
        factor: which has been built for the present linearisation.
    """

    name = "cholesky"

    def __init__(self, bound: BoundProgram, factor: CholeskyFactor) -> None:
        self._bound = bound
        self._factor = factor

    def solve(self, state: PcgState, limits: LinearLimits, damped: bool, patience: int | None) -> Solved:
        """It is given up where it does not solve a singular system, whatever the patience."""
        factor = self._factor
        summary = run(self._bound, factor.kernels(damped), state, replace(limits, eta=limits.forcing()))
        # In what a singular M leaves out, r.z does not see that r is as it was.
        unsolved = (
            factor.singular and summary.status is LinearStatus.CONVERGED and is_unreduced(factor.residual_norms())
        )
        if unsolved:
            begin_anew(state)
        return Solved(summary, Outcome.UNFIT if unsolved else Outcome.SERVED)
