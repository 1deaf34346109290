"""How products with J^T J go over hyper-edges: what is computed again at every vertex, and what once for each edge.

The entries of J may be computed in every product, or once at the linearisation point and stored for each edge
("jacobian"). The tangent J p may be computed anew at each of an edge's vertices, or in a pass over the edges that
stores it, followed by the pass over the vertices that gathers it ("product"). The cheapest of the four, counted in
operations and cache lines, is taken for each residual.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import final

from optpy.energy.derive.gather import MultiIndex
from optpy.energy.derive.linearised import LinearisedResidual, along
from optpy.ir import REAL, Access, Field, Residual, Role, Routine, Store, graphs_in, graphs_of, is_unknown, point
from optpy.symbolic.count import EXPENSIVE, count
from optpy.symbolic.expr import ONE, Call, Expr, Var, add, const, mul, split_content, var
from optpy.symbolic.factor import factor
from optpy.symbolic.order import topological
from optpy.symbolic.traverse import rebuild, transform, variables

VERTEX, EDGE = 8, 24
"""Additions that take as long as reaching one more vertex of an edge, or an edge from a vertex (measured; vertices are
fewer, so they are found in a cache more often)."""

STREAMED, SCATTERED = 4, 8
"""Additions that take as long as moving one number of an edge, in the order of the edges or in that of a vertex."""


@final
@dataclass(frozen=True, slots=True)
class EdgeForm:
    """What is stored for each edge of a residual over a graph."""

    jacobian: bool
    """The residual and the entries of J, at every linearisation."""
    product: bool
    """J p, in every product with J^T J."""


FORMS = tuple(EdgeForm(*choice) for choice in product((False, True), repeat=2))


def over_edges(residual: Residual) -> bool:
    """Whether a residual reads unknowns through a graph."""
    return bool(graphs_in([v for v in variables(residual.linearised) if is_unknown(v.key)]))


def best_form(source: LinearisedResidual) -> EdgeForm:
    """The form whose product with J^T J costs least, the one that stores less where they are equal."""
    stored = store_jacobian(source)[0]
    return min(FORMS, key=lambda form: product_cost(stored if form.jacobian else source, form.product))


# -- what the forms store ----------------------------------------------------------------------------------------------


def store_jacobian(source: LinearisedResidual) -> tuple[LinearisedResidual, list[Store]]:
    """The residual with its value and the entries of J read from memory, and the stores that put them there.

    Entries that are equal up to a number are stored once, those without reads not at all.
    """
    domain = source.residual.domain
    entries = [*source.values, *(d for p in source.partials for d in p.values())]
    kept = list(dict.fromkeys(rest for _, rest in map(split_content, entries) if _reads_memory(rest)))
    name = f"J.{source.residual.label}"
    finite = all(e.finite for e in kept)
    memory = Field(name, tuple(i.dim for i in domain), len(kept), REAL, Role.STORED, finite=finite)
    accesses = {e: Access(memory, point(domain), n) for n, e in enumerate(kept)}

    def stored(e: Expr) -> Expr:
        c, rest = split_content(e)
        return mul(const(c), var(accesses[rest])) if rest in accesses else e

    partials = tuple({a: stored(d) for a, d in p.items()} for p in source.partials)
    tangents = factor(add(*(mul(d, var(along(a, "p"))) for a, d in p.items())) for p in partials)
    values = tuple(map(stored, source.values))
    stores = [Store(accesses[e], value) for e, value in zip(kept, factor(kept), strict=True)]
    return replace(source, values=values, partials=partials, tangents=tuple(tangents)), stores


def _reads_memory(e: Expr) -> bool:
    return e is not ONE and any(isinstance(v.key, Access) for v in variables([e]))


def store_product(source: LinearisedResidual) -> tuple[LinearisedResidual, list[Store]]:
    """The residual with J p read from memory, and the stores that put it there."""
    domain = source.residual.domain
    dims = tuple(i.dim for i in domain)
    memory = Field(f"Jp.{source.residual.label}", dims, len(source.tangents), REAL, Role.VECTOR)
    targets = [Access(memory, point(domain), n) for n in range(len(source.tangents))]
    stores = [Store(t, e) for t, e in zip(targets, factor(source.tangents), strict=True)]
    return replace(source, tangents=tuple(map(var, targets))), stores


def passes(name: str, stores: Iterable[tuple[Residual, Sequence[Store]]], prepares: bool) -> list[Routine]:
    """The stores of several residuals as routines: one for each domain."""
    by_domain: dict[tuple[object, ...], tuple[Residual, list[Store]]] = {}
    for residual, own in stores:
        by_domain.setdefault(residual.domain, (residual, []))[1].extend(own)
    return [
        Routine(f"{name}_{n}", residual.domain, tuple(group), prepares=prepares)
        for n, (residual, group) in enumerate(by_domain.values())
        if group
    ]


# -- what the forms cost -----------------------------------------------------------------------------------------------


def product_cost(source: LinearisedResidual, stores_product: bool) -> int:
    """Of one product with J^T J by gathers, in additions for each edge."""
    if not stores_product:
        return sum(visit([*_column(source, index), *source.tangents], index) for index in _views(source))
    stored, _ = store_product(source)
    first = visit(source.tangents, None) + STREAMED * len(source.tangents)
    return first + sum(visit([*_column(stored, index), *stored.tangents], index) for index in _views(stored))


def _views(source: LinearisedResidual) -> list[MultiIndex]:
    return list(dict.fromkeys(a.index for a in source.accesses))


def _column(source: LinearisedResidual, index: MultiIndex) -> list[Expr]:
    """J's entries at one vertex times the tangents."""
    return [
        mul(d, t)
        for p, t in zip(source.partials, source.tangents, strict=True)
        for a, d in p.items()
        if a.index == index
    ]


