"""Intermediates that users have not named: what residuals compute in several places, one a shift of the other.

Residuals written without ``op.Func`` have the formula of an intermediate once for each point at which they need it.
Here these formulas are found, and become intermediates as if the user had named them: the scheduler settles whether
they are stored. The problem as the user wrote it, to which texts and checks refer, stays as it is.

A formula is computed at all points of its grid, and read where the residual would have computed it: under the same
conditions. Those are all kept, so what is not finite elsewhere is not read; and one that is to be read without a
condition by which it lies inside the grid stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from optpy.energy.derive.forms import Forms, Part, Place, least
from optpy.energy.derive.uses import Use, is_bound, joined, with_neighbours
from optpy.energy.derive.views import shift
from optpy.energy.language.boundary import always_inside
from optpy.ir import (
    REAL,
    Access,
    Definition,
    Domain,
    Extent,
    Field,
    InBounds,
    LoopVariable,
    Problem,
    Residual,
    Role,
    Scalar,
    at_zero,
    canonical_domain,
    funcs_read,
)
from optpy.symbolic.affine import Affine, Atom
from optpy.symbolic.count import count, count_nodes, is_dear
from optpy.symbolic.expr import (
    Call,
    Const,
    Expr,
    Number,
    Product,
    Sum,
    Var,
    const,
    linear,
    mul,
    power,
    split_content,
    var,
)
from optpy.symbolic.operations import whole
from optpy.symbolic.order import topological
from optpy.symbolic.traverse import rebuild, transform, variables

FOUND: Final = "common "
"""Names of found intermediates begin so: no user's name has a space."""

_ANCHOR: Final = 8
"""Additions of the dearest part of what is found, at least: a division."""

_LARGEST: Final = 10**9
"""Additions that are counted: repeated squares would be more than fit into a word."""

_SEVERAL: Final = object()
"""In place of an index, where arrays are read at several."""

_TRIED: Final = 16
"""Formulas that may turn out to be none before the search ends: it must not take long where there is nothing."""


def with_common_funcs(problem: Problem, least_cost: int) -> Problem:
    """A problem whose residuals read what they have in common, up to shifts, as intermediates.

    Args:
        problem: as the user wrote it.
        least_cost: additions of an intermediate in two places, at least; of one in more places as many in all.
    """
    residuals = problem.with_funcs
    number = 1
    while (found := _Formulas(residuals, least_cost).best()) is not None:
        residuals = found.in_place(residuals, f"{FOUND}{number}")
        number += 1
    return problem if number == 1 else replace(problem, with_funcs=residuals)


@final
@dataclass(frozen=True, slots=True)
class _Read:
    """A place where an intermediate is read.

    Attributes:
        parts: of a sum or a product, those for which the intermediate stands; None: for the expression itself.
        times: what it is multiplied by there.
        at: where, as a place in its grid.
    """

    parts: frozenset[Expr] | None
    times: Number
    at: tuple[Affine, ...]


@final
@dataclass(frozen=True, slots=True)
class _Found:
    """An intermediate: its formula over its own grid, and where it is read."""

    formula: Expr
    loops: Domain
    reads: Mapping[Expr, Sequence[_Read]]

    def in_place(self, residuals: Sequence[Residual], name: str) -> tuple[Residual, ...]:
        """Residuals that read it, under a name."""
        reading = [r for r in residuals if not self.reads.keys().isdisjoint(topological(r.linearised))]
        func = self._field(name, reading)

        def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
            reads = self.reads.get(node)
            if reads is not None:
                return _replaced(node, children, reads, func)
            return node if children == node.children else rebuild(node, children)

        done: dict[Expr, Expr] = {}
        faces = ((tuple(transform(e, rule, done)) for e in (r.components, r.linearised)) for r in residuals)
        return tuple(replace(r, components=c, linearised=x) for r, (c, x) in zip(residuals, faces, strict=True))

    def _field(self, name: str, reading: Sequence[Residual]) -> Field:
        formula, dims = self.formula, tuple(v.dim for v in self.loops)
        location = reading[0].location if reading else None
        nodes = topological([e for r in reading for e in (*r.components, *r.linearised)])
        if any(isinstance(e, Call) and e.op.name == "whole" and e.children[0] in self.reads for e in nodes):
            formula = whole(formula)  # where it is inlined, its factors must not overflow with those around it
        values, funcs = tuple(at_zero([formula])), funcs_read([formula])
        definition = Definition(values, (formula,), funcs, location=location)
        dtype = "bool" if formula.boolean else REAL
        return Field(name, dims, 1, dtype, Role.FUNC, False, location, formula.finite, definition=definition)


