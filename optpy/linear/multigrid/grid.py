"""The multigrid of the grid on which all unknowns stand, whose finest level is matrix-free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from optpy.energy.derive.vectors import vector
from optpy.ir import Coupling, Field
from optpy.kernels.runtime.context import PcgKernels
from optpy.kernels.runtime.library import BoundProgram
from optpy.linear.loop import directions_and_steps
from optpy.linear.multigrid.levels import Multigrid


@final
class GridMultigrid:
    """A V-cycle on coarser grids (``kernels.multigrid``).

    Args:
        bound: the energy's program, which has a ``Coupling``, with its memory.
        unknowns: of the energy, in order.
    """

    def __init__(self, bound: BoundProgram, unknowns: Sequence[Field]) -> None:
        coupling, buffers = bound.program.coupling, bound.buffers
        assert isinstance(coupling, Coupling)
        self._bound = bound
        self._steps = directions_and_steps(unknowns)
        self._z = [vector("z", u) for u in unknowns]
        shape = [buffers.sizes[d] for d in coupling.dims]
        self.levels = Multigrid(coupling, shape, buffers.pitch[coupling.dims], bound.program.dtype)
        self._kernels: dict[bool, PcgKernels] = {}  # by whether A is damped

    @property
    def nbytes(self) -> int:
        return self.levels.nbytes

    def kernels(self, damped: bool) -> PcgKernels:
        """The lines of conjugate gradients with the levels that were built last."""
        if damped not in self._kernels:
            self._kernels[damped] = self._bound.multigrid_kernels(self._steps, damped, self._z, self.levels)
        return self._kernels[damped]

    def build(self, damped: bool) -> None:
        """Levels for J^T J (+ D) as it now is."""
        self._bound.build_multigrid(self.kernels(damped), self.levels)

    def residual_norms(self) -> dict[str, float]:
        """r.r, and g.g, which is that of the start; after a solve."""
        return self._bound.run("residual_multigrid")
