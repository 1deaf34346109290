"""What is computed once for each linearisation and stored, instead of again in every product with J^T J.

Stored are functions that cost much (``sin(Angle[i, j])``) and conditions on wide data (``Constraints[i, j] >= 0``)
that depend on one point only: one evaluation instead of one for each neighbour, one byte instead of eight. Outside
the grid, where a stored field reads as 0, the expression's own value there is put in its place: no value changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import final

from optpy.ir import (
    REAL,
    Access,
    Dim,
    Domain,
    Field,
    InBounds,
    Index,
    Role,
    Routine,
    Scalar,
    Store,
    canonical_domain,
    point,
)
from optpy.kernels.codegen.rewrite import map_routine
from optpy.kernels.codegen.tables import incidences
from optpy.symbolic.affine import Affine, Entry
from optpy.symbolic.count import EXPENSIVE
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
from optpy.symbolic.traverse import map_variables, rebuild, transform, variables


@final
@dataclass(frozen=True, slots=True)
class Place:
    """The one point that an expression depends on: the index at which it reads fields on a grid."""

    dims: tuple[Dim, ...]
    index: tuple[Affine, ...]

    @property
    def inside(self) -> Expr:
        """1 where the point is in the grid: what graphs point at, and loop variables, always are."""
        return mul(*(var(InBounds(a, d)) for a, d in zip(self.index, self.dims, strict=True) if a.constant))


ANYWHERE = Place((), ())


@final
@dataclass(slots=True)
class Storage:
    """The stored fields chosen so far, with the expression that each one holds at its own point."""

    fields: dict[Expr, Field] = field(default_factory=dict)
    _home: dict[Place, dict[Expr, Expr]] = field(default_factory=dict)
    """What has been moved from each place: expressions share most of their nodes."""
    _outside: dict[Expr, Expr] = field(default_factory=dict)

    def access(self, e: Expr, place: Place) -> Expr:
        """The stored value of e, in e's own coordinates."""
        index = point(canonical_domain(place.dims))
        home = _moved(e, index, self._home.setdefault(place, {})) if place.index != index else e
        stored = self.fields.get(home)
        if stored is None:
            dtype = "bool" if e.boolean else REAL
            stored = Field(f"stored.{len(self.fields)}", place.dims, 1, dtype, Role.STORED, finite=e.finite)
            self.fields[home] = stored
        value = var(Access(stored, place.index, 0))
        inside = place.inside
        if inside is ONE:
            return value
        outside = _where_all_is_zero(e, self._outside)
        if outside is ZERO:
            return value
        if e.boolean:
            return logical_or(value, logical_and(logical_not(inside), outside))
        return add(value, mul(logical_not(inside), outside))

    def side_by_side(self, grids: Collection[tuple[Dim, ...]]) -> dict[Field, Access]:
        """What is stored on each of these grids as the channels of one field: where each stored field goes."""
        groups: dict[tuple[Dim, ...], list[Field]] = {}
        for f in self.fields.values():
            if f.dims in grids and f.dtype == REAL:
                groups.setdefault(f.dims, []).append(f)
        moved: dict[Field, Access] = {}
        for dims, group in groups.items():
            finite = all(f.finite for f in group)
            packed = Field(group[0].name, dims, len(group), REAL, Role.STORED, finite=finite)
            moved |= {f: Access(packed, point(canonical_domain(dims)), n) for n, f in enumerate(group)}
        return moved

    def routines(self) -> list[Routine]:
        """The routines that compute the stored fields: one for each grid."""
        groups: dict[tuple[Dim, ...], list[Store]] = {}
        for e, f in self.fields.items():
            groups.setdefault(f.dims, []).append(Store(Access(f, point(canonical_domain(f.dims)), 0), e))
        return [
            Routine(f"precompute_{n}", canonical_domain(dims), tuple(stores))
            for n, (dims, stores) in enumerate(groups.items())
        ]


def _moved(e: Expr, index: tuple[Affine, ...], done: dict[Expr, Expr]) -> Expr:
    """The expression with all that it reads read at another index."""

    def move(v: Var) -> Expr:
        return var(Access(v.key.field, index, v.key.channel)) if isinstance(v.key, Access) else v

    return map_variables([e], move, done)[0]


def _where_all_is_zero(e: Expr, done: dict[Expr, Expr]) -> Expr:
    """The value of e where every array it reads is outside, and so 0."""
    return map_variables([e], lambda v: ZERO if isinstance(v.key, Access) else v, done)[0]


def store_intermediates(routines: Sequence[Routine], storage: Storage) -> list[Routine]:
    """The routines reading stored fields in place of what is worth storing."""
    return [map_routine(r, partial(_stored, routine=r, storage=storage)) for r in routines]