def visit(roots: Sequence[Expr], own: MultiIndex | None) -> int:
    """What it costs to visit an edge from the vertex that it reads at ``own``, or (None) in the order of the edges.

    What depends on the vertex alone is computed once for all its edges, and costs nothing.
    """
    roots = _stored_functions(factor(roots))
    places = _places(roots)
    total = count(roots, free={e for e, at in places.items() if own is not None and all(a.index == own for a in at)})
    reads: dict[tuple[Field, MultiIndex], int] = {}
    for v in variables(roots):
        if isinstance(v.key, Access) and v.key.index != own:
            reads[v.key.field, v.key.index] = reads.get((v.key.field, v.key.index), 0) + 1
    return total.cost + sum(_read(index, n, own is None) for (_, index), n in reads.items())


def _read(index: MultiIndex, numbers: int, in_order: bool) -> int:
    if graphs_of(index):
        return VERTEX
    return STREAMED * numbers if in_order else EDGE + SCATTERED * numbers


def _places(roots: Iterable[Expr]) -> dict[Expr, frozenset[Access]]:
    """For each node, where it reads: as accesses to a field that stands for all."""
    places: dict[Expr, frozenset[Access]] = {}
    for node in topological(roots):
        own = [Access(_STORED, node.key.index, 0)] if isinstance(node, Var) and isinstance(node.key, Access) else []
        places[node] = frozenset(own).union(*(places[c] for c in node.children))
    return places


def _stored_functions(roots: Sequence[Expr]) -> list[Expr]:
    """Expensive functions of one vertex cost one read: they are stored there, side by side (``kernels.schedule``)."""
    places = _places(roots)
    numbers: dict[Expr, int] = {}

    def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
        if isinstance(node, Call) and node.op.cost >= EXPENSIVE and len(places[node]) == 1:
            (place,) = places[node]
            return var(replace(place, channel=numbers.setdefault(node, len(numbers))))
        return node if children == node.children else rebuild(node, children)

    return transform(roots, rule)


_STORED = Field("stored", (), 1, REAL, Role.STORED)
"""Stands for what is stored at vertices."""
