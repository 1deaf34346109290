"""The numbers of fields, sizes, grids, params, tables and reductions in the native context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar, final

from optpy.ir import (
    Access,
    Extent,
    Field,
    Hypergraph,
    InBounds,
    LoopVariable,
    Plane,
    Routine,
    Scalar,
    affines_of,
    atoms_of,
    indices_of,
    point,
)
from optpy.kernels.codegen.tables import TableKey, incidences, tables_of
from optpy.symbolic.affine import Affine, Atom, TableEntry

Dims = tuple[Extent, ...]
_K = TypeVar("_K")


@final
@dataclass(frozen=True, slots=True)
class SegmentList:
    """The points of a grid that a routine visits: all, or only those where some unknown is solved for."""

    dims: Dims
    solved_only: bool
    incidences: tuple[tuple[Hypergraph, int, tuple[int, ...]], ...] = ()
    """Slots whose edges each point goes through, with the axes of the grid that they point into: points with many edges
    are more work."""
    dense: bool = False
    """Whether each point adds up whole dims: a few points are work for several threads."""
    beside: bool = False
    """Whether points of a volume read rows beside their own."""


@final
@dataclass(slots=True)
class SymbolTable:
    """Numbers are given in the order of first use; the same energy always gives the same numbers."""

    fields: dict[Field, int] = field(default_factory=dict)
    sizes: dict[Extent, int] = field(default_factory=dict)
    grids: dict[Dims, int] = field(default_factory=dict)
    lists: dict[SegmentList, int] = field(default_factory=dict)
    params: dict[str, int] = field(default_factory=dict)
    tables: dict[TableKey, int] = field(default_factory=dict)
    reductions: list[tuple[str, str]] = field(default_factory=list)
    """(routine, reduction) by number."""
    interleaved: set[Dims] = field(default_factory=set)
    """Grids whose fields keep the channels of a point side by side."""
    padded: set[Dims] = field(default_factory=set)
    """Those of them on which a GPU pads the points of gathered fields."""
    gathered: set[Field] = field(default_factory=set)
    """Fields that are read through graphs, and those that exchange their memory with them."""
    added: set[Field] = field(default_factory=set)
    """Fields to which products add through graphs."""

    def add(self, routine: Routine, solved_only: bool) -> None:
        """Number whatever the routine uses."""
        self._grid(tuple(i.dim for i in routine.domain))
        _number(self.lists, segment_list(routine, solved_only))
        for key in routine.keys:
            self._leaf(key)
        for assignment in routine.assignments:
            self._field(assignment.target.field)
        for x in routine.locals:
            self._sizes(i.dim for i in x.variables)
        tables = tables_of(routine)
        for table in tables:
            _number(self.tables, table)
        for graph in dict.fromkeys(table.graph for table in tables):
            self._sizes((graph.edges, *graph.columns))
        self.reductions.extend((routine.name, r.name) for r in routine.reductions)

    def _leaf(self, key: object) -> None:
        self._sizes(i.dim for i in indices_of(key))
        for affine in affines_of(key):
            self._sizes(_dims_in(affine))
        match key:
            case Access() | Plane():
                self._field(key.field)
            case InBounds():
                self._sizes([key.dim])
            case Scalar(of_solver=False):
                _number(self.params, key.name)

    def _field(self, f: Field) -> None:
        _number(self.fields, f)
        self._grid(f.dims)

    def _grid(self, dims: Dims) -> None:
        _number(self.grids, dims)
        self._sizes(dims)

    def _sizes(self, dims: Iterable[Extent]) -> None:
        for d in dims:
            for own in _dims_in(d.length):
                _number(self.sizes, own)


def segment_list(routine: Routine, solved_only: bool) -> SegmentList:
    """The list of segments that a routine visits."""
    number: dict[Atom, int] = {i: n for n, i in enumerate(routine.domain)}
    around = dict.fromkeys(
        (k.graph, k.slot, tuple(number[i] for a in k.at for i in a.atoms)) for k in incidences(routine).values()
    )
    # An edge adds to what is solved for also where nothing of its own is.
    solved_only = solved_only and not routine.prepares and not routine.atomic_adds
    loops = (k for x in routine.locals for k in x.loops)
    dense = any(isinstance(k, LoopVariable) and not k.dim.length.is_constant for k in loops)
    dims = tuple(i.dim for i in routine.domain)
    return SegmentList(dims, solved_only, tuple(around), dense, _reads_beside(routine, dims))


def _reads_beside(routine: Routine, dims: Dims) -> bool:
    """Whether points of a volume read rows beside their own."""
    row = point(routine.domain)[:-1]
    return len(dims) > 2 and any(a.field.dims == dims and a.index[:-1] != row for a in routine.accesses())


def gathered_grids(routines: Iterable[Routine]) -> set[Dims]:
    """The grids of one dim whose points are reached through graphs: by an entry, or as an edge at a point."""
    found: set[Dims] = set()
    for routine in routines:
        targets = (x.target for x in routine.atomic_adds)
        found |= {f.dims for f in _through_graphs(routine, (*routine.accesses(), *targets))}
    return found


def gathered_fields(routines: Iterable[Routine]) -> set[Field]:
    """The fields on grids of one dim that are read through graphs."""
    return {f for routine in routines for f in _through_graphs(routine, routine.accesses())}


def _through_graphs(routine: Routine, accesses: Iterable[Access]) -> Iterator[Field]:
    edges = set(incidences(routine))
    for a in accesses:
        atoms = [atom for affine in a.index for atom in affine.atoms]
        if len(a.field.dims) == 1 and any(isinstance(x, TableEntry) or x in edges for x in atoms):
            yield a.field


def _number(table: dict[_K, int], key: _K) -> None:
    table.setdefault(key, len(table))


def _dims_in(affine: Affine) -> list[Extent]:
    return [a for a in atoms_of([affine]) if isinstance(a, Extent)]
