"""The multigrid of the grid on which all unknowns stand, whose finest level is matrix-free."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref
from typing import final

from optpy.energy.derive.vectors import vector
from optpy.ir import Coupling, Field, Group, Sweeps, VectorKind
from optpy.kernels.runtime.library import BoundProgram
from optpy.linear.multigrid.levels import Multigrid, places
from optpy.linear.multigrid.native import grid_multigrid
from optpy.linear.multigrid.structures import MultigridState
from optpy.linear.pcg.native import address, ints, lines
from optpy.linear.pcg.state import PcgKernels
from optpy.linear.safe_work import SafeWork


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
        self._unknowns = unknowns
        shape = [buffers.sizes[d] for d in coupling.dims]
        self.levels = Multigrid(coupling, shape, buffers.pitch[coupling.dims], bound.program.dtype)
        program, state = bound.program, self.levels.state
        for name, elements in coupling.vectors.items():
            setattr(state, name, places(elements, program.slots))
        state.z_of = ints([program.slots.fields[vector(VectorKind.Z, u)] for u in unknowns])
        groups = program.groups
        state.smooth, state.power = ints(groups[Group.SMOOTH_MULTIGRID]), ints(groups[Group.POWER_MULTIGRID])
        self._kernels: dict[bool, PcgKernels] = {}  # by whether A is damped

    @property
    def nbytes(self) -> int:
        return self.levels.nbytes

    def kernels(self, damped: bool) -> PcgKernels:
        """The lines of conjugate gradients with the levels that were built last."""
        if damped not in self._kernels:
            self._kernels[damped] = self._lines(damped)
        return self._kernels[damped]

    def _lines(self, damped: bool) -> PcgKernels:
        state = ctypes.addressof(self.levels.state)
        return lines(
            self._bound,
            self._unknowns,
            damped,
            Sweeps.MULTIGRID,
            precondition=address(grid_multigrid(self._bound.library).optpy_apply_multigrid),
            preconditioner=state,
            omega=state + MultigridState.omega.offset,
        )

    def build(self, damped: bool, safe_work: SafeWork) -> None:
        """Levels for J^T J (+ D) as it now is."""
        bound, state = self._bound, self.levels.state
        build, lines = grid_multigrid(bound.library).optpy_multigrid, self.kernels(damped)

        def work(safe: int) -> None:
            state.safe = safe
            build(byref(bound.context), byref(lines), byref(state), bound.no_scalars, bound.product_threads)

        safe_work.finish(work)

    def residual_norms(self) -> dict[str, float]:
        """r.r, and g.g, which is that of the start; after a solve."""
        return self._bound.run(Group.NORMS_MULTIGRID)
