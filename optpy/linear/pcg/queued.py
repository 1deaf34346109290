"""Conjugate gradients on a GPU: how their iterations are queued, and what the host waits for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from optpy.errors import InternalError
from optpy.ir import Field, Group
from optpy.kernels.runtime.cuda.device import Mark
from optpy.kernels.runtime.cuda.executor import CudaExecutor
from optpy.linear.pcg.cuda_kernels import CudaPcgKernels
from optpy.linear.pcg.state import PCG_ROW, PcgState, pcg_limits
from optpy.linear.pcg.status import PcgStatus, linear_summary
from optpy.linear.pcg.variant import Variant
from optpy.linear.safe_work import SafeWork
from optpy.solver.protocol import LinearLimits, LinearSummary
from optpy.solver.safe_point import SLICE

_AHEAD = 2
"""Batches that are queued while the device works on one."""


@final
class QueuedLoop:
    """Runs conjugate gradients on a GPU: see ``PcgLoop``. Their scalars and tests are the device's: the host reads
    nothing until the method has ended, and then in one copy with what is queued after it.

    Where z is part of the vector updates, small problems run in one kernel whose blocks wait for one another. On large
    ones, and where z is stored, each stage of the method is a kernel: three to an iteration, and those of z.

    Args:
        executor: the energy's program with its memory.
        unknowns: of the energy, in order.
    """

    device = "cuda"
    compiles_late = True

    def __init__(self, executor: CudaExecutor, unknowns: Sequence[Field]) -> None:
        self.executor = executor
        self.unknowns = unknowns
        self.safe_work = SafeWork()
        self._progress, self._progress_address = executor.device.shared_with_host((1,), np.dtype(np.int64))

    @property
    def has_blocks(self) -> bool:
        return Group.GRADIENT_BLOCKS in self.executor.program.phases

    @property
    def nbytes(self) -> int:
        return self.executor.nbytes

    def trace(self, iterations: int) -> tuple[Any, int]:
        """See ``PcgLoop.trace``."""
        rows = self.executor.xp.zeros((iterations, len(PCG_ROW.fields)), np.float64)
        return rows, self.executor.device.address(rows)

    def kernels(self, damped: bool, variant: Variant) -> CudaPcgKernels:
        """See ``PcgLoop.kernels``."""
        return CudaPcgKernels(self.executor, self.unknowns, variant, damped)

    def follow(self, ahead: Callable[[], None]) -> None:
        """Queue it."""
        ahead()

    def run(
        self,
        kernels: CudaPcgKernels,
        state: PcgState,
        limits: LinearLimits,
        pause: int | None = None,
        ahead: Callable[[], None] | None = None,
    ) -> LinearSummary | None:
        """See ``PcgLoop.run``."""
        most = limits.max_iterations if pause is None else min(pause, limits.max_iterations)
        self._begin(state, limits, limits.max_iterations if pause is None else pause)
        if ahead is not None and kernels.fits_one_kernel and not state.resume:
            paused = self._in_one_kernel(kernels, state, limits, most, ahead)
        else:
            paused = self._kernel_by_kernel(kernels, state, limits, most, ahead)
        return None if paused else linear_summary(state, limits)

    def _kernel_by_kernel(
        self,
        kernels: CudaPcgKernels,
        state: PcgState,
        limits: LinearLimits,
        most: int,
        ahead: Callable[[], None] | None,
    ) -> bool:
        """Queue each kernel of up to ``most`` iterations; whether there is a pause after them."""
        c = self.executor.context
        queued = self._queue_iterations(kernels, state, limits, most)
        kernels.queue("pcg_flush")
        if ahead is not None:
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

    def _in_one_kernel(
        self, kernels: CudaPcgKernels, state: PcgState, limits: LinearLimits, most: int, ahead: Callable[[], None]
    ) -> bool:
        """The same with all iterations in one kernel, from delta = 0."""
        executor, c = self.executor, self.executor.context
        launch = kernels.launch("pcg_solve")
        c.progress, c.fresh = None, 1
        while True:
            limits.safe_point.poll()
            c.slice = max(int(min(SLICE, limits.safe_point.seconds_left) * 1e9), 1)
            executor.launch(launch, cooperative=True)
            try:
                c.ahead = 1  # if this slice is the last: the others still need J as it is
                ahead()
            finally:
                c.ahead = c.fresh = 0
            self._read(state)
            if state.status:
                return False
            if state.k >= most < limits.max_iterations:
                kernels.queue("pcg_flush")
                return True
            if limits.safe_point.is_late:
                kernels.queue("pcg_flush")  # the last step, which a further slice would have taken
                ahead()
                _end_by_time(state, limits)
                return False

    def _begin(self, state: PcgState, limits: LinearLimits, pause: int) -> None:
        """The numbers that the device tests by."""
        c = self.executor.context
        c.limits, c.pause = pcg_limits(limits, limits.max_iterations, self.executor.program.dtype), pause
        c.reduced = state.rho / state.rho_0 if state.resume else 1.0
        c.trace = state.trace

    def _queue_iterations(self, kernels: CudaPcgKernels, state: PcgState, limits: LinearLimits, most: int) -> int:
        """Queue iterations until the device tells that it has ended; returns how many there are now at most."""
        executor, c = self.executor, self.executor.context
        self._progress[0] = 0
        c.progress, c.slice = self._progress_address, 0
        if state.resume:
            kernels.resume()
        elif state.rho_0 < 0:
            kernels.start()
        else:
            kernels.go_on()
        marks: list[Mark] = []
        k, batch = int(state.k), 0
        batches = kernels.variant.batches
        period = limits.residual_reset_period
        while self._progress[0] >= 0 and k < most and not (batch and limits.safe_point.is_late):
            limits.safe_point.poll()
            for _ in range(min(batches[min(batch, len(batches) - 1)], most - k)):
                k += 1
                kernels.iterate(reset=bool(period) and k % period == 0)
            batch += 1
            marks.append(executor.device.mark())
            if len(marks) > _AHEAD:
                marks.pop(0).wait()
        return k

    def _read(self, state: PcgState) -> None:
        """Reads the state of the device; the host waits for it."""
        state.iteration, state.resume = self.executor.pcg_iteration(), 0


def _end_by_time(state: PcgState, limits: LinearLimits) -> None:
    """The device has not ended, and nothing more is queued."""
    if math.isinf(limits.safe_point.deadline):
        raise InternalError(f"conjugate gradients have stopped after {state.k} iterations without an ending")
    state.status = PcgStatus.TIME
