"""The one model of costs, in operations and bytes, by which schedules are made, for grids and for graphs.

The unit is an addition. Over the points of a grid, which are computed in vectors, it is that of one point in vector
code; over edges, which are visited one by one, that of scalar code. All that a machine has to do with is a constant
here, with the benchmark that has set it; each quantity is counted by one function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.materialised import store_jacobian, store_product
from optpy.energy.derive.normal_edges import read_together, together
from optpy.energy.derive.scatter import product_of_an_edge
from optpy.energy.derive.views import MultiIndex
from optpy.ir import (
    REAL,
    Access,
    Domain,
    Field,
    FieldChannel,
    Plane,
    Residual,
    Role,
    graphs_of,
    is_unknown,
    slot_read,
)
from optpy.kernels.codegen.store import ReadPoint, read_points
from optpy.scheduling.values import fields_read_in_conditions_only, worth_storing
from optpy.symbolic.count import count, count_nodes, is_dear
from optpy.symbolic.expr import Expr, Var, mul, var
from optpy.symbolic.factor import factor
from optpy.symbolic.order import topological
from optpy.symbolic.traverse import rebuild, transform, variables

# -- over grids --------------------------------------------------------------------------------------------------------

STREAM: Final = 16
"""Additions in vectors that take as long as bringing one number of each point from memory
(``python -m bench image_warping --parts throughput``)."""

BYTE: Final = 0.25
"""Of a number in float32 a byte; of one in float64 it is less."""

WORTH: Final = 2 / 3
"""Of what it saves, what is stored may take so much: these counts are estimates, and memory is taken, too. By
reasoning; ``python -m bench.schedules shape_from_shading`` shows both ways."""

PRODUCTS: Final = 20
"""Products with J^T J for each linearisation and cost: iterations of a linear solve. By reasoning."""

MOST_PAIRS: Final = 256
"""Products of two entries of J that are printed for one residual: 16 reads. Printed for all, those of a K x K blur took
compilers 0.6, 2.7 and 15 s for K = 3, 5 and 7 (``python -m bench.compile_growth blur``)."""

TERMS: Final = 16
"""Terms that a sum is taken to have: how many there are is known with the data. No benchmark has set it: windows and
models have more."""

# -- over edges --------------------------------------------------------------------------------------------------------

VERTEX, EDGE = 8, 24
"""Additions that take as long as reaching one more vertex of an edge, or an edge from a vertex (vertices are fewer, so
they are found in a cache more often). ``python -m bench.schedules`` measures every way beside its count."""

STREAMED, SCATTERED, SCATTERED_ON_GPU = 4, 3, 8
"""Additions that take as long as moving one number of an edge, in the order of the edges or in that of a vertex;
by the same measure. The last one is an estimate, which no benchmark has set."""

ATOMIC = 8
"""Additions that take as long as adding one number to memory that others add to: as much as moving one number out of
order (``SCATTERED_ON_GPU``), as the sum is made where the memory is and nothing waits for it (an estimate, which no
benchmark has set)."""

EDGES_OF_A_VERTEX = 3
"""Edges for each vertex, as meshes of triangles have them: what is done at vertices counts for so many. How many there
are is known with the data."""

IN_ROW, FUNCTION_IN_ROW = 48, 100
"""Additions in vectors that take as long as moving one number of an edge, and as evaluating a function, where edges
have rows of numbers, which are computed in vectors (``python -m bench.rows``)."""


@final
@dataclass(frozen=True, slots=True)
class Prices:
    """The cost of a visit to an edge besides its operations, in additions.

    Attributes:
        edge, vertex: to reach one.
        streamed, scattered: to move one of its numbers, in the order of the edges or in that of a vertex.
        function: to evaluate a dear function, besides what is counted for it anywhere.
    """

    edge: int = EDGE
    vertex: int = VERTEX
    streamed: int = STREAMED
    scattered: int = SCATTERED
    function: int = 0


def prices(residual: Residual, *, gpu: bool) -> Prices:
    """The prices of visits to the edges of a residual. Beside rows, edges and vertices are reached once for a row."""
    if gpu:
        return Prices(scattered=SCATTERED_ON_GPU)
    return Prices(0, VERTEX, IN_ROW, IN_ROW, FUNCTION_IN_ROW) if has_rows(residual) else Prices()


def has_rows(residual: Residual) -> bool:
    """Whether the edges of a residual have rows: its unknowns are read at a slot beside its last loop variable."""
    keys = (v.key for v in variables(residual.linearised) if is_unknown(v.key))
    indices = [k.index for k in keys if isinstance(k, Access) and slot_read(k.index) is not None]
    return bool(indices) and all(at[-1].offset_from(residual.domain[-1]) is not None for at in indices)


# -- what is counted ---------------------------------------------------------------------------------------------------


def pays(spent: float, saved: float) -> bool:
    """Whether something that is stored is worth what it takes."""
    return spent <= WORTH * saved


def stored_numbers(roots: Iterable[Expr]) -> float:
    """The numbers of the solver's precision that are read of what is stored at each point."""
    keys = {v.key for v in variables(roots) if isinstance(v.key, Access) and v.key.field.role is Role.STORED}
    return sum(BYTE if k.field.dtype == "bool" else 1 for k in keys)


