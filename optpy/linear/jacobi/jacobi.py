"""Conjugate gradients with the diagonal of J^T J + D, or with its blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from optpy.ir import Sweeps
from optpy.linear.executor import Executor
from optpy.linear.method import Method, Outcome, Solved, Task, begin_anew, go_on
from optpy.linear.pcg.state import PcgState
from optpy.linear.pcg.variant import Variant
from optpy.solver.protocol import LinearStatus

DIAGONAL = Variant(Sweeps.DIAGONAL, "linear/jacobi/pcg_jacobi.cuh", ("resume", "solve"), in_one_kernel=True)
BLOCKS = replace(DIAGONAL, sweeps=Sweeps.BLOCKS)
"""By the diagonal, and by the blocks."""


@final
class JacobiSolve(Method):
    """M = diag(J^T J + D), or its blocks; z = M^-1 r is part of the lines.

    Args:
        executor: runs them.
        blocks: whether M is the blocks, where they are not diagonal.
    """

    def __init__(self, executor: Executor, blocks: bool) -> None:
        self._executor = executor
        self._asked_for_blocks = blocks
        self._blocks = blocks and executor.has_blocks

    @property
    def name(self) -> str:
        return "block_jacobi" if self._blocks else "jacobi"

    def solve(self, state: PcgState, task: Task) -> Solved:
        lines = self._executor.lines(task.damped, BLOCKS if self._blocks else DIAGONAL)
        limits = replace(task.limits, eta=task.limits.forcing())
        summary = self._executor.run(lines, state, limits, task.patience, task.ahead)
        if summary is None:
            iterations = state.k
            if self._asked_for_blocks:  # what block-Jacobi gains last says little about what is left
                begin_anew(state)
            else:
                go_on(state)
            return Solved(None, Outcome.DEAR, iterations)
        dear = summary.status is LinearStatus.MAX_ITERATIONS and task.patience is None
        return Solved(summary, Outcome.DEAR if dear else Outcome.SERVED, summary.iterations)
