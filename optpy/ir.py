"""The frozen records that every stage passes on: sizes, index spaces, leaves of expressions, routines.

An energy is a list of ``Residual``s. The builders in ``energy/`` turn it into ``Routine``s: maps over an index
space that store values into fields and add up sums. ``kernels/`` turns routines into native code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, final

from .errors import InternalError, Location
from .symbolic.affine import Affine, Atom, Condition, Divides, Entry, FloorDiv
from .symbolic.expr import Expr
from .symbolic.traverse import variables


@final
@dataclass(frozen=True, slots=True)
class Dim:
    """A symbolic size, bound from the data; two of the same name are the same."""

    name: str

    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True)
class Index:
    """A loop variable that runs over ``0 <= index < dim``."""

    name: str
    dim: Dim

    def __str__(self) -> str:
        return self.name


Domain = tuple[Index, ...]
"""An index space: the box of all values of its loop variables, the last one fastest."""


@final
@dataclass(frozen=True, slots=True)
class Graph:
    """Hyper-edges with a fixed number of slots, each pointing at a point of a grid.

    As the table of an ``Entry``: a row for each edge, and the slots' axes side by side as columns.
    """

    name: str
    edges: Dim
    slots: tuple[tuple[Dim, ...], ...]
    location: Location | None = field(default=None, compare=False)

    @property
    def columns(self) -> tuple[Dim, ...]:
        """The axis that each column points into."""
        return tuple(d for slot in self.slots for d in slot)

    def columns_of(self, slot: int) -> range:
        first = sum(len(s) for s in self.slots[:slot])
        return range(first, first + len(self.slots[slot]))

    def at(self, slot: int, row: Affine) -> tuple[Affine, ...]:
        """The index that a slot of the edge ``row`` points at."""
        return tuple(Affine.of(Entry(self, c, row)) for c in self.columns_of(slot))

    def __str__(self) -> str:
        return self.name


def entry_dim(entry: Entry) -> Dim:
    """The axis that an entry of a graph points into."""
    graph: Graph = entry.table
    return graph.columns[entry.column]


@final
@dataclass(frozen=True, slots=True)
class Incidence:
    """A loop over the edges whose slot points at a given point; ``edge`` is its loop variable."""

    edge: Index
    graph: Graph
    slot: int
    at: tuple[Affine, ...]

    def __str__(self) -> str:
        return f"{self.edge} in {self.graph}.incident({self.slot}, [{', '.join(map(str, self.at))}])"


Loop = Index | Incidence
"""A loop of a local sum: over a whole dim, or over the edges at a point."""


def loop_variable(loop: Loop) -> Index:
    """What a loop counts with."""
    return loop.edge if isinstance(loop, Incidence) else loop


class Role(Enum):
    """What a field is to the solver."""

    UNKNOWN = "unknown"
    DATA = "data"
    STORED = "stored"
    """An intermediate, computed once for each linearisation."""
    VECTOR = "vector"
    """A vector of the solver, of the layout of an unknown's tangent: gradient, step, search direction."""
    TANGENT = "tangent"
    """How far an unknown on a manifold has moved from its value: what is differentiated by, and 0 wherever it is
    read."""


REAL = "real"
"""The dtype name of fields in the solver's own precision."""

DTYPES = (REAL, "float32", "float64", "uint8", "int32", "bool")


@dataclass(frozen=True)
class Manifold:
    """Where the elements of a field live, if not in a vector space.

    Attributes:
        name: "SO3".
        channels: how many numbers store an element.
        dimension: in how many independent directions it can move.
    """

    name: str
    channels: int
    dimension: int

    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True)
class Field:
    """An array over a grid, with a fixed number of channels at every point."""

    name: str
    dims: tuple[Dim, ...]
    channels: int
    dtype: str
    role: Role
    vector: bool = False
    """Whether users see a channel axis: shape (H, W, 1) is not (H, W)."""
    location: Location | None = field(default=None, compare=False)
    finite: bool = True
    """Whether no element is ever infinite or NaN (data is checked when it is bound), so that it needs no guard."""
    manifold: Manifold | None = None

    def __str__(self) -> str:
        return self.name


def tangent(unknown: Field) -> Field:
    """The coordinates in which an unknown moves: itself, or those of its manifold's tangent space at its value."""
    if unknown.manifold is None:
        return unknown
    return Field(unknown.name, unknown.dims, unknown.manifold.dimension, REAL, Role.TANGENT, True, unknown.location)


