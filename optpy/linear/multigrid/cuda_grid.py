"""The multigrid of the grid on which all unknowns stand, on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from optpy.energy.derive.vectors import vector
from optpy.ir import Field, Group, Preconditioning, Task, VectorKind
from optpy.kernels.runtime.cuda.executor import CudaExecutor
from optpy.linear.multigrid.cuda_levels import CudaMultigrid
from optpy.linear.multigrid.levels import DAMPING, POWER_ITERATIONS
from optpy.linear.pcg.cuda_kernels import CudaPcgKernels
from optpy.linear.pcg.variant import Variant
from optpy.linear.safe_work import SafeWork

ON_GRID = Variant(
    Preconditioning.SMOOTHED,
    "linear/multigrid/pcg_multigrid.cuh",
    ("begin", "smooth_start", "smooth_update", "smooth_resume", "power"),
    (Task.SMOOTH, Task.POWER),
    batches=(1,),  # its iterations are many launches, and few
)
"""By the multigrid of a grid."""


@final
class CudaGridMultigrid:
    """See ``solve.Levels``.

    Args:
        executor: the energy's program, which has a ``Coupling``, with its memory.
        unknowns: of the energy, in order.

    Raises:
        MemoryError: the device has too little left for the levels.
    """

    def __init__(self, executor: CudaExecutor, unknowns: Sequence[Field]) -> None:
        self._executor = executor
        self._unknowns = unknowns
        self.levels = CudaMultigrid(executor)
        executor.buffers.provide(vector(VectorKind.Z, u) for u in unknowns)  # last: what has been provided stays

    @property
    def nbytes(self) -> int:
        return self.levels.nbytes

    def kernels(self, damped: bool) -> CudaPcgKernels:
        """The kernels of conjugate gradients with the levels that were built last."""
        return CudaPcgKernels(self._executor, self._unknowns, ON_GRID, damped, self)

    def queue_z(self, kernels: CudaPcgKernels, after: str) -> None:
        """The rest of the cycle, whose first sweep has been part of the kernel before: z = M r, and r.z."""
        kernels.product(VectorKind.Z)
        self.levels.correct()
        kernels.product(VectorKind.Z)
        kernels.queue(f"pcg_smooth_{after}")

    def build(self, damped: bool, safe_work: SafeWork) -> None:
        """Queue the making of levels for J^T J (+ D) as it now is."""
        kernels, levels, c = self.kernels(damped), self.levels, self._executor.context
        c.omega = levels.finest_omega
        kernels.go_on()  # what is queued does nothing where a solve has ended
        for colour, point in levels.probes():
            safe_work.check()
            levels.put_probe(colour, point)
            kernels.product(VectorKind.Z)
            levels.take_probe(colour, point)
        levels.build_levels()
        levels.begin_finest_estimate()
        for n in range(POWER_ITERATIONS):
            kernels.product(VectorKind.Z)
            c.factor = DAMPING if n == POWER_ITERATIONS - 1 else 1.0
            kernels.queue("pcg_power")

    def residual_norms(self) -> dict[str, float]:
        """r.r, and g.g, which is that of the start; after a solve."""
        return self._executor.run(Group.NORMS_SMOOTHED)
