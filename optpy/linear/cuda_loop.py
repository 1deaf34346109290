"""How the iterations of conjugate gradients are queued on a GPU, and what the host waits for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

import numpy as np

from optpy.errors import InternalError
from optpy.kernels.runtime.cuda.bound import BoundCuda
from optpy.kernels.runtime.cuda.device import Mark
from optpy.linear.cuda_lines import CudaLines
from optpy.linear.ending import Ending, linear_summary
from optpy.linear.pcg.state import PcgState
from optpy.solver.protocol import LinearLimits, LinearSummary

_SLICE = 0.05
"""Seconds after which the kernel that has all iterations in it comes back, so that Ctrl-C is heard."""
_BATCHES = (4, 8, 16)
"""Iterations that are queued before the host looks whether an earlier batch was the last; the last number repeats."""
_BATCHES_OF_CYCLES = (1,)
"""The same with multigrid, whose iterations are many launches, and few."""
_AHEAD = 2
"""Batches that are queued while the device works on one."""


@final
class CudaLoop:
    """Conjugate gradients on a device, whose scalars and tests are the device's: the host reads nothing until the
    method has ended, and then in one copy with what is queued after it.

    Args:
        bound: the energy's program with its memory.
    """

    def __init__(self, bound: BoundCuda) -> None:
        self._bound = bound
        self._progress, self._progress_address = bound.device.shared_with_host((1,), np.dtype(np.int64))

    def run(self, lines: CudaLines, state: PcgState, limits: LinearLimits) -> LinearSummary:
        """See ``loop.Run``."""
        self._begin(state, limits, pause=0)
        self._queue_lines(lines, state, limits, limits.max_iterations)
        lines.queue("pcg_flush")
        self._read(state)
        if not state.status:
            _end_by_time(state, limits)
        return linear_summary(state, limits)

    def run_with(
        self, lines: CudaLines, state: PcgState, limits: LinearLimits, pause: int, ahead: Callable[[], None]
    ) -> bool:
        """The same, with what follows the solve queued before the host waits.

        Args:
            lines, state, limits: see ``loop.Run``.
            pause: iterations after which another preconditioner is to go on.
            ahead: queues what follows.

        Returns:
            Whether it has come to the pause; then nothing of what follows has been done, and ``state.status`` is 0.
        """
        self._begin(state, limits, pause)
        c = self._bound.context
        most = min(pause, limits.max_iterations)
        queued = self._queue_lines(lines, state, limits, most)
        lines.queue("pcg_flush")
        try:
            c.ahead = int(queued >= most < limits.max_iterations)  # nothing is done if the method has not ended
            ahead()
        finally:
            c.ahead = 0
        self._read(state)
        if state.status:
            return False
        if state.k >= most < limits.max_iterations:
            return True
        _end_by_time(state, limits)
        return False

    def run_together(
        self, lines: CudaLines, state: PcgState, limits: LinearLimits, pause: int, ahead: Callable[[], None]
    ) -> bool:
        """As ``run_with``, all iterations in one kernel, from delta = 0."""
        self._begin(state, limits, pause)
        bound, c = self._bound, self._bound.context
        kernel = lines.kernel("pcg_solve")
        c.progress, c.fresh = None, 1
        while True:
            limits.safe_point.poll()
            c.slice = max(int(min(_SLICE, limits.safe_point.seconds_left) * 1e9), 1)
            bound.launch(kernel, lines.points, together=True)
            try:
                c.ahead = 1  # if this slice is the last: the others still need J as it is
                ahead()
            finally:
                c.ahead = c.fresh = 0
            self._read(state)
            if state.status:
                return False
            if state.k >= pause < limits.max_iterations:
                lines.queue("pcg_flush")
                return True
            if limits.safe_point.is_late:
                lines.queue("pcg_flush")  # the last step, which a further slice would have taken
                ahead()
                _end_by_time(state, limits)
                return False

    def _begin(self, state: PcgState, limits: LinearLimits, pause: int) -> None:
        """The numbers that the device tests by."""
        c = self._bound.context
        c.eta, c.r_tolerance, c.precision = (
            limits.eta,
            limits.r_tolerance,
            float(np.finfo(self._bound.program.dtype).eps),
        )
        c.max_iterations, c.min_iterations = limits.max_iterations, limits.min_iterations
        c.reset_period, c.pause = limits.residual_reset_period, pause
        c.reduced = state.rho / state.rho_0 if state.resume else 1.0
        c.trace = state.trace

    def _queue_lines(self, lines: CudaLines, state: PcgState, limits: LinearLimits, most: int) -> int:
        """Queue iterations until the device tells that it has ended; returns how many there are now at most."""
        bound, c = self._bound, self._bound.context
        self._progress[0] = 0
        c.progress, c.slice = self._progress_address, 0
        if state.resume:
            lines.resume()
        elif state.rho_0 < 0:
            lines.start()
        else:
            lines.go_on()
        marks: list[Mark] = []
        k, batch = int(state.k), 0
        batches = _BATCHES if lines.multigrid is None else _BATCHES_OF_CYCLES
        period = limits.residual_reset_period
        while self._progress[0] >= 0 and k < most and not (batch and limits.safe_point.is_late):
            for _ in range(min(batches[min(batch, len(batches) - 1)], most - k)):
                k += 1
                lines.iterate(reset=bool(period) and k % period == 0)
            batch += 1
            marks.append(bound.device.mark())
            if len(marks) > _AHEAD:
                marks.pop(0).wait()
        return k

    def _read(self, state: PcgState) -> None:
        """What the device has come to; the host waits for it."""
        found = self._bound.pcg_state()
        state.k, state.status, state.resume = found.k, found.status, 0
        state.rho, state.rho_0, state.pAp = found.rho, found.rho_0, found.pAp
        state.Q, state.zeta = found.Q, found.zeta


def _end_by_time(state: PcgState, limits: LinearLimits) -> None:
    """The device has not ended, and nothing more is queued."""
    if math.isinf(limits.safe_point.deadline):
        raise InternalError(f"conjugate gradients have stopped after {state.k} iterations without an ending")
    state.status = Ending.TIME
