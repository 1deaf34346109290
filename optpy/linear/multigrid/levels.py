"""The multigrid of a grid: what its native code is compiled with on every device, and its memory on the CPU."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from ctypes import c_int, c_int64
from math import prod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.ir import Coupling, Field, Hypergraph
from optpy.kernels.codegen.symbol_table import SymbolTable
from optpy.kernels.runtime.tables import Connectivity
from optpy.kernels.toolchain.headers import native_header
from optpy.linear.multigrid.structures import CHANNEL, LEVEL, MULTIGRID, MultigridLevel, MultigridState

_COARSEST = 128
"""Unknowns that are solved for directly."""
_HALO = 2
"""Points beyond each end of a coarse grid: as many as interpolation reads, and as the stencil reaches at most."""
_CHUNK_BYTES = 128
"""Points are visited in whole chunks, of so many bytes a channel."""


_TABLES = ("row", "column", "transposed", "first", "inverse_column", "inverse_first", "colour")

# -- source --------------------------------------------------------------------------------------------------------


POWER_ITERATIONS = 8
"""Steps of the search for the largest eigenvalue of D^-1 A."""
DAMPING = 1.4
"""Omega, over that eigenvalue: damps the upper two thirds of the spectrum."""
_SINGULAR = 1e-6
"""Pivots below this part of their diagonal are rounding."""
CONSTANTS = f"""
#define MG_POWER_ITERATIONS {POWER_ITERATIONS}
#define MG_DAMPING {DAMPING}
#define MG_SINGULAR {_SINGULAR}
"""
"""The same for C and CUDA."""


def multigrid_source(coupling: Coupling) -> str:
    """The code for a coupling; goes after prelude.h, team.h, kernel.h, pcg_kernels.h and ``precision_source``."""
    lines = [*coupling_tables(coupling, "static const int", _TABLES), f"#define MG_CHUNK_BYTES {_CHUNK_BYTES}"]
    headers = (
        native_header(f"linear/multigrid/{name}") for name in ("multigrid.h", "multigrid_build.h", "multigrid_solve.h")
    )
    return "\n".join([*lines, CONSTANTS, "", LEVEL.text, CHANNEL.text, MULTIGRID.text, "", *headers])


def element_addresses(elements: Sequence[tuple[Field, int]], symbols: SymbolTable) -> Any:
    """The address of each element of a solver's vector: (field, channel), as native code reads it."""
    flat = [number for f, c in elements for number in (symbols.fields[f], c)]
    return (c_int * len(flat))(*flat)


def coupling_tables(coupling: Coupling, declaration: str, names: Collection[str]) -> list[str]:
    """The tables of coupled elements, for native code.

    Args:
        coupling: of the energy.
        declaration: what a table of integers begins with.
        names: of the tables, without "mg_" before them.
    """
    n, pairs = len(coupling.elements), coupling.pairs
    least = _connected(pairs, n)
    blocks = [[b for b in range(n) if least[b] == a] for a in range(n) if least[a] == a]
    inverse = [(a, b) for a in range(n) for b in range(n) if least[a] == least[b]]
    colours = _colours(pairs, n)
    reach = (0, 0, *coupling.coarse_reach)[-3:]
    neighbours = prod(2 * r + 1 for r in reach)
    definitions = {
        "CHANNELS": n,
        "PAIRS": len(pairs),
        "COLOURS": max(colours) + 1,
        "BLOCKS": len(blocks),
        "LARGEST": max(map(len, blocks)),
        **{f"REACH_{axis}": r for axis, r in zip("ZYX", reach, strict=True)},
        **{f"N{axis}": 2 * r + 1 for axis, r in zip("ZYX", reach, strict=True)},
        "NEIGHBOURS": neighbours,
        "HALF": (neighbours + 1) // 2,
    }
    tables = {
        "row": [a for a, _ in pairs],
        "column": [b for _, b in pairs],
        "transposed": [pairs.index((b, a)) for a, b in pairs],
        "first": _row_starts(pairs, n),
        "inverse_column": [b for _, b in inverse],
        "inverse_first": _row_starts(inverse, n),
        "colour": colours,
        # The elements of each block one after the other, where blocks begin, and each element's place in its own.
        "member": [a for block in blocks for a in block],
        "block": [sum(map(len, blocks[:k])) for k in range(len(blocks) + 1)],
        "position": [[b for b in range(n) if least[b] == least[a]].index(a) for a in range(n)],
    }
    lines = [f"#define MG_{name} {value}" for name, value in definitions.items()]
    return lines + [f"{declaration} mg_{name}[] = {{{', '.join(map(str, tables[name]))}}};" for name in names]


def n_inverse_pairs(coupling: Coupling) -> int:
    """Entries of the inverse of a point's block, zeros between elements that are not connected left out."""
    least = _connected(coupling.pairs, len(coupling.elements))
    return sum(least.count(a) for a in least)


def probes(coupling: Coupling) -> list[tuple[int, tuple[int, int, int]]]:
    """The probes that find the first coarse matrix: the colours of the channels, and of the points."""
    colours = max(_colours(coupling.pairs, len(coupling.elements))) + 1
    nz, ny, nx = (range(2 * r + 1) for r in (0, 0, *coupling.coarse_reach)[-3:])
    return [(c, (z, y, x)) for z in nz for y in ny for x in nx for c in range(colours)]


def _row_starts(pairs: Sequence[tuple[int, int]], rows: int) -> list[int]:
    return [sum(a < row for a, _ in pairs) for row in range(rows + 1)]


