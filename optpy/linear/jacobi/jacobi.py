"""Conjugate gradients with the diagonal of J^T J + D, or with its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from optpy.ir import Field
from optpy.kernels.runtime.context import PcgKernels, PcgState
from optpy.kernels.runtime.library import BoundProgram
from optpy.linear.choice import Outcome
from optpy.linear.loop import Solved, begin_anew, directions_and_steps, go_on, run
from optpy.solver.protocol import LinearLimits, LinearStatus

PATIENCE = 25
"""Iterations with Jacobi after which "auto" builds multigrid: about what building it costs."""
ASSEMBLED_PATIENCE = 10
"""The same with block-Jacobi, where J^T J is assembled: there multigrid also takes better steps than block-Jacobi."""


@final
class JacobiSolve:
    """See ``PreconditionedSolve``.

    Args:
        bound: the energy's program with its memory.
        unknowns: of the energy, in order.
        blocks: whether M is the blocks, not only the diagonal.
        on_grid: whether what takes its place is the multigrid of a grid, not something on the assembled matrix.
    """

    def __init__(self, bound: BoundProgram, unknowns: Sequence[Field], blocks: bool, on_grid: bool) -> None:
        self._bound = bound
        self._unknowns = unknowns
        self._blocks = blocks
        self._on_grid = on_grid
        self._kernels: dict[bool, PcgKernels] = {}  # by whether A is damped

    @property
    def name(self) -> str:
        return "block_jacobi" if self._blocks else "jacobi"

    def solve(self, state: PcgState, limits: LinearLimits, damped: bool, patience: int | None) -> Solved:
        most = limits.max_iterations if patience is None else min(patience, limits.max_iterations)
        if damped not in self._kernels:
            steps = directions_and_steps(self._unknowns)
            self._kernels[damped] = self._bound.pcg_kernels(steps, damped, "_block" if self._blocks else "")
        limited = replace(limits, max_iterations=most, eta=limits.forcing())
        summary = run(self._bound, self._kernels[damped], state, limited)
        if summary.status is not LinearStatus.MAX_ITERATIONS:
            return Solved(summary, Outcome.SERVED)
        if state.k >= limits.max_iterations:
            return Solved(summary, Outcome.DEAR if patience is None else Outcome.SERVED)
        if self._on_grid:
            go_on(state)
        else:  # what block-Jacobi gains last says little about what is left
            begin_anew(state)
        return Solved(summary, Outcome.DEAR)