@final
@dataclass(frozen=True, slots=True)
class Work:
    """All that is done at each point of a grid.

    Attributes:
        operations: what is computed.
        streams: what is brought from memory, each with its size, however many of its neighbours read it.
    """

    operations: frozenset[Expr]
    streams: Mapping[FieldChannel, float]

    @property
    def arithmetic(self) -> int:
        """Its operations, in additions."""
        return count_nodes(self.operations).cost

    @property
    def cost(self) -> float:
        """All of it, in additions."""
        return _cost(self.operations, self.streams.values())


def storing(numbers: int) -> int:
    """The cost of storing numbers at each point, in additions: memory brings what is to be overwritten, too."""
    return 2 * STREAM * numbers


def work(roots: Sequence[Expr], domain: Domain) -> Work:
    """The work of expressions at each point of a grid, where values that are worth storing are read."""
    return Work(frozenset(topological(with_values_read(roots, domain, ()))), streams(roots))


def streams(roots: Sequence[Expr]) -> dict[FieldChannel, float]:
    """All that is read besides the solver's vectors, each with its size in numbers of the solver's precision."""
    keys = (v.key for v in variables(roots))
    read = {(k.field, k.channel) for k in keys if isinstance(k, Access | Plane) and k.field.role is not Role.VECTOR}
    as_bytes = fields_read_in_conditions_only(roots)
    return {x: BYTE if x[0] in as_bytes or x[0].dtype in ("uint8", "bool") else 1.0 for x in read}


def _cost(operations: Iterable[Expr], numbers: Iterable[float]) -> float:
    return count_nodes(operations).cost + STREAM * sum(numbers)


@final
class Needed:
    """The operations and streams of all residuals, by how many need each: what others need, too, is no saving."""

    def __init__(self, works: Iterable[Work], others: Iterable[Expr] = ()) -> None:
        self._operations: Counter[Expr] = Counter()
        self._streams: Counter[FieldChannel] = Counter(streams(list(others)).keys())
        for own in works:
            self._operations.update(own.operations)
            self._streams.update(own.streams.keys())

    def difference(self, before: Sequence[Work], after: Work) -> tuple[float, float]:
        """In additions, what need no longer be done where one work takes the place of others, and what more."""
        done = Counter(e for own in before for e in own.operations)
        read = Counter(x for own in before for x in own.streams)
        sizes = {x: n for own in before for x, n in own.streams.items()}
        alone = [e for e, n in done.items() if self._operations[e] == n and e not in after.operations]
        left = [sizes[x] for x, n in read.items() if self._streams[x] == n and x not in after.streams]
        new = [e for e in after.operations if not self._operations[e]]
        come = [n for x, n in after.streams.items() if not self._streams[x]]
        return _cost(alone, left), _cost(new, come)

    def replace(self, before: Work, after: Work) -> None:
        """One work takes the place of another."""
        self._operations.subtract(before.operations)
        self._operations.update(after.operations)
        self._streams.subtract(before.streams.keys())
        self._streams.update(after.streams.keys())


def gather_cost(source: LinearisedResidual, stores_product: bool, *, gpu: bool) -> int:
    """Of one product with J^T J by gathers, in additions for each edge."""
    domain, each = source.residual.domain, prices(source.residual, gpu=gpu)
    if not stores_product:
        return sum(visit([*_column(source, at), *source.jvps], at, domain, each) for at in _views(source))
    stored, _ = store_product(source)
    first = visit(source.jvps, None, domain, each) + each.streamed * len(source.jvps)
    return first + sum(visit([*_column(stored, at), *stored.jvps], at, domain, each) for at in _views(stored))


def kept_cost(sources: Sequence[LinearisedResidual], *, gpu: bool) -> float:
    """Of one product with J^T J that is kept at edges and vertices, in additions for each edge.

    Args:
        sources: all residuals over one domain whose part of J^T J is kept.
        gpu: whether they run on one.
    """
    kept, each = together(sources), prices(sources[0].residual, gpu=gpu)
    domain = sources[0].residual.domain
    edges = sum(visit([*kept.products(at).values()], at, domain, each) for at in _views(kept.source))
    beside = {(a.field, a.channel, b.field, b.channel) for a, b in kept.beside}
    at_vertex = sum(each.streamed + (2 if x[:2] == x[2:] else 4) for x in beside)
    return edges + at_vertex / EDGES_OF_A_VERTEX


