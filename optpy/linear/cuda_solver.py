"""The linear solve of one nonlinear iteration on a GPU, where all of it stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, final

import numpy as np

from ..ir import Dim, Graph
from ..kernels.cuda.bound import BoundCuda
from ..kernels.cuda.device import Mark
from ..kernels.tables import Connectivity
from ..solver.options import Preconditioner, refuse_on_gpu
from ..solver.pcg import PCGScalars
from ..solver.protocol import LinearLimits, LinearStatus, LinearSummary
from .ending import linear_summary

_TOGETHER = 2**20
"""Points up to which all iterations run in one kernel: there a launch costs more than waiting for all blocks."""
_SLICE = 0.05
"""Seconds after which that kernel comes back, so that Ctrl-C is heard."""
_BATCHES = (4, 8, 16)
"""Iterations that are queued before the host looks whether an earlier batch was the last; the last number repeats."""
_AHEAD = 2
"""Batches that are queued while the device works on one."""


@final
class CudaLinearSolver:
    """Preconditioned conjugate gradients on (J^T J + D) delta = -g, by Jacobi or block-Jacobi.

    Small problems run in one kernel whose blocks wait for one another; on large ones each line of the method is a
    kernel: three to an iteration. Either way the scalars and the tests are the device's, and the host reads nothing
    until the method has ended, and then in one copy with what is queued after it.

    Args:
        bound: the energy's program with its memory.
    """

    def __init__(self, bound: BoundCuda) -> None:
        self._bound = bound
        self._asked: Preconditioner = None
        self._used: dict[str, None] = {}
        self._progress, progress_address = bound.device.shared_with_host((1,), np.dtype(np.int64))
        self._progress_address = progress_address
        self.trace: list[PCGScalars] | None = None

    def set_preconditioner(self, preconditioner: Preconditioner) -> None:
        """Take an option.

        Raises:
            OptionError: it is one that runs on the CPU only.
        """
        refuse_on_gpu(preconditioner)
        self._asked = preconditioner
        self._used = {}

    def prepare(self, damped: bool) -> None:
        """Compile conjugate gradients for the preconditioner, so that no linear solve has to."""
        self._bound.library.pcg("pcg_solve", "_block" if self.blocks else "", damped, self._bound.index)

    def check(self, sizes: Mapping[Dim, int], graphs: Mapping[Graph, Connectivity]) -> None:
        """What applies does not depend on sizes either."""

    def set_graphs(self, graphs: Mapping[Graph, Connectivity]) -> None:
        """What applies does not depend on the edges."""

    def data_changed(self) -> None:
        """Nothing is kept from one solve to the next."""

    @property
    def first(self) -> Literal["jacobi", "block_jacobi"]:
        """What "auto" stands for."""
        return "block_jacobi" if "evalJTF_block" in self._bound.program.phases else "jacobi"

    @property
    def blocks(self) -> bool:
        """Whether the blocks of J^T J are asked for, not only its diagonal."""
        kind = self.first if self._asked == "auto" else self._asked
        return kind == "block_jacobi" and self.first == "block_jacobi"

    @property
    def used(self) -> str:
        """The preconditioners that took part so far."""
        return ", then ".join(self._used) or "none yet"

    @property
    def nbytes(self) -> int:
        return self._bound.nbytes

    def solve(self, limits: LinearLimits, damped: bool, ahead: Callable[[], None]) -> LinearSummary:
        """Conjugate gradients from delta = 0; see ``NonlinearProblem.solve_linear``.

        Args:
            limits: when it ends.
            damped: whether A = J^T J + D, or J^T J alone.
            ahead: queues what follows the solve, before the host waits for it.
        """
        limits = replace(limits, eta=limits.forcing())
        rows = self._set_limits(limits)
        suffix = "_block" if self.blocks else ""
        self._used["block_jacobi" if self.blocks else "jacobi"] = None
        small = self._bound.points(f"start{suffix}") <= _TOGETHER
        several = len(self._bound.program.phases["applyJTJ_damped" if damped else "applyJTJ"]) > 1
        if small or several:
            self._in_one_kernel(limits, suffix, damped, ahead)
        else:
            self._by_lines(limits, suffix, damped, ahead)
        state = self._bound.pcg_state()
        if rows is not None and self.trace is not None:
            found = self._bound.host(rows)[: state.k]
            self.trace.extend(PCGScalars(int(row[0]), *map(float, row[1:])) for row in found)
        if state.status:
            return linear_summary(state, limits)
        return LinearSummary(state.k, LinearStatus.TIME_LIMIT, f"Out of time after {state.k} iterations.")

    def _set_limits(self, limits: LinearLimits) -> Any:
        """The numbers that the device tests by; returns where it leaves those of each iteration, if they are asked."""
        c = self._bound.context
        c.eta, c.r_tolerance = limits.eta, limits.r_tolerance
        c.max_iterations, c.min_iterations = limits.max_iterations, limits.min_iterations
        c.reset_period = limits.residual_reset_period
        rows = None
        if self.trace is not None:
            rows = self._bound.device.xp.zeros((limits.max_iterations, 7), np.float64)
        c.trace = None if rows is None else self._bound.device.address(rows)
        return rows

    def _in_one_kernel(self, limits: LinearLimits, suffix: str, damped: bool, ahead: Callable[[], None]) -> None:
        bound, c = self._bound, self._bound.context
        kernel = bound.library.pcg("pcg_solve", suffix, damped, bound.index)
        c.progress, c.fresh = None, 1
        while True:
            left = _SLICE if limits.deadline is None else min(_SLICE, limits.deadline - time.perf_counter())
            c.slice = max(int(left * 1e9), 1)
            bound.launch(kernel, self._points(suffix), together=True)
            try:
                c.ahead = 1  # if this slice is the last: the others still need J as it is
                ahead()
            finally:
                c.ahead = c.fresh = 0
            if bound.pcg_state().status:
                return
            if _is_over(limits):
                flush = bound.library.pcg("pcg_flush", suffix, damped, bound.index)
                bound.launch(flush, self._points(suffix))  # the last step, which a further slice would have taken
                ahead()
                return

    def _by_lines(self, limits: LinearLimits, suffix: str, damped: bool, ahead: Callable[[], None]) -> None:
        bound, c = self._bound, self._bound.context
        points = self._points(suffix)

        def line(name: str) -> None:
            bound.launch(bound.library.pcg(name, suffix, damped, bound.index), points)

        self._progress[0] = 0
        c.progress, c.slice = self._progress_address, 0
        line("pcg_start")
        marks: list[Mark] = []
        k, batch = 0, 0
        while self._progress[0] >= 0 and k < limits.max_iterations and not (k and _is_over(limits)):
            for _ in range(min(_BATCHES[min(batch, len(_BATCHES) - 1)], limits.max_iterations - k)):
                k += 1
                line("pcg_direction")
                line("pcg_apply")
                if limits.residual_reset_period and k % limits.residual_reset_period == 0:
                    line("pcg_flush")
                    line("pcg_apply_delta")
                    line("pcg_restart")
                else:
                    line("pcg_update")
            batch += 1
            marks.append(bound.device.mark())
            if len(marks) > _AHEAD:
                marks.pop(0).wait()
        line("pcg_flush")
        ahead()

    def _points(self, suffix: str) -> int:
        groups = ("applyJTJ", f"start{suffix}")
        return max(map(self._bound.points, groups))


def _is_over(limits: LinearLimits) -> bool:
    return limits.deadline is not None and time.perf_counter() >= limits.deadline
