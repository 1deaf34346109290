"""The multigrid preconditioner on a GPU: what multigrid.cuh is compiled with, its memory, and its launches."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from ctypes import c_int64
from dataclasses import dataclass
from math import prod
from typing import Any, final

import numpy as np

from optpy.ir import Coupling, Extent, VectorKind
from optpy.kernels.codegen.cuda.context import DIVISOR, SYNC, Divisor
from optpy.kernels.codegen.cuda.source import cuda_text, launch_bounds, shared_header
from optpy.kernels.codegen.dialect import cuda_dialect
from optpy.kernels.codegen.pcg_structures import PcgIteration
from optpy.kernels.runtime.cuda.device import LoadedKernel
from optpy.kernels.runtime.cuda.divisors import divisor
from optpy.kernels.runtime.cuda.executor import CudaExecutor, CudaLibrary
from optpy.kernels.toolchain.headers import native_header
from optpy.linear.multigrid.levels import (
    CONSTANTS,
    DAMPING,
    POWER_ITERATIONS,
    coarser_sizes,
    coupling_tables,
    n_inverse_pairs,
    probes,
)
from optpy.linear.multigrid.structures import CUDA_CHANNEL, CUDA_LEVEL, CudaLevel, cuda_context

ALONE = 2**15
"""Multiplications below which one block does a level faster than a launch begins."""
COOPERATIVE = 2**18
"""Points up to which a launch costs more than waiting for all blocks; beyond, kernels of their own hold more blocks."""
MOST_CHANNELS = 128
"""Numbers at a point: what a kernel is told of them is at most 4 KiB."""
_TABLES = ("row", "column", "transposed", "first", "inverse_first", "colour", "member", "block", "position")


def multigrid_source(coupling: Coupling, dtype: str) -> str:
    """The kernels for the coarse levels of an energy, and between them and the finest grid.

    Args:
        coupling: of its unknowns.
        dtype: the solver's precision.
    """
    real = cuda_dialect(dtype).real
    tables = coupling_tables(coupling, "static __device__ const int", _TABLES)
    tables.append(CONSTANTS)
    headers = [
        native_header(path)
        for path in (
            "kernels/cuda/divisor.cuh",
            "linear/multigrid/multigrid.cuh",
            "kernels/cuda/reduce.cuh",
            "linear/multigrid/multigrid_cycle.cuh",
            "linear/multigrid/multigrid_build.cuh",
        )
    ]
    names = re.findall(r"MG_KERNEL\((mg_\w+)\)", "".join(headers))
    bounds = [line for name in names for line in launch_bounds(name, "OPTPY_THREADS")]
    structures = [DIVISOR, CUDA_LEVEL, CUDA_CHANNEL, SYNC, cuda_context(len(coupling.elements))]
    head = "\n".join([f"#define OPTPY_REAL {real}", *tables, *bounds, *(s.text for s in structures)])
    return cuda_text("int", [head, shared_header("kernels/c/signs.h"), *headers])


def levels_kernel(library: CudaLibrary, name: str) -> LoadedKernel:
    """A kernel of the coarse levels of a program that has a ``Coupling``."""
    program = library.program
    coupling = program.coupling
    assert isinstance(coupling, Coupling)
    return library.kernel(("multigrid",), lambda: multigrid_source(coupling, program.dtype), name)


@final
@dataclass(frozen=True, slots=True)
class LevelSize:
    """The layout of a coarse grid in memory, with a halo as wide as its stencil reaches.

    Attributes:
        shape: points along z, y, x.
        step: finer points to one of its own along each.
        row, slab, plane: elements to the next row, slab and channel.
        origin: of the first point within its plane.
    """

    shape: tuple[int, ...]
    step: tuple[int, ...]
    row: int
    slab: int
    plane: int
    origin: int


def level_sizes(coupling: Coupling, sizes: Mapping[Extent, int]) -> list[LevelSize]:
    """All coarse levels of a problem, the finest of them first."""
    z, y, x = (0, 0, *coupling.coarse_reach)[-3:]
    found = []
    for shape, step in coarser_sizes(_shape(coupling, sizes), len(coupling.elements)):
        row = -(-(shape[2] + 2 * x) // 32) * 32
        slab = (shape[1] + 2 * y) * row
        found.append(LevelSize(shape, step, row, slab, (shape[0] + 2 * z) * slab, z * slab + y * row + x))
    return found


def levels_nbytes(executor: CudaExecutor) -> int:
    """Bytes of the levels of a problem, or a little less."""
    coupling = executor.program.coupling
    assert isinstance(coupling, Coupling)
    points = sum(size.plane for size in level_sizes(coupling, executor.buffers.sizes))
    return points * sum(_planes(coupling).values()) * np.dtype(executor.dtype).itemsize


def _shape(coupling: Coupling, sizes: Mapping[Extent, int]) -> tuple[int, ...]:
    """Of the finest grid."""
    return (1, 1, *(sizes[d] for d in coupling.dims))[-3:]


def _planes(coupling: Coupling) -> dict[str, int]:
    """The number of planes of each array of a level."""
    neighbours = prod(2 * r + 1 for r in coupling.coarse_reach)
    n = len(coupling.elements)
    return {
        "matrix": len(coupling.pairs) * (neighbours + 1) // 2,
        "inverse": n_inverse_pairs(coupling),
        "x": n,
        "b": n,
        "t": n,
    }


def _divisors(shape: Sequence[int], index: str) -> ctypes.Array[Divisor]:
    """By its second and its third number."""
    return (Divisor * 2)(*(divisor(n, index) for n in shape[1:]))


@final
class CudaMultigrid:
    """The coarse levels of one problem on a device, and the launches that work on them.

    Args:
        executor: the energy's program with its memory; it has a ``Coupling``.

    Attributes:
        omegas: the damping of each level, the finest first; on the device.
        finest_omega: where they begin.

    Raises:
        MemoryError: the device has too little left.
    """

    def __init__(self, executor: CudaExecutor) -> None:
        coupling = executor.program.coupling
        assert isinstance(coupling, Coupling)
        self._executor, self._coupling = executor, coupling
        self._xp, self._dtype = executor.xp, np.dtype(executor.dtype)
        self._memory: list[Any] = []
        finest = _shape(coupling, executor.buffers.sizes)
        sizes = level_sizes(coupling, executor.buffers.sizes)
        self.omegas = self.new_array(1 + len(sizes), np.float64)
        self.finest_omega = executor.device.address(self.omegas)
        self._levels = [self._level(size, self.finest_omega + 8 * (1 + n)) for n, size in enumerate(sizes)]
        work = prod(2 * r + 1 for r in coupling.coarse_reach) * len(coupling.pairs)
        small = [n for n, size in enumerate(sizes) if prod(size.shape) * work <= ALONE]
        self._small = min(small, default=len(sizes) - 1)
        self.context = self._new_context(finest)

    def _level(self, size: LevelSize, omega: int) -> CudaLevel:
        address = self._executor.device.address
        planes = _planes(self._coupling)
        arrays = {name: address(self.new_array(k * size.plane, self._dtype)) for name, k in planes.items()}
        shape, step = (c_int64 * 3)(*size.shape), (c_int64 * 3)(*size.step)
        by_size = _divisors(size.shape, "int")
        return CudaLevel(
            shape, step, size.row, size.slab, size.plane, size.origin, **arrays, omega=omega, by_size=by_size
        )

    def new_array(self, count: int, dtype: Any) -> Any:
        """Zeros on the device, which live as long as the levels."""
        array = self._xp.zeros(count, dtype)
        self._memory.append(array)
        return array

    def _new_context(self, finest: tuple[int, ...]) -> Any:
        executor, address = self._executor, self._executor.device.address
        fields = cuda_context(len(self._coupling.elements)).fields
        context = type("Context", (ctypes.Structure,), {"_fields_": fields})()
        levels = np.frombuffer(bytes((CudaLevel * len(self._levels))(*self._levels)), np.uint8)
        self._memory.append(self._xp.asarray(levels, blocking=True))
        context.levels = ctypes.cast(address(self._memory[-1]), ctypes.POINTER(CudaLevel))  # on the device
        context.small, context.last = self._small, len(self._levels) - 1
        coarsest = prod(self._levels[-1].size) * len(self._coupling.elements)
        pitch = executor.buffers.pitch[self._coupling.dims]
        context.size[:], context.by_size = finest, _divisors(finest, "long long")
        context.by_coarsest = divisor(coarsest, "int")
        context.row, context.slab = pitch, pitch * finest[1]
        context.factor = address(self.new_array(coarsest**2, np.float64))
        context.work = address(self.new_array(2 * coarsest, np.float64))
        context.partial, context.sync = executor.context.partial, executor.context.sync
        context.status = executor.context.pcg + PcgIteration.status.offset
        return context

    @property
    def nbytes(self) -> int:
        return sum(int(a.nbytes) for a in self._memory)

    # -- the cycle -----------------------------------------------------------------------------------------------------

    def correct(self) -> None:
        """Queue z += P A^-1 P^T (r - A z), about, with A z in Ap and the levels in the place of A^-1."""
        self._between(VectorKind.R, minus=VectorKind.AP)
        self._launch("mg_restrict_finest", 0)
        self._cycle(0)
        self._between(VectorKind.Z, mask=VectorKind.C)
        self.context.add = 1
        self._launch("mg_interpolate_to_finest", 0, self._finest_points)

    def _cycle(self, level: int) -> None:
        """t ~ A^-1 b on a level: symmetric, because the sweeps before and after are the same."""
        if level >= self._small:
            self._queue("mg_small_levels", 1)
            return
        if self._points(level) <= COOPERATIVE:
            self.context.first = level
            self._queue("mg_levels_cooperative", self._points(level), cooperative=True)
            return
        self._launch("mg_first_sweep", level)
        self._launch("mg_residual_of_level", level)
        self._launch("mg_restrict_to_coarser", level, self._points(level + 1))
        self._cycle(level + 1)
        self._launch("mg_interpolate_from_coarser", level)
        self._launch("mg_last_sweep", level)

    # -- building ------------------------------------------------------------------------------------------------------

    def probes(self) -> list[tuple[int, tuple[int, int, int]]]:
        """See ``levels.probes``."""
        return probes(self._coupling)

    def put_probe(self, colour: int, point: Sequence[int]) -> None:
        """Queue z = P of a probe."""
        self._set_probe(colour, point)
        self._launch("mg_make_probe", 0)
        self._between(VectorKind.Z, mask=VectorKind.C)
        self.context.add = 0
        self._launch("mg_interpolate_to_finest", 0, self._finest_points)

    def take_probe(self, colour: int, point: Sequence[int]) -> None:
        """Queue what P^T Ap tells of the first coarse matrix, with Ap = A z of a probe."""
        self._set_probe(colour, point)
        self._between(VectorKind.AP)
        self._launch("mg_restrict_finest", 0)
        self._launch("mg_collect", 0)

    def build_levels(self) -> None:
        """Queue all that follows from the first coarse matrix."""
        for level in range(self._small):
            self._launch("mg_invert_blocks_of_level", level)
            for n in range(POWER_ITERATIONS):
                self._launch("mg_residual_of_level", level)
                self.context.scale = DAMPING if n == POWER_ITERATIONS - 1 else 1.0
                self._launch("mg_power", level)
            self._launch("mg_coarsen_level", level, self._points(level + 1))
        self._queue("mg_build_small_levels", 1)

    def begin_finest_estimate(self) -> None:
        """Queue z = random signs, from which the power iteration on the finest grid starts, with omega = 1."""
        self._between(VectorKind.Z, mask=VectorKind.C)
        self.context.level.omega = self.finest_omega
        self._queue("mg_begin_finest_estimate", self._finest_points)

    # -- launches ------------------------------------------------------------------------------------------------------

    def _set_probe(self, colour: int, point: Sequence[int]) -> None:
        self.context.colour = colour
        self.context.probe[:] = point

    def _between(self, values: VectorKind, minus: VectorKind | None = None, mask: VectorKind | None = None) -> None:
        """The vectors of the finest grid that the next launches read or write."""
        for n, channel in enumerate(self.context.fine):
            for name, kind in (("values", values), ("minus", minus), ("mask", mask)):
                element = None if kind is None else self._coupling.vectors[kind][n]
                setattr(channel, name, None if element is None else self._executor.address_of(*element))

    def _points(self, level: int) -> int:
        return prod(self._levels[level].size)

    @property
    def _finest_points(self) -> int:
        return prod(self.context.size)

    def _launch(self, name: str, level: int, points: int | None = None) -> None:
        self.context.level = self._levels[level]
        if level + 1 < len(self._levels):
            self.context.coarser = self._levels[level + 1]
        self._queue(name, self._points(level) if points is None else points)

    def _queue(self, name: str, points: int, cooperative: bool = False) -> None:
        launch = self._executor.kept((name, points), lambda: (levels_kernel(self._executor.library, name), points))
        self._executor.launch(launch, cooperative=cooperative, context=self.context)
