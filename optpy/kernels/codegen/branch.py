"""Work under conditions in parts of its own, which are left out where no condition of theirs holds.

A condition selects: a product with one that fails is 0, whatever else is in it. So the terms of a sum that a condition
is in stand together, in a part, which is a number that nobody has to compute where the condition fails. Conditions
that differ by the point alone, as those of the residuals around a pixel, are taken as one: they hold side by side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from optpy.ir import Access, LocalName, LocalSum, Role, Routine
from optpy.kernels.codegen.dialect import ONE_BY_ONE
from optpy.kernels.codegen.rewrite import map_routine
from optpy.kernels.codegen.store import Centred, read_points
from optpy.symbolic.booleans import literals
from optpy.symbolic.count import count, count_nodes
from optpy.symbolic.expr import Call, Expr, Product, Sum, linear, logical_and, logical_or, var
from optpy.symbolic.order import topological
from optpy.symbolic.traverse import rebuild, transform, variables

LEAST: Final = 60
"""Additions that conditions must save at a point: a branch takes about as long."""
_SMALLEST: Final = 4
"""Additions of a part at least: handing it on takes a store and a load."""
_EXTRA: Final = 4
"""Additions that are saved for each that is spent, on the conditions and on what a part and the rest compute twice."""
_TRIED: Final = 16
"""Conditions that are tried, those that guard most: each takes a walk over all that a routine computes."""
_LARGEST: Final = 10**9
"""Additions that are counted: repeated squares would be more than fit into a word."""


@final
@dataclass(frozen=True, slots=True)
class ConditionalPart:
    """Numbers that a routine computes under a condition.

    Attributes:
        condition: at the point's own.
        saved: additions that are left out where it fails.
        values: that are computed.
        handed_on: how many of them something else is made of: the others are stored as they are.
    """

    condition: Expr
    saved: int
    values: tuple[Expr, ...]
    handed_on: int


def conditional_parts(routine: Routine) -> list[ConditionalPart]:
    """The parts that conditions of a routine save much by, if they fail."""
    return [part for part, _ in _split(routine)]


def branch_conditions(routine: Routine) -> Routine:
    """The routine with these parts as local sums over no loops."""
    return list(_split(routine))[-1][1]


def computes_one_by_one(values: Iterable[Expr]) -> bool:
    """Whether a loop over points on a CPU cannot compute these for several of them side by side."""
    return any(isinstance(node, Call) and node.op.name in ONE_BY_ONE for node in topological(values))


def has_parts(routine: Routine) -> bool:
    """Whether there are such sums."""
    return any(not x.loops for x in routine.locals)


def _split(routine: Routine) -> Iterator[tuple[ConditionalPart, Routine]]:
    """The parts, one after the other, each with the routine from which it and those before are split off."""
    left = _guarding_most(routine.roots, data_conditions(routine))
    while left:
        tried = {c: _Parts(routine, own, len(routine.locals)) for c, own in left.items() if _is_dear(routine, own)}
        if not tried:
            return
        best = max(tried, key=lambda c: tried[c].saved)
        parts = tried[best]
        if not parts.pays:
            return
        both = {c: own for c, own in left.items() if c is best or parts.vanish_without(own)}
        routine = parts.routine(both.values())
        yield ConditionalPart(best, parts.saved, parts.values, parts.handed_on), routine
        left = {c: left[c] for c, x in tried.items() if c not in both and x.saved >= LEAST}


def _guarding_most(roots: Sequence[Expr], conditions: dict[Expr, set[Expr]]) -> dict[Expr, set[Expr]]:
    """The conditions that are tried, by the operations of the products that they select, what is shared counted at each
    use: that takes one walk for all of them."""
    if len(conditions) <= _TRIED:
        return conditions
    whole: dict[Expr, int] = {}
    guarded: dict[Expr, int] = {}
    for node in topological(roots):
        whole[node] = min(count_nodes([node]).cost + sum(whole[c] for c in node.children), _LARGEST)
        if isinstance(node, Product) and not node.boolean:
            for b in (b for g in node.guards for b in literals(g)):
                guarded[b] = guarded.get(b, 0) + whole[node]
    most = sorted(conditions, key=lambda c: -sum(guarded[b] for b in conditions[c]))[:_TRIED]
    return {c: own for c, own in conditions.items() if c in most}


def _is_dear(routine: Routine, conditions: Collection[Expr]) -> bool:
    """Whether all that has to do with what some conditions guard is enough."""
    return count(zero_without(routine.roots, conditions)).cost >= LEAST


def data_conditions(routine: Routine) -> dict[Expr, set[Expr]]:
    """The conditions on data that guard numbers, by what they are at the point's own.

    There are none where a point adds sums up, or adds to others: what it looks up for one part another one needs.
    """
    if routine.atomic_adds or any(x.loops for x in routine.locals):
        return {}
    points = read_points(routine.roots, routine.domain, ())
    centred = Centred()
    found: dict[Expr, set[Expr]] = {}
    for b in dict.fromkeys(b for g in _guards(routine.roots) for b in literals(g)):
        if _is_on_data(b):
            found.setdefault(centred.of(b, points[b]) if b in points else b, set()).add(b)
    return found


def _is_on_data(condition: Expr) -> bool:
    roles = {v.key.field.role for v in variables([condition]) if isinstance(v.key, Access)}
    return bool(roles) and roles <= {Role.DATA, Role.STORED}


def _guards(roots: Iterable[Expr]) -> Iterator[Expr]:
    """The conditions that select numbers."""
    for node in topological(roots):
        if isinstance(node, Product) and not node.boolean:
            yield from node.guards


@final
class _Parts:
    """Numbers of a routine that are 0 where some conditions fail.

    Attributes:
        saved: additions that are left out then.
    """

    def __init__(self, routine: Routine, conditions: Collection[Expr], number: int) -> None:
        self._routine, self._conditions, self._number = routine, conditions, number
        self._roots = [s.value for s in routine.assignments] + [r.value for r in routine.reductions]
        self._zero = zero_without(self._roots, conditions)
        self._names: dict[Expr, LocalName] = {}
        self._new: dict[Expr, Expr] = {}
        self._rest = transform(self._roots, self._without, self._new)
        self._rest = [self._part(r) if r in self._zero else new for r, new in zip(self._roots, self._rest, strict=True)]
        self._all, self._left = count(self._roots).cost, count(self._rest).cost
        self.saved = self._all - self._left if self._names else 0

    @property
    def values(self) -> tuple[Expr, ...]:
        """Of the parts."""
        return tuple(self._names)

    @property
    def handed_on(self) -> int:
        """The parts that are not all of what is stored."""
        return len(set(self._names) - {s.value for s in self._routine.assignments})

    @property
    def pays(self) -> bool:
        """Whether it is worth a branch."""
        both = count([*self._names, *self._conditions]).cost + self._left
        return self.saved >= LEAST and _EXTRA * (both - self._all) <= self.saved

    def vanish_without(self, conditions: Collection[Expr]) -> bool:
        """Whether all parts are 0 where other conditions fail, too."""
        return set(self._names) <= zero_without(self._names, conditions)

    def routine(self, conditions: Iterable[Collection[Expr]]) -> Routine:
        """The routine with the parts apart, under conditions of which each alone makes them 0."""
        inside = set(topological(self._names))
        condition = logical_and(*(logical_or(*(b for b in own if b in inside)) for own in conditions))
        local = LocalSum(tuple(x.name for x in self._names.values()), (), condition, self.values)
        done = dict(zip(self._roots, self._rest, strict=True))
        rest = map_routine(replace(self._routine, locals=()), lambda roots: [done[r] for r in roots])
        return replace(rest, locals=(*self._routine.locals, local))

    def _without(self, node: Expr, children: tuple[Expr, ...]) -> Expr:
        """The node beside the parts."""
        if node in self._zero or not node.children:
            return node
        if isinstance(node, Sum) and not self._zero.isdisjoint(node.children):
            own = [(c, e) for c, e in node.terms if e in self._zero]
            rest = [(c, new) for (c, e), new in zip(node.terms, children, strict=True) if e not in self._zero]
            return linear(node.constant, [*rest, (1, self._part(linear(0, own)))])
        new = tuple(self._part(e) if e in self._zero else c for e, c in zip(node.children, children, strict=True))
        return node if new == node.children else rebuild(node, new)

    def _part(self, e: Expr) -> Expr:
        """The name of an expression that is 0 where the conditions fail; itself, where it is small."""
        if e.boolean or _is_small(e):
            return e
        name = self._names.setdefault(e, LocalName(f"part{self._number}_{len(self._names)}"))
        return var(name)


def zero_without(roots: Iterable[Expr], conditions: Collection[Expr]) -> set[Expr]:
    """The nodes that are 0 wherever some conditions fail."""
    zero = set(conditions)
    for node in topological(roots):
        match node:
            case Product():
                selected = not zero.isdisjoint(node.guards)
                found = selected or (not zero.isdisjoint(node.children) and _rest_is_finite(node, zero))
            case Sum():
                found = node.constant == 0 and zero.issuperset(node.children)
            case _:
                continue
        if found:
            zero.add(node)
    return zero


def _rest_is_finite(product: Product, zero: Collection[Expr]) -> bool:
    """Whether a product with a factor that is 0 is 0, too."""
    return all(x > 0 and (b in zero or (b.finite and type(x) is int)) for b, x in product.factors)


def _is_small(e: Expr) -> bool:
    """Whether next to nothing is saved without an expression."""
    cost, pending = 0, [e]
    while pending and cost < _SMALLEST:
        node = pending.pop()
        cost += count_nodes([node]).cost
        pending += node.children
    return cost < _SMALLEST
