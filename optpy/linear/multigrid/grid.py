"""The multigrid of the grid on which all unknowns stand, whose finest level is matrix-free."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref
from typing import final

from optpy.energy.derive.vectors import vector
from optpy.ir import Coupling, Field, Group, Preconditioning, VectorKind
from optpy.kernels.runtime.executor import CpuExecutor
from optpy.linear.multigrid.levels import Multigrid, element_addresses
from optpy.linear.multigrid.native import grid_multigrid
from optpy.linear.multigrid.structures import MultigridState
from optpy.linear.pcg.native import address, ints, pcg_kernels
from optpy.linear.pcg.state import PcgKernels
from optpy.linear.safe_work import SafeWork


@final
class GridMultigrid:
    """A V-cycle on coarser grids.

    Args:
        executor: the energy's program, which has a ``Coupling``, with its memory.
        unknowns: of the energy, in order.
    """

    def __init__(self, executor: CpuExecutor, unknowns: Sequence[Field]) -> None:
        coupling, buffers = executor.program.coupling, executor.buffers
        assert isinstance(coupling, Coupling)
        self._executor = executor
        self._unknowns = unknowns
        shape = [buffers.sizes[d] for d in coupling.dims]
        self.levels = Multigrid(coupling, shape, buffers.pitch[coupling.dims], executor.program.dtype)
        program, state = executor.program, self.levels.state
        for name, elements in coupling.vectors.items():
            setattr(state, name, element_addresses(elements, program.symbols))
        state.z_of = ints([program.symbols.fields[vector(VectorKind.Z, u)] for u in unknowns])
        groups = program.groups
        state.smooth, state.power = ints(groups[Group.SMOOTH_SMOOTHED]), ints(groups[Group.POWER_SMOOTHED])
        self._kernels: dict[bool, PcgKernels] = {}  # by whether A is damped

    @property
    def nbytes(self) -> int:
        return self.levels.nbytes

    def kernels(self, damped: bool) -> PcgKernels:
        """The kernels of conjugate gradients with the levels that were built last."""
        if damped not in self._kernels:
            self._kernels[damped] = self._with_levels(damped)
        return self._kernels[damped]

    def _with_levels(self, damped: bool) -> PcgKernels:
        state = ctypes.addressof(self.levels.state)
        return pcg_kernels(
            self._executor,
            self._unknowns,
            damped,
            Preconditioning.SMOOTHED,
            precondition=address(grid_multigrid(self._executor.library).optpy_apply_multigrid),
            preconditioner=state,
            omega=state + MultigridState.omega.offset,
        )

    def build(self, damped: bool, safe_work: SafeWork) -> None:
        """Levels for J^T J (+ D) as it now is."""
        executor, state = self._executor, self.levels.state
        build, kernels = grid_multigrid(executor.library).optpy_multigrid, self.kernels(damped)

        def work(safe: int) -> None:
            state.safe = safe
            build(byref(executor.context), byref(kernels), byref(state), executor.no_scalars, executor.product_threads)

        safe_work.finish(work)

    def residual_norms(self) -> dict[str, float]:
        """r.r, and g.g, which is that of the start; after a solve."""
        return self._executor.run(Group.NORMS_SMOOTHED)
