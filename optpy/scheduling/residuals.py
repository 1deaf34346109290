"""Products with J^T J over hyper-edges: whether J and J p are stored for each edge, whether edges gather or scatter.

Each way is counted in operations and cache lines, as additions for each edge, and the cheapest is taken for each
residual. How many edges meet at a vertex is not known before there is data, and is left out: many make a gather wait
for its longest loop, and the additions of a scatter wait for one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.materialised import store_jacobian, store_product
from optpy.energy.derive.scatter import product_of_an_edge
from optpy.energy.derive.views import MultiIndex
from optpy.ir import REAL, Access, Domain, Field, ResidualSchedule, Role, graphs_of
from optpy.kernels.codegen.store import ReadPoint, read_points
from optpy.scheduling.values import worth_storing
from optpy.symbolic.count import count
from optpy.symbolic.expr import Expr, Var, mul, var
from optpy.symbolic.factor import factor
from optpy.symbolic.order import topological
from optpy.symbolic.traverse import rebuild, transform, variables

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


def gathers(label: str) -> list[ResidualSchedule]:
    """The schedules of a residual by which each vertex gathers over its edges; those that store less come first."""
    return [ResidualSchedule(label, jacobian, jp) for jacobian, jp in product((False, True), repeat=2)]


def scatters(label: str) -> list[ResidualSchedule]:
    """The schedules of a residual by which each edge adds to its vertices; the one that stores less comes first."""
    return [ResidualSchedule(label, jacobian, scatter=True) for jacobian in (False, True)]


def stencils(label: str) -> list[ResidualSchedule]:
    """The schedules of a residual by which its part of J^T J is stored; the one that stores less comes first."""
    return [ResidualSchedule(label, jacobian, normal=True) for jacobian in (False, True)]


def costs(
    source: LinearisedResidual, ways: Iterable[ResidualSchedule], *, gpu: bool = False
) -> dict[ResidualSchedule, int]:
    """Of one product with J^T J in each way, in additions for each edge."""
    stored = store_jacobian(source)[0]
    found = {}
    for way in ways:
        read = stored if way.jacobian else source
        found[way] = scatter_cost(read) if way.scatter else gather_cost(read, way.product, gpu=gpu)
    return found


def cheapest(source: LinearisedResidual, ways: Iterable[ResidualSchedule], *, gpu: bool = False) -> ResidualSchedule:
    """The way whose product with J^T J costs least; of two that cost the same the earlier one."""
    found = costs(source, ways, gpu=gpu)
    best = min(found, key=found.__getitem__)
    return replace(best, reason=_reason(best, found))


def _reason(best: ResidualSchedule, costs: Mapping[ResidualSchedule, int]) -> str:
    others = [f"{str(way).partition(': ')[2]}: {cost}" for way, cost in costs.items() if way != best]
    return f"a product with J^T J costs {costs[best]} additions for each edge; {'; '.join(others)}"


# -- what a product costs ----------------------------------------------------------------------------------------------


def gather_cost(source: LinearisedResidual, stores_product: bool, *, gpu: bool) -> int:
    """Of one product with J^T J by gathers, in additions for each edge."""
    domain, number = source.residual.domain, SCATTERED_ON_GPU if gpu else SCATTERED
    if not stores_product:
        return sum(visit([*_column(source, at), *source.jvps], at, domain, number) for at in _views(source))
    stored, _ = store_product(source)
    first = visit(source.jvps, None, domain, STREAMED) + STREAMED * len(source.jvps)
    return first + sum(visit([*_column(stored, at), *stored.jvps], at, domain, number) for at in _views(stored))


def scatter_cost(source: LinearisedResidual) -> int:
    """Of one product with J^T J by a scatter, in additions for each edge."""
    added, squares = product_of_an_edge(source)
    return visit([*added, *squares], None, source.residual.domain, STREAMED) + ATOMIC * len(added)


def _views(source: LinearisedResidual) -> list[MultiIndex]:
    return list(dict.fromkeys(a.index for a in source.accesses))


def _column(source: LinearisedResidual, index: MultiIndex) -> list[Expr]:
    """J's entries at one vertex times J p."""
    return [
        mul(d, t) for p, t in zip(source.partials, source.jvps, strict=True) for a, d in p.items() if a.index == index
    ]


def visit(roots: Sequence[Expr], own: MultiIndex | None, domain: Domain, number: int) -> int:
    """The cost of visiting an edge from the vertex that it reads at ``own``, or (None) in the order of the edges.

    What depends on the vertex alone is computed once for all its edges, and costs nothing. Values that are worth
    storing at their points are read there, side by side.

    Args:
        domain: of the edges.
        number: of additions that take as long as reading one number of an edge in this order.
    """
    roots = with_values_read(factor(roots), () if own is not None else domain, domain if own is not None else ())
    reads_at = _indices_read(roots)
    free = {e for e, at in reads_at.items() if own is not None and at <= {own}}
    total = count(roots, free=free)
    reads: dict[tuple[Field, MultiIndex], int] = {}
    for v in variables(roots):
        if isinstance(v.key, Access) and v.key.index != own:
            reads[v.key.field, v.key.index] = reads.get((v.key.field, v.key.index), 0) + 1
    edge = 0 if own is None else EDGE
    return total.cost + sum(VERTEX if graphs_of(at) else edge + number * n for (_, at), n in reads.items())


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