def _replaced(node: Expr, children: Sequence[Expr], reads: Sequence[_Read], func: Field) -> Expr:
    """An expression that reads an intermediate, in place of some of its parts or of itself."""
    read = [mul(const(r.times), var(Access(func, r.at, 0))) for r in reads]
    taken = frozenset().union(*(r.parts or () for r in reads))
    if not taken:
        return read[0]
    if isinstance(node, Sum):
        rest = [(c, new) for (c, old), new in zip(node.terms, children, strict=True) if old not in taken]
        return linear(node.constant, [*rest, *((1, e) for e in read)])
    assert isinstance(node, Product)
    kept = [power(new, x) for (old, x), new in zip(node.factors, children, strict=True) if old not in taken]
    return mul(*read, *kept)


@final
class _Formulas:
    """Looks for one intermediate."""

    def __init__(self, residuals: Sequence[Residual], least_cost: int) -> None:
        self._least_cost = least_cost
        roots = {r.label: [*r.linearised, *r.components] for r in residuals}
        every = [e for found in roots.values() for e in found]
        self._forms = Forms(every)
        self._held = _held(every)
        self._labels: dict[Expr, set[str]] = {}
        for label, found in roots.items():
            for node in topological(found):
                self._labels.setdefault(node, set()).add(label)
        self._cost: dict[Expr, int] = {}
        """Of each node, what is shared counted at each use: a number that takes one walk."""
        for node in topological(every):
            self._cost[node] = min(count_nodes([node]).cost + sum(self._cost[c] for c in node.children), _LARGEST)

    def best(self) -> _Found | None:
        """The intermediate that is looked for first: of many operations, in many places; then conditions."""
        dear = []
        for uses in self._uses().values():
            first = uses[0]
            cost = self._cost[first.part.value] + (count_nodes([first.value]).cost if first.powered else 0)
            if cost >= _ANCHOR and (places := len(self._places(uses))) > 1:
                dear.append((cost * (places - 1), uses))
        dear.sort(key=lambda x: -x[0])
        found = (self._around(uses) for _, uses in dear[:_TRIED])
        return next((f for f in found if f is not None), None) or self._condition()

    def _uses(self) -> dict[object, list[Use]]:
        """The parts of all expressions, those that are equal up to a shift together."""
        found: dict[object, list[Use]] = {}
        for node in self._labels:
            parts = self._forms.parts.get(node)
            if parts is None:
                parts = tuple(Part(c, 1, self._forms.of[c]) for c in node.children if c in self._forms.of)
            for p in parts:
                if p.form.at and p.value in self._forms.of:
                    found.setdefault(p.form.number, []).append(Use(node, p))
                    if isinstance(node, Product) and p.number != 1:
                        found.setdefault((p.form.number, p.number), []).append(Use(node, p, powered=True))
        return found

    def _places(self, uses: Iterable[Use]) -> set[tuple[str, Place]]:
        return {(label, u.part.form.at) for u in uses for label in self._labels[u.within]}

    def _around(self, uses: Sequence[Use]) -> _Found | None:
        """The intermediate that a part with such uses belongs to."""
        formula: Expr | None = None
        reads: dict[Expr, list[_Read]] = {}
        counted: list[Use] = []
        for use, parts in with_neighbours(uses, self._forms):
            times, own, at = _at_its_own_point(joined(use, parts), use.part.form.at)
            if parts and isinstance(use.within, Sum):
                times = times * use.part.number
            formula = formula or own
            if own is not formula or not self._is_inside(use if parts else Use(use.part.value, use.part), at):
                continue
            if parts:
                reads.setdefault(use.within, []).append(_Read(frozenset(p.value for p in parts), times, at))
            else:
                reads[use.part.value] = [_Read(None, times, at)]
            counted.append(use)
        places = len(self._places(counted))
        if formula is None or places < 2 or places * _operations(formula) < 2 * self._least_cost:
            return None
        return _Found(formula, _domain(uses[0].part.form.at), reads)

    def _condition(self) -> _Found | None:
        """The dearest condition on several points: it is stored as a byte, though it may stand in one place only.

        Conditions on single points are stored by themselves (``scheduling.values``).
        """
        found: dict[tuple[Expr, Domain], dict[Expr, list[_Read]]] = {}
        for node in self._labels:
            guards = [p for p in self._forms.parts.get(node, ()) if p.value.boolean and not is_bound(p.value)]
            place = least(p.form for p in guards)
            if not isinstance(node, Product) or len(guards) < 2 or not place:
                continue
            _, own, at = _at_its_own_point(mul(*(p.value for p in guards)), place)
            if self._is_inside(Use(node, guards[0]), at):
                reads = found.setdefault((own, _domain(place)), {})
                reads[node] = [_Read(frozenset(p.value for p in guards), 1, at)]
        of_several = [_Found(e, loops, reads) for (e, loops), reads in found.items() if len(_indices(e)) > 1]
        dear = [f for f in of_several if _operations(f.formula) >= self._least_cost]
        return max(dear, key=lambda f: _operations(f.formula), default=None)

    def _is_inside(self, use: Use, at: tuple[Affine, ...]) -> bool:
        """Whether what is read lies inside the grid wherever its value matters."""
        held = self._held[use.within]
        if isinstance(use.within, Product) and use.part.value is not use.within:
            held = held | _bounds(use.within)
        return all(always_inside(a, d) or _holds(a, d, held) for a in at for d in [_loop(a).dim])


