"""Conjugate gradients with the diagonal of J^T J + D, or with its blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from optpy.ir import Preconditioning
from optpy.linear.method import LinearMethod, Outcome, Solved, SolveRequest, begin_anew, go_on
from optpy.linear.pcg.state import PcgState
from optpy.linear.pcg.variant import Variant
from optpy.linear.pcg_loop import PcgLoop
from optpy.solver.protocol import LinearStatus

DIAGONAL = Variant(Preconditioning.DIAGONAL, "linear/jacobi/pcg_jacobi.cuh", ("resume", "solve"), in_one_kernel=True)
BLOCKS = replace(DIAGONAL, preconditioning=Preconditioning.BLOCKS)
"""By the diagonal, and by the blocks."""


@final
class JacobiSolve(LinearMethod):
    """M = diag(J^T J + D), or its blocks; z = M^-1 r is part of the kernels.

    Args:
        loop: runs them.
        blocks: whether M is the blocks, where they are not diagonal.
    """

    def __init__(self, loop: PcgLoop, blocks: bool) -> None:
        self._loop = loop
        self._asked_for_blocks = blocks
        self._blocks = blocks and loop.has_blocks

    @property
    def name(self) -> str:
        return "block_jacobi" if self._blocks else "jacobi"

    def solve(self, state: PcgState, request: SolveRequest) -> Solved:
        kernels = self._loop.kernels(request.damped, BLOCKS if self._blocks else DIAGONAL)
        summary = self._loop.run(kernels, state, request.limits.decided(), request.patience, request.ahead)
        if summary is None:
            iterations = state.k
            if self._asked_for_blocks:  # what block-Jacobi gains last says little about what is left
                begin_anew(state)
            else:
                go_on(state)
            return Solved(None, Outcome.DEAR, iterations)
        dear = summary.status is LinearStatus.MAX_ITERATIONS and request.patience is None
        return Solved(summary, Outcome.DEAR if dear else Outcome.SERVED, summary.iterations)
