"""The kernels of conjugate gradients on a GPU, for the host to queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

from optpy.energy.derive.vectors import vector
from optpy.ir import Field, Group, Task, VectorKind
from optpy.kernels.codegen.cuda.program import Phase
from optpy.kernels.runtime.cuda.device import LoadedKernel
from optpy.kernels.runtime.cuda.executor import CudaExecutor, Launch
from optpy.linear.pcg.variant import Variant

COOPERATIVE = 2**20
"""Points up to which all iterations run in one kernel: there a launch costs more than waiting for all blocks."""


class KernelsOfZ(Protocol):
    """The kernels of a preconditioner that stores z, and does not make it wherever r is updated."""

    def queue_z(self, kernels: CudaPcgKernels, after: str) -> None:
        """Queue z = M r, and what follows from r.z.

        Args:
            kernels: those of the iteration.
            after: the update of r that has been queued before: "start", "update" or "resume".
        """


@final
@dataclass(frozen=True, slots=True)
class CudaPcgKernels:
    """The kernels of an iteration, with one preconditioner.

    Attributes:
        executor: the energy's program with its memory.
        unknowns: of the energy, in order.
        variant: by the preconditioner.
        damped: whether A = J^T J + D, or J^T J alone.
        of_z: makes z by kernels of its own; None: z is part of the others. Where it is there, the variant has a kernel
            "pcg_begin", which begins a solve.
    """

    executor: CudaExecutor
    unknowns: Sequence[Field]
    variant: Variant
    damped: bool
    of_z: KernelsOfZ | None = None

    def queue(self, name: str) -> None:
        """Queue one kernel; the names are those of pcg.cuh and of the preconditioner."""
        self.executor.launch(self.launch(name))

    def start(self) -> None:
        """Queue delta = 0, and the first residual."""
        if self.of_z is None:
            self.queue("pcg_start")
        else:
            self.queue("pcg_begin")
            self.queue("pcg_start")
            self.of_z.queue_z(self, "start")

    def resume(self) -> None:
        """Queue the residual of the present delta, with which another preconditioner has ended."""
        self.go_on()
        self.product(VectorKind.DELTA)
        if self.of_z is None:
            self.queue("pcg_resume")
        else:
            self.queue("pcg_restart")
            self.of_z.queue_z(self, "resume")

    def go_on(self) -> None:
        """Queue that a solve that has ended has not."""
        self.queue("pcg_go_on")

    def iterate(self, reset: bool) -> None:
        """Queue an iteration.

        Args:
            reset: whether the residual is computed from delta, not by the recurrence.
        """
        self.queue("pcg_direction")
        self._prepare(VectorKind.P)
        self.queue("pcg_apply")
        if reset:
            self.queue("pcg_flush")
            self.product(VectorKind.DELTA)
        self.queue("pcg_restart" if reset else "pcg_update")
        if self.of_z is not None:
            self.of_z.queue_z(self, "update")

    def product(self, kind: VectorKind) -> None:
        """Queue A v, in the place of A p.

        Args:
            kind: of the vector v: delta, or z.
        """
        self._prepare(kind)
        self._queue_on("pcg_product", kind)

    def _prepare(self, kind: VectorKind) -> None:
        for n in range(len(self._products) - 1):
            self._queue_on(f"pcg_prepare_{n}", kind)

    def _queue_on(self, name: str, kind: VectorKind) -> None:
        if kind is VectorKind.P:
            self.queue(name)
            return
        vectors = [(vector(kind, u), vector(VectorKind.P, u)) for u in self.unknowns]
        self.executor.launch_on(self.launch(name), vectors)

    def launch(self, name: str) -> Launch:
        """Of one kernel; kept for all solves on the same graphs."""
        key = name, self.variant.preconditioning, self.damped
        return self.executor.kept(key, lambda: (self._kernel(name), self._points))

    def _kernel(self, name: str) -> LoadedKernel:
        return self.variant.kernel(self.executor.library, name, self.damped, self.executor.index)

    @property
    def fits_one_kernel(self) -> bool:
        """Whether all iterations run in one kernel, as far as the points go."""
        return self.variant.in_one_kernel and self.executor.points(self.variant.start) <= COOPERATIVE

    @property
    def _products(self) -> tuple[Phase, ...]:
        return self.executor.program.phases[Group.of(Task.PRODUCT, damped=self.damped)]

    @property
    def _points(self) -> int:
        """Threads that a kernel could use."""
        return max(map(self.executor.points, (Group.PRODUCT, self.variant.start)))
