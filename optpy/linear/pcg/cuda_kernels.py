"""The kernels of conjugate gradients on a GPU, for the host to queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

from optpy.energy.derive.vectors import vector
from optpy.ir import Field, Group, Task, VectorKind
from optpy.kernels.codegen.cuda.program import Phase
from optpy.kernels.runtime.cuda.device import LoadedKernel
from optpy.kernels.runtime.cuda.executor import CudaExecutor
from optpy.linear.pcg.variant import Variant

COOPERATIVE = 2**20
"""Points up to which all iterations run in one kernel: there a launch costs more than waiting for all blocks."""


class CoarseLevels(Protocol):
    """The correction of z after the first sweep of a cycle."""

    def correct(self) -> None:
        """Queue z += P A^-1 P^T (r - A z), about, with A z in Ap."""


@final
@dataclass(frozen=True, slots=True)
class CudaPcgKernels:
    """The kernels of an iteration, with one preconditioner.

    Attributes:
        executor: the energy's program with its memory.
        unknowns: of the energy, in order.
        variant: by the preconditioner.
        damped: whether A = J^T J + D, or J^T J alone.
        multigrid: the levels below the finest; or None.
    """

    executor: CudaExecutor
    unknowns: Sequence[Field]
    variant: Variant
    damped: bool
    multigrid: CoarseLevels | None = None

    def queue(self, name: str) -> None:
        """Queue one kernel; the names are those of pcg.cuh and of the preconditioner."""
        self.executor.launch(self.kernel(name), self.points)

    def start(self) -> None:
        """Queue delta = 0, and the first residual."""
        if self.multigrid is None:
            self.queue("pcg_start")
        else:
            self.queue("pcg_begin")
            self.queue("pcg_start")
            self._precondition("start")

    def resume(self) -> None:
        """Queue the residual of the present delta, with which another preconditioner has ended."""
        self.go_on()
        self.product(VectorKind.DELTA)
        if self.multigrid is None:
            self.queue("pcg_resume")
        else:
            self.queue("pcg_restart")
            self._precondition("resume")

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
        if self.multigrid is not None:
            self._precondition("update")

    def product(self, kind: VectorKind) -> None:
        """Queue A v, in the place of A p.

        Args:
            kind: of the vector v: delta, or z.
        """
        self._prepare(kind)
        self._queue_on("pcg_product", kind)

    def _precondition(self, after: str) -> None:
        """The rest of the cycle, whose first sweep has been part of the kernel before: z = M^-1 r, and r.z."""
        assert self.multigrid is not None
        self.product(VectorKind.Z)
        self.multigrid.correct()
        self.product(VectorKind.Z)
        self.queue(f"pcg_smooth_{after}")

    def _prepare(self, kind: VectorKind) -> None:
        for n in range(len(self._products) - 1):
            self._queue_on(f"pcg_prepare_{n}", kind)

    def _queue_on(self, name: str, kind: VectorKind) -> None:
        vectors = [(vector(kind, u), vector(VectorKind.P, u)) for u in self.unknowns]
        self.executor.launch_on(self.kernel(name), self.points, vectors)

    def kernel(self, name: str) -> LoadedKernel:
        return self.variant.kernel(self.executor.library, name, self.damped, self.executor.index)

    @property
    def fits_one_kernel(self) -> bool:
        """Whether all iterations run in one kernel, as far as the points go."""
        return self.variant.in_one_kernel and self.executor.points(self.variant.start) <= COOPERATIVE

    @property
    def _products(self) -> tuple[Phase, ...]:
        return self.executor.program.phases[Group.of(Task.PRODUCT, damped=self.damped)]

    @property
    def points(self) -> int:
        """Threads that a kernel could use."""
        return max(map(self.executor.points, (Group.PRODUCT, self.variant.start)))
