"""The contents of the integer tables that kernels follow through a graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, final

import numpy as np

from optpy.ir import Extent, Hypergraph
from optpy.kernels.codegen.tables import Column, Offsets, Sorted, TableKey

Table = Any
"""Whole numbers of 32 bits, an array of NumPy or CuPy."""


@final
class Connectivity:
    """The tables of one graph at some data; each is built when it is first asked for.

    Args:
        graph: its declaration.
        edges: (edges, columns), every index inside what its slot points into.
        sizes: of every dim.
        xp: the module of the edges, in which the tables are built: NumPy or CuPy.
    """

    def __init__(self, graph: Hypergraph, edges: Table, sizes: Mapping[Extent, int], xp: Any = np) -> None:
        self._xp = xp
        self.graph = graph
        self.edges = edges
        self.shapes = tuple(tuple(sizes[d] for d in slot) for slot in graph.slots)
        self._tables: dict[TableKey, Table] = {}

    def same_as(self, edges: Table, sizes: Mapping[Extent, int]) -> bool:
        """Whether these are the edges, on grids of these sizes, that the tables have been built for."""
        shapes = tuple(tuple(sizes[d] for d in slot) for slot in self.graph.slots)
        return shapes == self.shapes and (edges is self.edges or bool(self._xp.array_equal(edges, self.edges)))

    def table(self, key: TableKey) -> Table:
        """The contents of a table of this graph."""
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = self.build_table(key)
        return found

    def degrees(self, slot: int) -> Any:
        """The number of edges that point at each point of a slot's grid, flattened."""
        offsets = self.table(Offsets(self.graph, slot)).astype(np.int64)
        return offsets[1:] - offsets[:-1]

    def build_table(self, key: TableKey) -> Table:
        """The contents of a table, computed anew: see ``table``, which keeps them."""
        xp = self._xp
        match key:
            case Column():
                return xp.ascontiguousarray(self.edges[:, key.column])
            case Offsets():
                return offsets_of(self._flat(key.slot), math.prod(self.shapes[key.slot]), xp)
            case Sorted(column=None):
                return sorted_order(self._flat(key.slot), math.prod(self.shapes[key.slot]), xp)
            case Sorted():
                order = self.table(Sorted(key.graph, key.slot, None))
                return self.edges[:, key.column][order]

    def _flat(self, slot: int) -> Any:
        """The point of its grid that the slot of each edge points at, in C order."""
        total = self._xp.zeros(len(self.edges), np.int64)
        for column, size in zip(self.graph.columns_of(slot), self.shapes[slot], strict=True):
            total = total * size + self.edges[:, column]
        return total

    @property
    def nbytes(self) -> int:
        """Bytes of the edges and of all tables built so far."""
        return sum(int(a.nbytes) for a in (self.edges, *self._tables.values()))


def table_bytes(keys: Iterable[TableKey], sizes: Mapping[Extent, int]) -> int:
    """The memory that tables take at given sizes."""
    numbers = 0
    for key in keys:
        if isinstance(key, Offsets):
            numbers += math.prod(sizes[d] for d in key.graph.slots[key.slot]) + 1
        else:
            numbers += sizes[key.graph.edges]
    return numbers * np.dtype(np.int32).itemsize


def offsets_of(points: Any, size: int, xp: Any = np) -> Table:
    """The start of each of the whole numbers below a size when they are sorted, and their number."""
    if xp is np:
        return np.concatenate([[0], np.cumsum(np.bincount(points, minlength=size))]).astype(np.int32)
    # CuPy's bincount gives every block counts of its own: gigabytes for a million points.
    return xp.searchsorted(xp.sort(points), xp.arange(size + 1)).astype(np.int32)


def sorted_order(points: Any, size: int, xp: Any = np) -> Table:
    """The positions of whole numbers below a size, sorted by the number, equal ones in their order."""
    n = len(points)
    if n * size < 2**62:
        # One sort of (number, position) pairs in one word each: NumPy sorts words by vector instructions.
        return (xp.sort(points * n + xp.arange(n)) % max(n, 1)).astype(np.int32)
    return xp.argsort(points, kind="stable").astype(np.int32)
