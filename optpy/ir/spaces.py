"""Sizes, and the index spaces over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import final

from optpy.errors import Location
from optpy.symbolic.affine import Affine, FloorDiv, RowNumber, TableEntry, floor_divide, row_number


@final
@dataclass(frozen=True, slots=True)
class Extent:
    """A symbolic size, bound from the data; two of the same name are the same."""

    name: str
    value: Affine | None = None
    """In terms of other sizes, where it follows from those."""

    @staticmethod
    def of(value: Affine) -> Extent:
        """The size that is a number, or follows from others."""
        return Extent(str(value), value)

    @property
    def length(self) -> Affine:
        """Itself, in terms of what is bound from the data."""
        return Affine.of(self) if self.value is None else self.value

    def at(self, sizes: Mapping[Extent, int]) -> int:
        """Its value, given those that the data binds."""
        return sizes[self] if self.value is None else int(self.value.evaluate(sizes))

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True)
class LoopVariable:
    """A loop variable that runs over ``0 <= index < dim``."""

    name: str
    dim: Extent

    def __hash__(self) -> int:
        return hash(self.name)  # names tell apart nearly all; hashing what is inside would take longer

    def __str__(self) -> str:
        return self.name


Domain = tuple[LoopVariable, ...]
"""An index space: the box of all values of its loop variables, the last one fastest."""


@final
@dataclass(frozen=True, slots=True)
class Hypergraph:
    """Hyper-edges with a fixed number of slots, each pointing at a point of a grid.

    As the table of an ``TableEntry``: a row for each edge, and the slots' axes side by side as columns; where edges are
    counted by several dims, then their own index.
    """

    name: str
    edges: Extent
    """Their number; where several dims count them, the product of these."""
    slots: tuple[tuple[Extent, ...], ...]
    location: Location | None = field(default=None, compare=False)
    grid: tuple[Extent, ...] = ()
    """The dims that count the edges, where they are several."""

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def columns(self) -> tuple[Extent, ...]:
        """The axis that each column points into."""
        return (*self.given, *self.grid)

    @property
    def given(self) -> tuple[Extent, ...]:
        """The axis that each column of the user's array points into."""
        return tuple(d for slot in self.slots for d in slot)

    @property
    def own_columns(self) -> range:
        """The columns that hold an edge's own index, where several dims count the edges."""
        return range(len(self.given), len(self.columns))

    @property
    def counted(self) -> tuple[Extent, ...]:
        """The dims that count the edges."""
        return self.grid or (self.edges,)

    def row(self, index: Iterable[Affine]) -> Affine:
        """The number of the edge at an index, one for each of the dims that count the edges."""
        index = tuple(index)
        return row_number(self, index) if self.grid else index[0]

    def index_of(self, row: Affine) -> tuple[Affine, ...]:
        """The index of an edge along the dims that count the edges."""
        if not self.grid:
            return (row,)
        (atom,) = row.atoms
        if isinstance(atom, RowNumber):
            return atom.index
        return tuple(Affine.of(TableEntry(self, c, row)) for c in self.own_columns)

    def columns_of(self, slot: int) -> range:
        """The columns of the array of edges, (E, columns), that hold the index of one slot."""
        first = sum(len(s) for s in self.slots[:slot])
        return range(first, first + len(self.slots[slot]))

    def slot_of(self, column: int) -> int | None:
        """The slot whose index a column is a part of; None of an edge's own index."""
        for number, slot in enumerate(self.slots):
            column -= len(slot)
            if column < 0:
                return number
        return None

    def at(self, slot: int, row: Affine) -> tuple[Affine, ...]:
        """The index that a slot of the edge ``row`` points at."""
        return tuple(Affine.of(TableEntry(self, c, row)) for c in self.columns_of(slot))

    def __str__(self) -> str:
        return self.name


def entry_dim(entry: TableEntry) -> Extent:
    """The axis that an entry of a graph points into."""
    graph: Hypergraph = entry.table
    return graph.columns[entry.column]


@final
@dataclass(frozen=True, slots=True)
class Incidence:
    """A loop over the edges whose slot points at a given point; ``edge`` is its loop variable."""

    edge: LoopVariable
    graph: Hypergraph
    slot: int
    at: tuple[Affine, ...]

    def __str__(self) -> str:
        return f"{self.edge} in {self.graph}.incident({self.slot}, [{', '.join(map(str, self.at))}])"


SumLoop = LoopVariable | Incidence
"""A loop of a local sum: over a whole dim, or over the edges at a point."""


def loop_variable(loop: SumLoop) -> LoopVariable:
    """The variable that a loop counts with."""
    return loop.edge if isinstance(loop, Incidence) else loop


def extremes(index: Affine) -> tuple[Affine, Affine]:
    """The least and the largest value of an index, in terms of sizes; or what is below, and above, of parts that depend
    on one another."""
    least = most = Affine(index.constant)
    for atom, c in index.terms:
        if isinstance(atom, Extent):
            ends = atom.length, atom.length
        elif isinstance(atom, FloorDiv):
            low, high = extremes(atom.numerator)
            ends = floor_divide(low, atom.denominator), floor_divide(high, atom.denominator)
        else:
            ends = Affine(0), _range_of(atom).length - 1
        low, high = ends if c > 0 else ends[::-1]
        least, most = least + low * c, most + high * c
    return least, most


def _range_of(atom: object) -> Extent:
    """The dim below which an atom that counts something stays."""
    if isinstance(atom, TableEntry):
        return entry_dim(atom)
    dim: Extent = atom.table.edges if isinstance(atom, RowNumber) else atom.dim  # type: ignore[attr-defined]
    return dim


def point(domain: Domain) -> tuple[Affine, ...]:
    """The index of the current point of a domain."""
    return tuple(Affine.of(i) for i in domain)


def canonical_domain(dims: Iterable[Extent]) -> Domain:
    """The loop variables that routines over a grid use: i0, i1, ... in the order of the dims."""
    return tuple(LoopVariable(f"i{n}", d) for n, d in enumerate(dims))
