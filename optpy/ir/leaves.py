"""The leaves of expressions, the keys of ``symbolic.Var``, and what stands inside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, final

from optpy.errors import Location
from optpy.ir.fields import Field
from optpy.ir.spaces import Extent, Hypergraph, LoopVariable
from optpy.symbolic.affine import Affine, TableEntry, inside
from optpy.symbolic.expr import Expr, linear, var
from optpy.symbolic.inversion import Divides, SolutionCondition
from optpy.symbolic.traverse import variables


@final
@dataclass(frozen=True, slots=True)
class Access:
    """One channel of a field at an affine index. Outside the field its value is 0."""

    field: Field
    index: tuple[Affine, ...]
    channel: int

    def __hash__(self) -> int:
        return hash((self.field.name, self.index, self.channel))

    @property
    def boolean(self) -> bool:
        return self.field.dtype == "bool"

    @property
    def finite(self) -> bool:
        return self.field.finite

    def __str__(self) -> str:
        suffix = f".{self.channel}" if self.field.channels > 1 else ""
        return f"{self.field.name}[{', '.join(map(str, self.index))}]{suffix}"


@final
@dataclass(frozen=True, slots=True)
class Plane:
    """One channel of a field of data as a whole: what ``symbolic.elements.element`` reads at computed places."""

    field: Field
    channel: int
    boolean = False

    @property
    def finite(self) -> bool:
        return self.field.finite

    def __str__(self) -> str:
        suffix = f".{self.channel}" if self.field.channels > 1 else ""
        return f"{self.field.name}[{', '.join(':' for _ in self.field.dims)}]{suffix}"


@final
@dataclass(frozen=True, slots=True)
class InBounds:
    """1 where ``0 <= index < dim``."""

    index: Affine
    dim: Extent
    boolean = True

    def __str__(self) -> str:
        return f"in_bounds({self.index}, {self.dim})"


@final
@dataclass(frozen=True, slots=True)
class IndexCondition:
    """1 where an integer condition on loop variables holds (from inverting strided accesses)."""

    condition: SolutionCondition
    boolean = True

    def __str__(self) -> str:
        c = self.condition
        return f"divides({c.denominator}, {c.numerator})" if isinstance(c, Divides) else f"is_zero({c.value})"


@final
@dataclass(frozen=True, slots=True)
class IndexValue:
    """The value of an affine index, as a number."""

    index: Affine
    boolean = False
    finite = True

    def __str__(self) -> str:
        return f"value({self.index})"


@final
@dataclass(frozen=True, slots=True)
class Scalar:
    """A number given at run time: a param of the energy, or a scalar of the solver."""

    name: str
    location: Location | None = field(default=None, compare=False)
    of_solver: bool = False
    boolean = False
    finite = True

    def __str__(self) -> str:
        return f"solver.{self.name}" if self.of_solver else self.name  # no param has a dot


@final
@dataclass(frozen=True, slots=True)
class LocalName:
    """The result of a ``LocalSum`` of the same routine."""

    name: str
    boolean = False

    def __str__(self) -> str:
        return f"local.{self.name}"  # the dot keeps it apart from params


@final
@dataclass(frozen=True, slots=True)
class Hoisted:
    """A number that the head of a function of the loop IR has computed."""

    name: str
    boolean = False

    def __str__(self) -> str:
        return f"head.{self.name}"


Leaf = Access | Plane | InBounds | IndexCondition | IndexValue | Scalar | LocalName | Hoisted


def index_value(index: Affine) -> Expr:
    """The value of an index as a polynomial in those of its single atoms, so that like terms meet, however shifted."""
    return linear(index.constant, [(c, var(IndexValue(Affine.of(a)))) for a, c in index.terms])


def affines_of(key: object) -> tuple[Affine, ...]:
    """The affine indices inside a leaf."""
    match key:
        case Access():
            return key.index
        case InBounds() | IndexValue():
            return (key.index,)
        case IndexCondition():
            return (key.condition.numerator if isinstance(key.condition, Divides) else key.condition.value,)
        case _:
            return ()


def indices_of(key: object) -> list[LoopVariable]:
    """The loop variables inside a leaf, also inside its divisions and entries."""
    return [a for a in atoms_of(affines_of(key)) if isinstance(a, LoopVariable)]


def entries_of(key: object) -> list[TableEntry]:
    """The entries of tables inside a leaf."""
    return [a for a in atoms_of(affines_of(key)) if isinstance(a, TableEntry)]


def atoms_of(affines: Iterable[Affine]) -> list[Any]:
    """All atoms of affine indices, also those inside divisions and entries."""
    found: list[Any] = []
    pending = list(affines)
    while pending:
        for atom in pending.pop().atoms:
            found.append(atom)
            pending.extend(inside(atom))
    return found


def declared_in(roots: Iterable[Expr]) -> set[Field | Scalar]:
    """The fields that expressions read, at indices or at computed places, and the numbers given at run time."""
    keys = [v.key for v in variables(list(roots))]
    fields = {k.field for k in keys if isinstance(k, Access | Plane)}
    return fields | {k for k in keys if isinstance(k, Scalar)}


def graphs_in(roots: Iterable[Expr]) -> list[Hypergraph]:
    """The graphs whose entries stand in expressions, each once."""
    return list(dict.fromkeys(e.table for v in variables(roots) for e in entries_of(v.key)))


def graphs_of(index: Iterable[Affine]) -> tuple[Hypergraph, ...]:
    """The graphs that an index goes through."""
    return tuple(dict.fromkeys(a.table for a in atoms_of(index) if isinstance(a, TableEntry)))


@final
@dataclass(frozen=True, slots=True)
class SlotRead:
    """A whole slot of an edge, up to constant offsets, along some axes of an index; its other axes need no graph.

    Attributes:
        graph: whose slot it is.
        slot: its number.
        edge: the row of the graph.
        axes: the axis of the index at which each axis of the slot stands.
        offsets: that are added to them.
    """

    graph: Hypergraph
    slot: int
    edge: Affine
    axes: tuple[int, ...]
    offsets: tuple[int, ...]


def slot_read(index: tuple[Affine, ...]) -> SlotRead | None:
    """The slot that an index goes through; None where it goes through none, through several, or through parts."""
    through = {n: [a for a in atoms_of([i]) if isinstance(a, TableEntry)] for n, i in enumerate(index)}
    entries = [e for found in through.values() for e in found]
    if not entries:
        return None
    graph: Hypergraph = entries[0].table
    row = entries[0].row
    slot = graph.slot_of(entries[0].column)
    if slot is None:
        return None
    columns = [a.atoms[0] for a in graph.at(slot, row)]
    axes = [n for c in columns for n, found in through.items() if c in found]
    if not len(axes) == len(columns) == len(entries):
        return None
    offsets = [index[n].offset_from(c) for n, c in zip(axes, columns, strict=True)]
    if None in offsets:
        return None
    return SlotRead(graph, slot, row, tuple(axes), tuple(d for d in offsets if d is not None))
