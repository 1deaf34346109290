"""The multigrid of a grid in the registry."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from optpy.errors import DeviceMemoryError
from optpy.ir import Coupling, Extent, Preconditioning, Uncoupled
from optpy.kernels.runtime.cpu import CpuLibrary
from optpy.linear.jacobi.record import JACOBI
from optpy.linear.method import NoMemory
from optpy.linear.multigrid.cuda_grid import ON_GRID, CudaGridMultigrid
from optpy.linear.multigrid.cuda_levels import MOST_CHANNELS, level_sizes, levels_kernel, levels_nbytes
from optpy.linear.multigrid.grid import GridMultigrid
from optpy.linear.multigrid.levels import too_long_edge
from optpy.linear.multigrid.native import grid_multigrid
from optpy.linear.multigrid.solve import MultigridSolve
from optpy.linear.pcg.native import solving_groups
from optpy.linear.record import Implementation, Record
from optpy.linear.system import System

PATIENCE = 25
"""Iterations with Jacobi after which "auto" builds multigrid: about what building it costs, so that no more is lost by
waiting than by building in vain. In ``python -m bench.preconditioners --size 512`` that is 27 to 60 on pictures."""
_MOST_POINTS = 2**31
"""The limit of a GPU's kernels on points, and on elements of a coarse plane."""


def applicability(system: System) -> str | None:
    """The reason why the unknowns have no multigrid on their grid; None if they have."""
    coupling = system.program.coupling
    if isinstance(coupling, Uncoupled):
        return coupling.reason
    if system.loop.device != "cpu":
        too_large = _too_large_for_kernels(coupling, system.sizes)
        if too_large is not None:
            return too_large
    return too_long_edge(coupling, system.graphs) if system.graphs else None


def _is_sure(coupled: Coupling | Uncoupled) -> bool:
    """Whether no edges, which data brings, may be too long."""
    return isinstance(coupled, Coupling) and not coupled.edges


def _too_large_for_kernels(coupling: Coupling, sizes: Mapping[Extent, int]) -> str | None:
    if len(coupling.elements) > MOST_CHANNELS:
        return f"there are {len(coupling.elements)} numbers at each point, and {MOST_CHANNELS} at most are served"
    if max(math.prod(sizes[d] for d in coupling.dims), level_sizes(coupling, sizes)[0].plane) >= _MOST_POINTS:
        return "the grid has about 2^31 points or more"
    return None


def _on_cpu(system: System) -> MultigridSolve:
    return MultigridSolve(system.loop, GridMultigrid(system.executor, system.unknowns))


def _on_gpu(system: System) -> MultigridSolve:
    try:
        return MultigridSolve(system.loop, CudaGridMultigrid(system.executor, system.unknowns))
    except MemoryError as error:
        raise NoMemory(_full(system.executor), "jacobi (no memory for multigrid)") from error


def _full(executor: Any) -> DeviceMemoryError:
    device, needed = executor.device, levels_nbytes(executor)
    return DeviceMemoryError(
        f"the levels of preconditioner='multigrid' take {needed:,} bytes, and beside the solve "
        f"{device.free_memory():,} are free on {device.name}: use 'auto'"
    )


def _compile_on_cpu(system: System, damped: bool) -> None:
    library: CpuLibrary = system.executor.library
    groups = solving_groups(system.program, damped, Preconditioning.SMOOTHED)
    library.need_beside(groups, lambda: grid_multigrid(library))


def _compile_on_gpu(system: System, damped: bool) -> None:
    library = system.executor.library
    levels_kernel(library, "mg_small_levels")
    ON_GRID.kernel(library, "pcg_start", damped, system.executor.index)


MULTIGRID = Record(
    "multigrid",
    cpu=Implementation(_on_cpu, _compile_on_cpu),
    gpu=Implementation(_on_gpu, _compile_on_gpu),
    applicability=applicability,
    other_names=("mg",),
    is_sure_on_gpu=_is_sure,
    starter=JACOBI,
    patience=PATIENCE,
    iteration_cost=5,  # 4.4 to 5.4 in `python -m bench.preconditioners --size 512`
    is_left_midway=True,
)