def move_fields(routine: Routine, moved: Mapping[Field, Access]) -> Routine:
    """The routine with whole fields of one channel read, stored and added to as channels of others."""
    return map_accesses(routine, lambda a: replace(moved[a.field], index=a.index) if a.field in moved else a)


def map_accesses(routine: Routine, place: Callable[[Access], Access]) -> Routine:
    """The routine with what is read, stored and added to elsewhere."""

    def leaf(v: Var) -> Expr:
        return var(place(v.key)) if isinstance(v.key, Access) else v

    new = map_routine(routine, lambda roots: map_variables(roots, leaf))
    return replace(
        new,
        stores=tuple(replace(s, target=place(s.target)) for s in new.stores),
        accumulates=tuple(replace(x, target=place(x.target)) for x in new.accumulates),
    )


def _stored(roots: list[Expr], routine: Routine, storage: Storage) -> list[Expr]:
    places = _places(roots, routine)
    wide = _fields_read_in_conditions_only(roots)

    stored = {e for e in topological(roots) if _worth_storing(e, places)}
    read = set(topological(roots, leaves=stored))

    def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
        if node not in read:  # only what is stored is made of it
            return node
        if node in stored:
            return storage.access(node, places[node])
        if isinstance(node, Product):
            return _store_conditions(node, children, places, wide, storage)
        return node if children == node.children else rebuild(node, children)

    return transform(roots, rule)


def _worth_storing(e: Expr, places: dict[Expr, Place]) -> bool:
    if not isinstance(e, Call) or e.boolean or e.op.cost < EXPENSIVE:
        return False
    return places.get(e, ANYWHERE) is not ANYWHERE


def _places(roots: Iterable[Expr], routine: Routine) -> dict[Expr, Place]:
    """For each node that depends on a single point, that point; ``ANYWHERE`` for run-time scalars alone."""
    edges = set(incidences(routine))
    places: dict[Expr, Place] = {}
    for node in topological(roots):
        if isinstance(node, Var):
            place = _leaf_place(node.key, routine.domain, edges)
            if place is not None:
                places[node] = place
            continue
        found = {places.get(c) for c in node.children} - {ANYWHERE}
        if None not in found and len(found) <= 1:
            place = found.pop() if found else ANYWHERE
            assert place is not None
            places[node] = place
    return places


def _leaf_place(key: object, domain: Domain, edges: Collection[Index]) -> Place | None:
    if isinstance(key, Scalar):
        return ANYWHERE
    if not isinstance(key, Access) or key.field.role is Role.VECTOR or not key.field.dims:
        return None
    place = Place(key.field.dims, key.index)
    if all(len(a.atoms) == 1 and a.offset_from(a.atoms[0]) == 0 for a in key.index) and all(
        isinstance(a.atoms[0], Entry) or a.atoms[0] in edges for a in key.index
    ):
        return place
    own = canonical_domain(key.field.dims)
    if own != domain:
        return None
    return place if all(a.offset_from(i) is not None for a, i in zip(key.index, own, strict=True)) else None


def _fields_read_in_conditions_only(roots: Iterable[Expr]) -> set[Field]:
    """Fields wider than a byte whose values are needed in comparisons only."""
    numeric: set[Field] = set()
    all_fields: set[Field] = set()
    for node in topological(roots):
        if isinstance(node, Var) and isinstance(node.key, Access):
            all_fields.add(node.key.field)
        if not node.boolean:
            numeric |= {c.key.field for c in node.children if isinstance(c, Var) and isinstance(c.key, Access)}
    numeric |= {r.key.field for r in roots if isinstance(r, Var) and isinstance(r.key, Access)}
    return {f for f in all_fields - numeric if f.dtype not in ("uint8", "bool")}


def _store_conditions(
    node: Product, children: tuple[Expr, ...], places: dict[Expr, Place], wide: set[Field], storage: Storage
) -> Expr:
    """The product with the conditions that read wide data at one point replaced by one stored boolean."""
    groups: dict[Place, list[Expr]] = {}
    for b, exponent in node.factors:
        if b.boolean and exponent == 1 and places.get(b, ANYWHERE) is not ANYWHERE:
            groups.setdefault(places[b], []).append(b)
    replaced: dict[Expr, Expr] = {}
    for place, group in groups.items():
        if {v.key.field for v in variables(group) if isinstance(v.key, Access)} & wide:
            replaced |= dict.fromkeys(group, ONE) | {group[0]: storage.access(mul(*group), place)}
    if not replaced and children == node.children:
        return node
    return mul(*(replaced.get(b, power(child, x)) for (b, x), child in zip(node.factors, children, strict=True)))
