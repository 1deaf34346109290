"""Routines with stored values read in place of computed ones, and the routines that compute what is stored.

Outside the grid, where a stored field reads as 0, the expression's own value there is put in its place: no value
changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from optpy.ir import (
    Access,
    Assignment,
    Domain,
    Extent,
    Group,
    InBounds,
    LoopVariable,
    Role,
    Routine,
    Scalar,
    StoredValue,
    canonical_domain,
    point,
)
from optpy.kernels.codegen.rewrite import map_routine
from optpy.kernels.codegen.tables import incidences
from optpy.symbolic.affine import Affine, TableEntry
from optpy.symbolic.expr import (
    ONE,
    ZERO,
    Call,
    Expr,
    Product,
    Var,
    add,
    logical_and,
    logical_not,
    logical_or,
    mul,
    power,
    var,
)
from optpy.symbolic.order import topological
from optpy.symbolic.traverse import map_variables, rebuild, transform

# -- where an expression reads -----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class ReadPoint:
    """The one point that an expression depends on: the index at which it reads fields on a grid."""

    dims: tuple[Extent, ...]
    index: tuple[Affine, ...]

    @property
    def centre(self) -> tuple[Affine, ...]:
        """The index of the grid's own point."""
        return point(canonical_domain(self.dims))

    @property
    def inside(self) -> Expr:
        """1 where the point is in the grid: what graphs point at, and loop variables, always are."""
        return mul(*(var(InBounds(a, d)) for a, d in zip(self.index, self.dims, strict=True) if a.constant))


_ANYWHERE = ReadPoint((), ())


def read_points(roots: Iterable[Expr], domain: Domain, edges: Collection[LoopVariable]) -> dict[Expr, ReadPoint]:
    """For each node that reads fields at a single point and nowhere else, that point.

    Args:
        roots: expressions of a routine.
        domain: of the routine.
        edges: the variables of its loops over edges.
    """
    points: dict[Expr, ReadPoint] = {}
    for node in topological(roots):
        if isinstance(node, Var):
            at = _leaf_point(node.key, domain, edges)
            if at is not None:
                points[node] = at
            continue
        found = {points.get(c) for c in node.children} - {_ANYWHERE}
        if None not in found and len(found) <= 1:
            at = found.pop() if found else _ANYWHERE
            assert at is not None
            points[node] = at
    return {node: at for node, at in points.items() if at is not _ANYWHERE}


def _leaf_point(key: object, domain: Domain, edges: Collection[LoopVariable]) -> ReadPoint | None:
    if isinstance(key, Scalar):
        return _ANYWHERE
    if not isinstance(key, Access) or key.field.role is Role.VECTOR or not key.field.dims:
        return None
    at = ReadPoint(key.field.dims, key.index)
    if all(len(a.atoms) == 1 and a.offset_from(a.atoms[0]) == 0 for a in key.index) and all(
        isinstance(a.atoms[0], TableEntry) or a.atoms[0] in edges for a in key.index
    ):
        return at
    own = canonical_domain(key.field.dims)
    if own != domain:
        return None
    return at if all(a.offset_from(i) is not None for a, i in zip(key.index, own, strict=True)) else None


def conditions_at(node: Product, points: dict[Expr, ReadPoint]) -> dict[ReadPoint, list[Expr]]:
    """The conditions among the factors of a product, by the point that they read."""
    groups: dict[ReadPoint, list[Expr]] = {}
    for b, exponent in node.factors:
        if b.boolean and exponent == 1 and b in points:
            groups.setdefault(points[b], []).append(b)
    return groups


@final
@dataclass(slots=True)
class Centred:
    """Expressions moved from the points that they read to the own points of their grids, where those meet that differ
    by the point alone. What has been moved is kept: expressions share most of their nodes."""

    _moved: dict[ReadPoint, dict[Expr, Expr]] = field(default_factory=dict)

    def of(self, e: Expr, at: ReadPoint) -> Expr:
        """The expression with all that it reads read at the own point."""
        centre = at.centre
        if at.index == centre:
            return e

        def move(v: Var) -> Expr:
            return var(Access(v.key.field, centre, v.key.channel)) if isinstance(v.key, Access) else v

        return map_variables([e], move, self._moved.setdefault(at, {}))[0]