Element = tuple[Field, int]
"""A channel of a field."""


# -- leaves: the keys of ``symbolic.Var`` ------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Access:
    """One channel of a field at an affine index. Outside the field its value is 0."""

    field: Field
    index: tuple[Affine, ...]
    channel: int

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
class InBounds:
    """1 where ``0 <= index < dim``."""

    index: Affine
    dim: Dim
    boolean = True

    def __str__(self) -> str:
        return f"in_bounds({self.index}, {self.dim})"


@final
@dataclass(frozen=True, slots=True)
class IndexCondition:
    """1 where an integer condition on loop variables holds (from inverting strided accesses)."""

    condition: Condition
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
    boolean = False
    finite = True

    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True)
class LocalName:
    """The result of a ``LocalSum`` of the same routine."""

    name: str
    boolean = False

    def __str__(self) -> str:
        return f"local.{self.name}"  # the dot keeps it apart from params


Leaf = Access | InBounds | IndexCondition | IndexValue | Scalar | LocalName


# -- energies ----------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Residual:
    """One residual vector at every point of a domain, with the boundary rule already applied.

    Its components are scalar expressions over ``domain``'s loop variables.
    """

    term: str
    """The keyword of ``Energy``: "reg"."""
    label: str
    """Unique: "reg[0]" for entries of a list, else the term's name."""
    domain: Domain
    components: tuple[Expr, ...]
    """What the cost sums the squares of."""
    linearised: tuple[Expr, ...]
    """What is differentiated: the components, but where a robust loss is, the residual within it times its weight.
    Where unknowns live on manifolds it is a function of their tangents, too, to be taken where those are 0."""
    shape: tuple[int, ...]
    location: Location | None = field(default=None, compare=False)
    written: tuple[Atom, ...] = field(default=(), compare=False)
    """The user's own loop variables, one for each of the domain's: for texts."""


# -- routines ----------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Store:
    """``target = value`` at every point of the routine's domain; the target's index is the point itself."""

    target: Access
    value: Expr


@final
@dataclass(frozen=True, slots=True)
class Reduce:
    """``total[name] += value`` over the domain, accumulated in float64. ``maximum``: the largest magnitude instead."""

    name: str
    value: Expr
    maximum: bool = False


@final
@dataclass(frozen=True, slots=True)
class LocalSum:
    """``names[n] = sum of values[n] over loops``, at every point of the domain where the condition holds, else 0."""

    names: tuple[str, ...]
    loops: tuple[Loop, ...]
    condition: Expr
    values: tuple[Expr, ...]

    @property
    def variables(self) -> Domain:
        """The loop variables."""
        return tuple(map(loop_variable, self.loops))


@final
@dataclass(frozen=True, slots=True)
class Routine:
    """A map over a domain: local sums, then stores, then reductions. Every value is read before any store.

    Attributes:
        prepares: whether later routines of its group read what it stores, also where nothing is solved for.
    """

    name: str
    domain: Domain
    stores: tuple[Store, ...] = ()
    reductions: tuple[Reduce, ...] = ()
    locals: tuple[LocalSum, ...] = ()
    prepares: bool = False

    @property
    def roots(self) -> list[Expr]:
        outer = [s.value for s in self.stores] + [r.value for r in self.reductions]
        return outer + [e for x in self.locals for e in (x.condition, *x.values)]

    def accesses(self) -> list[Access]:
        return [v.key for v in variables(self.roots) if isinstance(v.key, Access)]

    def __str__(self) -> str:
        lines = [f"{self.name} over ({_loops_text(self.domain)})"]
        for x in self.locals:
            lines.append(f"  where {x.condition!r}, sum over ({_loops_text(x.loops)})")
            lines += [f"    {name} += {value!r}" for name, value in zip(x.names, x.values, strict=True)]
        lines += [f"  {s.target} = {s.value!r}" for s in self.stores]
        lines += [f"  {'max' if r.maximum else 'sum'} {r.name}: {r.value!r}" for r in self.reductions]
        return "\n".join(lines)


def _loops_text(loops: Iterable[Loop]) -> str:
    return ", ".join(f"{k}: {k.dim}" if isinstance(k, Index) else str(k) for k in loops)


def point(domain: Domain) -> tuple[Affine, ...]:
    """The index of the current point of a domain."""
    return tuple(Affine.of(i) for i in domain)