def _connected(pairs: Iterable[tuple[int, int]], n: int) -> list[int]:
    """The least element that each one is connected to, directly or not: the blocks of an inverse."""
    least = list(range(n))
    for _ in range(n):
        for a, b in pairs:
            least[a] = least[b] = min(least[a], least[b])
    return least


def _colours(pairs: Sequence[tuple[int, int]], n: int) -> list[int]:
    """Elements of one colour are coupled to no common element, so that one probe finds the columns of all."""
    neighbours = [{a for a, b in pairs if b == column} for column in range(n)]
    colours: list[int] = []
    for column in range(n):
        taken = {colours[c] for c in range(column) if neighbours[c] & neighbours[column]}
        colours.append(next(c for c in range(n) if c not in taken))
    return colours


# -- edges ---------------------------------------------------------------------------------------------------------


def too_long_edge(coupling: Coupling, graphs: Mapping[Hypergraph, Connectivity]) -> str | None:
    """An edge whose ends are further apart than the stencils reach, in words; None if there is none."""
    for edges in coupling.edges:
        table = graphs[edges.graph].edges  # an array of the device's
        if not len(table):
            continue
        columns = [edges.graph.columns_of(s) for s in edges.slots]
        found = []
        for axis, (first, second) in enumerate(zip(*columns, strict=True)):
            distance = abs(table[:, first].astype(np.int64) - table[:, second] + edges.offset[axis])
            edge = int((distance > coupling.longest[axis]).argmax())  # the first one; the first of all if there is none
            if int(distance[edge]) > coupling.longest[axis]:
                found.append((edge, axis, int(distance[edge])))
        if found:
            edge, axis, far = min(found)
            first, second = (
                f"{tuple(int(table[edge, c]) for c in own)} in slot {s}"
                for own, s in zip(columns, edges.slots, strict=True)
            )
            return (
                f"edge {edge} of the graph {edges.graph.name!r} points at {first} and {second}, so that the term "
                f"{edges.label!r} couples points {far} apart along {coupling.dims[axis]}; by its "
                f"terms on the grid the stencils reach as far as {coupling.longest[axis]}"
            )
    return None


# -- memory --------------------------------------------------------------------------------------------------------


@final
class Multigrid:
    """The levels of one problem.

    Args:
        coupling: of the energy.
        shape: of the finest grid.
        pitch: of the finest grid: elements from one row to the next.
        dtype: the solver's precision.
    """

    def __init__(self, coupling: Coupling, shape: Sequence[int], pitch: int, dtype: str) -> None:
        self._coupling = coupling
        self._dtype = np.dtype(dtype)
        self._reach = (0, 0, *coupling.coarse_reach)[-3:]
        self._memory: list[NDArray[Any]] = []
        finest = (1, 1, *shape)[-3:]
        levels = [self._level(size, step) for size, step in coarser_sizes(finest, len(coupling.elements))]
        coarsest = prod(levels[-1].size) * len(coupling.elements)
        self._levels = (MultigridLevel * len(levels))(*levels)
        self.state = MultigridState(
            size=(c_int64 * 3)(*finest),
            row=pitch,
            slab=pitch * finest[1],
            levels=len(levels),
            level=self._levels,
            factor=self._array(coarsest**2, np.float64).ctypes.data,
            work=self._array(coarsest, np.float64).ctypes.data,
            partial=self._array(levels[0].size[0] * levels[0].size[1], np.float64).ctypes.data,
        )

    def _level(self, size: tuple[int, ...], step: tuple[int, ...]) -> MultigridLevel:
        coupling, reach = self._coupling, self._reach
        halo = [max(_HALO, r) if r else 0 for r in reach]
        chunk = _CHUNK_BYTES // self._dtype.itemsize
        row = -(-size[2] // chunk) * chunk + 2 * halo[2]
        slab = (size[1] + 2 * halo[1]) * row
        plane = (size[0] + 2 * halo[0]) * slab + chunk
        origin = halo[0] * slab + halo[1] * row + halo[2]
        codes = np.stack(np.meshgrid(*(np.arange(-r, r + 1) for r in reach), indexing="ij"), -1).reshape(-1, 3)
        half = codes[len(codes) // 2 :]
        offsets = self._array(len(half), np.int64)
        offsets[:] = half @ np.array([slab, row, 1])
        n, pairs = len(coupling.elements), len(coupling.pairs)
        planes = {"matrix": pairs * len(half), "inverse": n * n, "x": n, "b": n, "t": n}
        arrays = {name: self._array(count * plane, self._dtype).ctypes.data for name, count in planes.items()}
        return MultigridLevel(
            (c_int64 * 3)(*size), (c_int64 * 3)(*step), row, slab, plane, origin, **arrays, offset=offsets.ctypes.data
        )

    def _array(self, count: int, dtype: Any) -> NDArray[Any]:
        array = np.zeros(count, dtype)
        self._memory.append(array)
        return array

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self._memory)

    @property
    def sizes(self) -> list[tuple[int, ...]]:
        """(z, y, x) of each level, the finest left out."""
        return [tuple(level.size) for level in self._levels]


def coarser_sizes(finest: tuple[int, ...], channels: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The sizes and steps of all coarse levels: at least one, and then until a direct solve is cheap."""
    levels: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    size = finest
    while not levels or (prod(size) * channels > _COARSEST and max(size) > 2):
        step = tuple(2 if n > 2 else 1 for n in size)
        size = tuple(n // s + 1 if s == 2 else n for n, s in zip(size, step, strict=True))
        levels.append((size, step))
    return levels