# -- reading what is stored --------------------------------------------------------------------------------------------


def store_values(
    groups: Mapping[Group, Sequence[Routine]], values: Sequence[StoredValue]
) -> dict[Group, list[Routine]]:
    """The groups of routines, in which the readers of stored values read them in place of computing them.

    ``Group.PRECOMPUTE`` computes what is stored, if there is anything.
    """
    by_reader: dict[str, list[StoredValue]] = {}
    for value in values:
        for reader in value.readers:
            by_reader.setdefault(reader, []).append(value)
    centred = Centred()
    stored = {
        name: [_Rewriter(r, by_reader[r.name], centred).routine() if r.name in by_reader else r for r in routines]
        for name, routines in groups.items()
    }
    return stored | ({Group.PRECOMPUTE: _precompute(values)} if values else {})


def _precompute(values: Iterable[StoredValue]) -> list[Routine]:
    """The routines that compute the stored values: one for each grid."""
    groups: dict[tuple[Extent, ...], list[Assignment]] = {}
    for v in values:
        groups.setdefault(v.memory.field.dims, []).append(Assignment(v.memory, v.value))
    return [
        Routine(f"{Group.PRECOMPUTE}_{n}", canonical_domain(dims), tuple(stores))
        for n, (dims, stores) in enumerate(groups.items())
    ]


@final
class _Rewriter:
    """Rewrites one routine."""

    def __init__(self, routine: Routine, values: Sequence[StoredValue], centred: Centred) -> None:
        self._routine = routine
        self._memory = {v.value: v.memory for v in values}
        self._operations = {_operation(v.value) for v in values if not v.value.boolean}
        self._centred = centred
        self._points = read_points(routine.roots, routine.domain, set(incidences(routine)))
        self._outside: dict[Expr, Expr] = {}

    def routine(self) -> Routine:
        return map_routine(self._routine, self._rewrite)

    def _rewrite(self, roots: list[Expr]) -> list[Expr]:
        stored = {e for e in topological(roots) if self._is_stored(e)}
        read = set(topological(roots, leaves=stored))

        def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
            if node not in read:  # only what is stored is made of it
                return node
            if node in stored:
                return self._value(node, self._points[node])
            if isinstance(node, Product):
                return self._product(node, children)
            return node if children == node.children else rebuild(node, children)

        return transform(roots, rule)

    def _is_stored(self, e: Expr) -> bool:
        if e.boolean or _operation(e) not in self._operations or e not in self._points:
            return False
        return self._centred.of(e, self._points[e]) in self._memory

    def _value(self, e: Expr, at: ReadPoint) -> Expr:
        """The stored value of e, in e's own coordinates."""
        memory = self._memory[self._centred.of(e, at)]
        value, inside = var(replace(memory, index=at.index)), at.inside
        if inside is ONE:
            return value
        outside = _where_all_is_zero(e, self._outside)
        if outside is ZERO:
            return value
        if e.boolean:
            return logical_or(value, logical_and(logical_not(inside), outside))
        return add(value, mul(logical_not(inside), outside))

    def _product(self, node: Product, children: tuple[Expr, ...]) -> Expr:
        """The product with the conditions at one point replaced by the boolean that is stored there."""
        replaced: dict[Expr, Expr] = {}
        for at, group in conditions_at(node, self._points).items():
            together = mul(*group)
            if self._centred.of(together, at) in self._memory:
                replaced |= dict.fromkeys(group, ONE) | {group[0]: self._value(together, at)}
        if not replaced and children == node.children:
            return node
        return mul(*(replaced.get(b, power(child, x)) for (b, x), child in zip(node.factors, children, strict=True)))


def _operation(e: Expr) -> object:
    """A cheap summary that tells apart most expressions that are not stored."""
    return e.op if isinstance(e, Call) else type(e)


def _where_all_is_zero(e: Expr, done: dict[Expr, Expr]) -> Expr:
    """The value of e where every array it reads is outside, and so 0."""
    return map_variables([e], lambda v: ZERO if isinstance(v.key, Access) else v, done)[0]
