"""The integer tables that kernels follow through a graph: its columns, and its edges sorted by what they point at.

For each slot, ``Offsets`` says where the edges at every point of its grid begin, and ``Sorted`` holds a column (or the
edge's own number) in that order, so that a loop over the edges at a point reads memory from front to back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from optpy.ir import Extent, Hypergraph, Incidence, LoopVariable, Routine, affines_of, entries_of, entry_dim
from optpy.symbolic.affine import Affine, RowNumber, TableEntry, inside


@final
@dataclass(frozen=True, slots=True)
class Column:
    """A column of a graph, for each edge."""

    graph: Hypergraph
    column: int

    def __str__(self) -> str:
        return f"column({self.graph}, {self.column})"


@final
@dataclass(frozen=True, slots=True)
class Offsets:
    """The start of each point's edges when edges are sorted by what a slot points at; one more than points."""

    graph: Hypergraph
    slot: int

    def __str__(self) -> str:
        return f"offsets({self.graph}, {self.slot})"


@final
@dataclass(frozen=True, slots=True)
class Sorted:
    """A column, for each edge sorted by what a slot points at; the number of the edge itself where it is None."""

    graph: Hypergraph
    slot: int
    column: int | None

    def __str__(self) -> str:
        return f"sorted({self.graph}, {self.slot}, {'edge' if self.column is None else self.column})"


TableKey = Column | Offsets | Sorted


def incidences(routine: Routine) -> dict[LoopVariable, Incidence]:
    """The loops over edges of a routine by their loop variables."""
    return {k.edge: k for x in routine.locals for k in x.loops if isinstance(k, Incidence)}


def table_of(entry: TableEntry, loops: Mapping[LoopVariable, Incidence]) -> TableKey:
    """The table of an entry: in the order of the loop that is its row, if that runs over edges of its graph."""
    row = loop_row(entry)
    loop = None if row is None else loops.get(row)
    if loop is not None and loop.graph == entry.table:
        return Sorted(loop.graph, loop.slot, entry.column)
    return Column(entry.table, entry.column)


def loop_row(entry: TableEntry) -> LoopVariable | None:
    """The loop variable over the edges that is an entry's row; None if the row is any other index.

    Rows are other indices where a residual is seen from elsewhere: with ``U[e + 1]``, from ``U``'s point y at the edge
    ``y - 1``; or where a condition of ``fixed`` is read at an index: at what another graph points at.
    """
    for atom in entry.row.atoms:
        if isinstance(atom, LoopVariable) and atom.dim == entry.table.edges and entry.row.offset_from(atom) == 0:
            return atom
    return None


def row_is_inside(entry: TableEntry) -> bool:
    """Whether an entry's row is an edge by construction: a loop variable over edges, or what a slot points at.

    Any other row may lie outside, and is checked wherever the entry is read.
    """
    return loop_row(entry) is not None or _points_inside(entry.row, entry.table.edges)


def _points_inside(index: Affine, dim: Extent) -> bool:
    (first, *_) = index.atoms or (None,)
    if first is None or index.offset_from(first) != 0:
        return False
    if isinstance(first, RowNumber):
        return first.table.edges == dim and index_is_inside(first)
    # What a slot points at was checked when the graph was bound.
    return isinstance(first, TableEntry) and entry_dim(first) == dim and row_is_inside(first)


def index_is_inside(number: RowNumber) -> bool:
    """Whether the index of an edge lies within the graph's axes by construction."""
    return all(
        any(isinstance(x, LoopVariable) and x.dim == dim and a.offset_from(x) == 0 for x in a.atoms)
        or _points_inside(a, dim)
        for a, dim in zip(number.index, number.table.counted, strict=True)
    )


def tables_of(routine: Routine) -> list[TableKey]:
    """Every table that a routine follows, in a fixed order."""
    loops = incidences(routine)
    keys = routine.keys
    found: list[TableKey] = [table_of(e, loops) for key in keys for e in entries_of(key)]
    numbered = edges_by_number(keys, loops)
    for loop in loops.values():
        found.append(Offsets(loop.graph, loop.slot))
        if loop.edge in numbered:
            found.append(Sorted(loop.graph, loop.slot, None))
    return list(dict.fromkeys(found))


def edges_by_number(keys: Iterable[object], loops: Mapping[LoopVariable, Incidence]) -> set[LoopVariable]:
    """The loops over edges of which leaves ask for the number of the edge itself, beside what it points at."""
    found: set[LoopVariable] = set()
    pending = [a for key in keys for a in affines_of(key)]
    while pending:
        for atom in pending.pop().atoms:
            if isinstance(atom, LoopVariable):
                found.add(atom)
            elif not (isinstance(atom, TableEntry) and isinstance(table_of(atom, loops), Sorted)):
                pending.extend(inside(atom))
    return found & loops.keys()
