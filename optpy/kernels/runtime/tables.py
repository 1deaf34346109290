"""The integer tables that kernels follow through a graph: its columns, and its edges sorted by what they point at.

For each slot, ``Offsets`` says where the edges at every point of its grid begin, and ``Sorted`` holds a column (or the
edge's own number) in that order, so that a loop over the edges at a point reads memory from front to back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from optpy.ir import Dim, Graph, Incidence, Index, Routine, affines_of, entries_of, entry_dim
from optpy.symbolic.affine import Affine, Entry

Table = Any
"""Whole numbers of 32 bits, an array of NumPy or CuPy."""


@final
@dataclass(frozen=True, slots=True)
class Column:
    """A column of a graph, for each edge."""

    graph: Graph
    column: int

    def __str__(self) -> str:
        return f"column({self.graph}, {self.column})"


@final
@dataclass(frozen=True, slots=True)
class Offsets:
    """Where the edges of each point begin when they are sorted by what a slot points at; one more than points."""

    graph: Graph
    slot: int

    def __str__(self) -> str:
        return f"offsets({self.graph}, {self.slot})"


@final
@dataclass(frozen=True, slots=True)
class Sorted:
    """A column, for each edge sorted by what a slot points at; the number of the edge itself where it is None."""

    graph: Graph
    slot: int
    column: int | None

    def __str__(self) -> str:
        return f"sorted({self.graph}, {self.slot}, {'edge' if self.column is None else self.column})"


TableKey = Column | Offsets | Sorted


# -- which tables a routine follows ------------------------------------------------------------------------------------


def incidences(routine: Routine) -> dict[Index, Incidence]:
    """The loops over edges of a routine by their loop variables."""
    return {k.edge: k for x in routine.locals for k in x.loops if isinstance(k, Incidence)}


def table_of(entry: Entry, loops: Mapping[Index, Incidence]) -> TableKey:
    """Where an entry is read: in the order of the loop that is its row, if that runs over edges of its graph."""
    row = loop_row(entry)
    loop = None if row is None else loops.get(row)
    if loop is not None and loop.graph == entry.table:
        return Sorted(loop.graph, loop.slot, entry.column)
    return Column(entry.table, entry.column)


def loop_row(entry: Entry) -> Index | None:
    """The loop variable over the edges that is an entry's row; None if the row is any other index.

    Rows are other indices where a residual is seen from elsewhere: with ``U[e + 1]``, from ``U``'s point y at the edge
    ``y - 1``; or where a condition of ``fixed`` is read at an index: at what another graph points at.
    """
    for atom in entry.row.atoms:
        if isinstance(atom, Index) and atom.dim == entry.table.edges and entry.row.offset_from(atom) == 0:
            return atom
    return None


def row_is_inside(entry: Entry) -> bool:
    """Whether an entry's row is an edge by construction: a loop variable over edges, or what a slot points at.

    Any other row may lie outside, and is checked wherever the entry is read.
    """
    if loop_row(entry) is not None:
        return True
    (first, *_) = entry.row.atoms or (None,)
    return (
        isinstance(first, Entry)
        and entry.row.offset_from(first) == 0
        and entry_dim(first) == entry.table.edges  # checked when the graph was bound
        and row_is_inside(first)
    )


def tables_of(routine: Routine) -> list[TableKey]:
    """Every table that a routine follows, in a fixed order."""
    loops = incidences(routine)
    keys = routine.keys
    found: list[TableKey] = [table_of(e, loops) for key in keys for e in entries_of(key)]
    for loop in loops.values():
        found.append(Offsets(loop.graph, loop.slot))
        if needs_number(keys, loop):
            found.append(Sorted(loop.graph, loop.slot, None))
    return list(dict.fromkeys(found))


def needs_number(keys: Iterable[object], loop: Incidence) -> bool:
    """Whether leaves ask for the number of the edge itself, beside what it points at."""
    return any(_mentions(a, loop) for key in keys for a in affines_of(key))


def _mentions(affine: Affine, loop: Incidence) -> bool:
    for atom in affine.atoms:
        if atom == loop.edge:
            return True
        own = isinstance(atom, Entry) and atom.table == loop.graph and loop_row(atom) == loop.edge
        if not own and hasattr(atom, "inner") and _mentions(atom.inner, loop):
            return True
    return False


# -- their contents ----------------------------------------------------------------------------------------------------


@final
class Connectivity:
    """The tables of one graph at some data; each is built when it is first asked for.

    Args:
        graph: its declaration.
        edges: (edges, columns), every index inside what its slot points into.
        sizes: of every dim.
        xp: the module of the edges, in which the tables are built: NumPy or CuPy.
    """

    def __init__(self, graph: Graph, edges: Table, sizes: Mapping[Dim, int], xp: Any = np) -> None:
        self._xp = xp
        self.graph = graph
        self.edges = edges
        self.shapes = tuple(tuple(sizes[d] for d in slot) for slot in graph.slots)
        self._tables: dict[TableKey, Table] = {}

    def same_as(self, edges: Table, sizes: Mapping[Dim, int]) -> bool:
        """Whether these are the edges, on grids of these sizes, that the tables have been built for."""
        shapes = tuple(tuple(sizes[d] for d in slot) for slot in self.graph.slots)
        return shapes == self.shapes and (edges is self.edges or bool(self._xp.array_equal(edges, self.edges)))

    def table(self, key: TableKey) -> Table:
        """The contents of a table of this graph."""
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = self._build(key)
        return found

    def degrees(self, slot: int) -> Any:
        """How many edges point at each point of a slot's grid, flattened."""
        offsets = self.table(Offsets(self.graph, slot)).astype(np.int64)
        return offsets[1:] - offsets[:-1]

    def _build(self, key: TableKey) -> Table:
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
        return sum(int(a.nbytes) for a in (self.edges, *self._tables.values()))


def table_bytes(keys: Iterable[TableKey], sizes: Mapping[Dim, int]) -> int:
    """The memory that tables take at given sizes."""
    numbers = 0
    for key in keys:
        if isinstance(key, Offsets):
            numbers += math.prod(sizes[d] for d in key.graph.slots[key.slot]) + 1
        else:
            numbers += sizes[key.graph.edges]
    return numbers * np.dtype(np.int32).itemsize


def offsets_of(points: Any, size: int, xp: Any = np) -> Table:
    """Where each of the whole numbers below a size begins when they are sorted, and how many there are."""
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