def canonical_domain(dims: Iterable[Dim]) -> Domain:
    """The loop variables that routines over a grid use: i0, i1, ... in the order of the dims."""
    return tuple(Index(f"i{n}", d) for n, d in enumerate(dims))


def verify(routine: Routine) -> None:
    """Check what later stages rely on; a failure is a mistake of optpy, not of the user."""
    inner = {i for x in routine.locals for i in x.variables}
    allowed = {*routine.domain, *inner}
    names = {name for x in routine.locals for name in x.names}
    for v in variables(routine.roots):
        key = v.key
        if isinstance(key, LocalName) and key.name not in names:
            raise InternalError(f"{routine.name} reads the local {key.name}, which it does not compute")
        for index in indices_of(key):
            if index not in allowed:
                raise InternalError(f"{routine.name}: {key} uses the loop variable {index} from outside its domain")
    for loop in (k for x in routine.locals for k in x.loops if isinstance(k, Incidence)):
        if any(a not in routine.domain for a in atoms_of(loop.at) if isinstance(a, Index)):
            raise InternalError(f"{routine.name} loops over the edges at a point outside its domain: {loop}")
    if len({r.maximum for r in routine.reductions}) > 1:
        raise InternalError(f"{routine.name} has both sums and maxima")
    targets = [s.target for s in routine.stores]
    if len(set(targets)) != len(targets):
        raise InternalError(f"{routine.name} stores the same element twice")
    for target in targets:
        if target.index != point(routine.domain):
            raise InternalError(f"{routine.name} stores {target} away from its own point")


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


def indices_of(key: object) -> list[Index]:
    """The loop variables inside a leaf, also inside its divisions and entries."""
    return [a for a in atoms_of(affines_of(key)) if isinstance(a, Index)]


def entries_of(key: object) -> list[Entry]:
    """The entries of tables inside a leaf."""
    return [a for a in atoms_of(affines_of(key)) if isinstance(a, Entry)]


def atoms_of(affines: Iterable[Affine]) -> list[Any]:
    """All atoms of affine indices, also those inside divisions and entries."""
    found: list[Any] = []
    pending = list(affines)
    while pending:
        for atom in pending.pop().atoms:
            found.append(atom)
            if isinstance(atom, FloorDiv | Entry):
                pending.append(atom.inner)
    return found


def graphs_in(roots: Iterable[Expr]) -> list[Graph]:
    """The graphs whose entries stand in expressions, each once."""
    return list(dict.fromkeys(e.table for v in variables(roots) for e in entries_of(v.key)))


@final
@dataclass(frozen=True, slots=True)
class EdgeCoupling:
    """Two slots of the edges of a graph at which one residual reads unknowns: their distance is in the data.

    Attributes:
        slots: the two, in their order.
        offset: of what is read at the first one from what is read at the second, beside that of the points.
        label: the residual's.
    """

    graph: Graph
    slots: tuple[int, int]
    offset: tuple[int, ...]
    label: str


@final
@dataclass(frozen=True, slots=True)
class Coupling:
    """The sparsity of J^T J where all unknowns stand on one grid and are read at constant offsets of one another, or by
    edges, whose ends must be found to be near when they are known.

    Attributes:
        dims: of the grid.
        elements: the channels of all unknowns, numbered in this order.
        reach: of each dim, how far apart two points are at most that are coupled at a constant offset.
        pairs: (row, column) of elements that are coupled, sorted; symmetric, with the diagonal.
        vectors: the solver's vectors that a preconditioner works on, by name, element by element.
        edges: what couples points of the grid at distances that the data decides.
    """

    dims: tuple[Dim, ...]
    elements: tuple[Element, ...]
    reach: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    vectors: Mapping[str, tuple[Element, ...]]
    edges: tuple[EdgeCoupling, ...] = ()

    @property
    def coarse_reach(self) -> tuple[int, ...]:
        """The reach of P^T J^T J P, where P interpolates linearly from every other point."""
        return tuple((r + 2) // 2 for r in self.reach)

    @property
    def longest(self) -> tuple[int, ...]:
        """The largest reach whose coarse reach is no more than this one's: how far apart the ends of edges may be."""
        return tuple(2 * r - 1 for r in self.coarse_reach)


@final
@dataclass(frozen=True, slots=True)
class Uncoupled:
    """Why there is no ``Coupling``, as part of a sentence."""

    reason: str