def linearising_cost(sources: Sequence[LinearisedResidual], jacobian: bool, normal: bool, *, gpu: bool) -> float:
    """Of J^T F and what is stored of residuals over one domain, once at each linearisation, in additions for each edge.

    What the edges add to blocks at vertices is summed in the pass that gathers J^T F, which reads the same.

    Args:
        sources: the residuals.
        jacobian, normal: whether J, and J^T J, are stored.
        gpu: whether they run on one.
    """
    domain, each = sources[0].residual.domain, prices(sources[0].residual, gpu=gpu)
    stored = [store_jacobian(s) for s in sources] if jacobian else []
    read = [s for s, _ in stored] or sources
    kept = together(read) if normal else None
    stores = [[x.value for x in own] for _, own in stored] + ([[x.value for x in kept.stores]] if kept else [])
    total = sum(visit(es, None, domain, each) + storing(len(es)) for es in stores)
    for at in _views(read_together(read)):
        gradient = [e for s in read for e in _column(replace(s, jvps=s.values), at)]
        blocks = [e for (a, _), e in kept.beside.items() if a.index == at] if kept else []
        total += visit([*gradient, *blocks], at, domain, each)
    return total


def scatter_cost(source: LinearisedResidual) -> int:
    """Of one product with J^T J by a scatter, in additions for each edge."""
    added, squares = product_of_an_edge(source)
    each = prices(source.residual, gpu=True)
    return visit([*added, *squares], None, source.residual.domain, each) + ATOMIC * len(added)


def _views(source: LinearisedResidual) -> list[MultiIndex]:
    return list(dict.fromkeys(a.index for a in source.accesses))


def _column(source: LinearisedResidual, index: MultiIndex) -> list[Expr]:
    """J's entries at one vertex times J p."""
    return [
        mul(d, t) for p, t in zip(source.partials, source.jvps, strict=True) for a, d in p.items() if a.index == index
    ]


def visit(roots: Sequence[Expr], own: MultiIndex | None, domain: Domain, each: Prices) -> int:
    """The cost of visiting an edge from the vertex that it reads at ``own``, or (None) in the order of the edges.

    What depends on the vertex alone is computed once for all its edges, and costs nothing. Values that are worth
    storing at their points are read there, side by side.

    Args:
        domain: of the edges.
        each: what an edge, a vertex, or a number of theirs takes.
    """
    roots = with_values_read(factor(roots), () if own is not None else domain, domain if own is not None else ())
    reads_at = _indices_read(roots)
    free = {e for e, at in reads_at.items() if own is not None and at <= {own}}
    reads: dict[tuple[Field, MultiIndex], int] = {}
    for v in variables(roots):
        if isinstance(v.key, Access) and v.key.index != own:
            reads[v.key.field, v.key.index] = reads.get((v.key.field, v.key.index), 0) + 1
    edge, number = (0, each.streamed) if own is None else (each.edge, each.scattered)
    functions = sum(e not in free and is_dear(e) for e in reads_at)
    moved = sum(each.vertex if graphs_of(at) else edge + number * n for (_, at), n in reads.items())
    return count(roots, free=free).cost + each.function * functions + moved


def _indices_read(roots: Iterable[Expr]) -> dict[Expr, frozenset[MultiIndex]]:
    """For each node, where it reads."""
    found: dict[Expr, frozenset[MultiIndex]] = {}
    for node in topological(roots):
        own = [node.key.index] if isinstance(node, Var) and isinstance(node.key, Access) else []
        found[node] = frozenset(own).union(*(found[c] for c in node.children))
    return found


def with_values_read(roots: Sequence[Expr], domain: Domain, edges: Domain) -> list[Expr]:
    """The expressions with what is worth storing read at its point.

    Args:
        roots: of a residual.
        domain: of the points at which it may read stored values beside those that edges point at.
        edges: of its edges.
    """
    points = read_points(roots, domain, edges)
    numbers: dict[tuple[ReadPoint, Expr], int] = {}

    def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
        if worth_storing(node, points):
            channel = numbers.setdefault((points[node], node), len(numbers))
            return var(Access(_STORED, points[node].index, channel))
        return node if children == node.children else rebuild(node, children)

    return transform(roots, rule)


_STORED = Field("stored", (), 1, REAL, Role.STORED)
"""Stands for what is stored at vertices."""
