"""J^T J itself in memory, over the edges of graphs: for each edge the entries that couple what its slots read.

What a residual adds to J^T J is the products of its entries of J, two by two. Those of elements at constant distances
are added up at each vertex (``normal_stencil``). Those of two slots are kept at the edge, added up over the residuals
there: a product reads, at each vertex, the blocks of the edges there and p at their other ends, and no residual.

Where the entries of a row cancel over the slots, as those of ``X[a] - X[b]`` do, the row is

    sum over the other slots t of B_st (p_t - p_s),

which needs no diagonal, and loses no digits where p is smooth.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from optpy.energy.derive.gather import SummandContribution, moving_part
from optpy.energy.derive.linearised import LinearisedResidual, along
from optpy.energy.derive.materialised import in_memory, passes
from optpy.energy.derive.vectors import AP, P
from optpy.energy.derive.views import View
from optpy.ir import Access, Assignment, Domain, Group, Role, Routine, Scalar
from optpy.symbolic.expr import ZERO, Expr, Product, Var, add, mul, negate, split_content, var
from optpy.symbolic.traverse import variables

MOST_ACCESSES: Final = 64
"""Numbers of unknowns that a residual over edges reads at most: each pair of them is a product, with code of its own.
By reasoning: as for a stencil (``normal_stencil``), where they are elements."""

Pair = tuple[Access, Access]
"""An entry of J^T J as a residual has it: what its row's element, and its column's, is read as."""


def edges_obstacle(source: LinearisedResidual) -> str | None:
    """The reason why what a residual adds to J^T J cannot be kept at its edges; None: it can."""
    if not source.accesses:
        return "it reads no unknown"
    if any(a.field.role is Role.STORED for a in source.accesses):
        return "it reads an op.sum of unknowns, which couples all that is summed"
    most = max(len(p) for p in source.partials)
    return f"it reads {most} numbers of unknowns, and the most is {MOST_ACCESSES}" if most > MOST_ACCESSES else None


def at_constant_distance(a: Access, b: Access) -> bool:
    """Whether two elements are as far from one another everywhere."""
    return a.field.dims == b.field.dims and moving_part(a.index) == moving_part(b.index)


@final
@dataclass(frozen=True, slots=True)
class NormalEdges:
    """The entries of J^T J that couple the slots of edges, over one domain.

    Attributes:
        source: what the residuals read together, and where: to be seen from the elements that it reads.
        entries: each in memory, both halves.
        implied: entries of one slot that follow from the others of their row, as those cancel: they are kept nowhere.
        beside: the other entries that each edge adds to a stencil, one half.
        stores: what puts the entries into memory.
    """

    source: LinearisedResidual
    entries: Mapping[Pair, Expr]
    implied: Collection[Pair]
    beside: Mapping[Pair, Expr]
    stores: Sequence[Assignment]

    @property
    def summand(self) -> tuple[LinearisedResidual, SummandContribution]:
        """Its part of J^T J p, to be gathered by the keys of ``TIMES_JVP``."""
        return self.source, self._seen

    def _seen(self, view: View) -> dict[Hashable, Expr]:
        found = {(AP, a.field, a.channel): e for a, e in self.products(view.index).items()}
        return dict(zip(found, view.seen(found.values()), strict=True))

    def products(self, index: object) -> dict[Access, Expr]:
        """The numbers that an edge adds to J^T J p at the element that it reads at an index, by channel."""
        rows: dict[Access, list[Expr]] = {}
        for (row, column), e in self.entries.items():
            if row.index == index:
                rows.setdefault(row, []).append(mul(e, self._p(row, column)))
        return {row: add(*parts) for row, parts in rows.items()}

    def _p(self, row: Access, column: Access) -> Expr:
        here = replace(column, index=row.index)
        there = var(along(column, P))
        return add(there, negate(var(along(here, P)))) if (row, here) in self.implied else there


def normal_edges(sources: Sequence[LinearisedResidual]) -> list[NormalEdges]:
    """The entries of residuals without an ``edges_obstacle`` that are no stencil, for each domain.

    An entry that reads nothing but numbers is not stored.
    """
    by_domain: dict[Domain, list[LinearisedResidual]] = {}
    for source in sources:
        by_domain.setdefault(source.residual.domain, []).append(source)
    return [*map(together, by_domain.values())]


def stores_of_edges(found: Iterable[NormalEdges]) -> list[Routine]:
    """The routines that put entries into memory, at each linearisation."""
    return passes(f"{Group.JACOBIAN}_edges", [(x.source.residual, x.stores) for x in found], prepares=True)


def together(sources: Sequence[LinearisedResidual]) -> NormalEdges:
    """The entries of all residuals over one domain."""
    domain, whole = sources[0].residual.domain, _products(sources)
    apart = {pair: e for pair, e in whole.items() if not at_constant_distance(*pair)}
    name = f"JTJ.edges.{'.'.join(str(i.dim) for i in domain)}"
    read, stores = in_memory(name, domain, (e for e in apart.values() if not _is_there(e)))
    source = read_together(sources)
    implied = _implied(whole, source.accesses)
    place = {a: n for n, a in enumerate(source.accesses)}
    left = [(a, b) for a, b in whole if (a, b) not in apart and (a, b) not in implied]
    beside = {(a, b): whole[a, b] for a, b in left if place[a] <= place[b]}
    return NormalEdges(source, {pair: read(e) for pair, e in apart.items()}, implied, beside, stores)


def read_together(sources: Sequence[LinearisedResidual]) -> LinearisedResidual:
    """A residual without values that reads what all residuals over one domain read."""
    accesses = dict.fromkeys(a for s in sources for a in s.accesses)
    return replace(sources[0], partials=(dict.fromkeys(accesses, ZERO),), values=(), jvps=())


def _is_there(e: Expr) -> bool:
    """Whether an entry is numbers of the energy times one that is kept at the edge already."""
    factors = [v.key for v in variables([e])]
    stored = [k for k in factors if isinstance(k, Access) and k.field.role is Role.STORED]
    flat = split_content(e)[1]
    plain = isinstance(flat, Var) or (isinstance(flat, Product) and all(isinstance(b, Var) for b in flat.children))
    return plain and len(stored) == 1 and all(isinstance(k, Scalar) for k in factors if k not in stored)


def _products(sources: Iterable[LinearisedResidual]) -> dict[Pair, Expr]:
    """All entries, both halves, without zeros."""
    parts: dict[Pair, list[Expr]] = {}
    for partials in (p for s in sources for p in s.partials):
        for a, d in partials.items():
            for b, e in partials.items():
                parts.setdefault((a, b), []).append(mul(d, e))
    summed = {pair: add(*es) for pair, es in parts.items()}
    return {pair: e for pair, e in summed.items() if e is not ZERO}


def _implied(whole: Mapping[Pair, Expr], accesses: Sequence[Access]) -> frozenset[Pair]:
    """The entries of one slot whose row, and column, cancel over all slots, none of which is at a constant distance."""

    def cancels(row: Access, column: Access) -> bool:
        same = [a for a in accesses if (a.field, a.channel) == (column.field, column.channel)]
        others = [a for a in same if a != column]
        if not others or any(at_constant_distance(row, a) for a in others):
            return False
        return add(*(whole.get((row, a), ZERO) for a in same)) is ZERO

    beside = [pair for pair in whole if pair[0].index == pair[1].index]
    return frozenset((a, b) for a, b in beside if cancels(a, b) and cancels(b, a))