def _loop(index: Affine) -> LoopVariable:
    (atom,) = index.atoms
    assert isinstance(atom, LoopVariable)
    return atom


def _domain(place: Place) -> Domain:
    return canonical_domain(v.dim for v, _ in place)


def _at_its_own_point(e: Expr, place: Place) -> tuple[Number, Expr, tuple[Affine, ...]]:
    """A number, the expression over its own grid by which it is multiplied, and the place where that is read."""
    at = tuple(Affine.of(v) + d for v, d in _origin(e, place))
    back: dict[Atom, Affine] = {
        v: Affine.of(i) - (a - Affine.of(v)) for (v, _), i, a in zip(place, _domain(place), at, strict=True)
    }
    return *split_content(shift([e], back)[0]), at


def _origin(e: Expr, at: Place) -> Place:
    """The point from which an expression reads forward: the least index on each axis at which it reads an array."""
    read: dict[LoopVariable, int] = {}
    for v in variables([e]):
        if isinstance(v.key, Access):
            for a in v.key.index:
                for atom in a.atoms:
                    assert isinstance(atom, LoopVariable)
                    read[atom] = min(a.constant, read.get(atom, a.constant))
    return tuple((v, read.get(v, d)) for v, d in at)


def _indices(e: Expr) -> set[tuple[Affine, ...]]:
    return {v.key.index for v in variables([e]) if isinstance(v.key, Access)}


def _operations(formula: Expr) -> int:
    """Additions of a formula, but for the dear functions of single points, which are stored by themselves."""
    formula = _with_params_computed(formula)
    order = topological([formula])
    index: dict[Expr, object] = {}  # at which a node reads arrays; _SEVERAL
    by_themselves: list[Expr] = []
    for node in order:
        own = {node.key.index} if isinstance(node, Var) and isinstance(node.key, Access) else set()
        read = own.union(*({index[c]} for c in node.children if c in index))
        if read:
            index[node] = read.pop() if len(read) == 1 else _SEVERAL
        if is_dear(node) and index.get(node) is not _SEVERAL:
            by_themselves.append(node)
    return count([formula], set(topological(by_themselves))).cost


def _with_params_computed(formula: Expr) -> Expr:
    """A formula with numbers in place of powers of params, which are computed before all loops."""
    given: set[Expr] = set()

    def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
        is_param = isinstance(node, Var) and isinstance(node.key, Scalar)
        if is_param or isinstance(node, Const) or (children and given.issuperset(node.children)):
            given.add(node)
        if isinstance(node, Product):
            factors = zip(children, node.factors, strict=True)
            return mul(*(e if base in given else power(e, x) for e, (base, x) in factors))
        return node if children == node.children else rebuild(node, children)

    return transform([formula], rule)[0]


# -- conditions --------------------------------------------------------------------------------------------------------


def _bounds(product: Product) -> frozenset[InBounds]:
    return frozenset(g.key for g in product.guards if isinstance(g, Var) and isinstance(g.key, InBounds))


def _held(roots: Sequence[Expr]) -> dict[Expr, frozenset[InBounds]]:
    """For each node, the bounds checks that hold wherever its value matters."""
    held: dict[Expr, frozenset[InBounds]] = dict.fromkeys(roots, frozenset())
    for node in reversed(topological(roots)):
        guards = node.guards if isinstance(node, Product) else ()
        inner = held[node] | _bounds(node) if isinstance(node, Product) else held[node]
        for child in node.children:
            here = held[node] if child in guards else inner
            held[child] = held[child] & here if child in held else here
    return held


def _holds(index: Affine, dim: Extent, held: Iterable[InBounds]) -> bool:
    """Whether an index lies inside an axis by what is known: that it does, or that others on both sides of it do."""
    apart = [d.constant for b in held if b.dim == dim for d in [b.index - index] if d.is_constant]
    return bool(apart) and min(apart) <= 0 <= max(apart)
