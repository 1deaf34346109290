"""Intermediates that users have not named: what residuals compute in several places, one a shift of the other.

Residuals written without ``op.Func`` have the formula of an intermediate once for each point at which they need it.
Here these formulas are found, and become intermediates as if the user had named them: the scheduler settles whether
they are stored. The problem as the user wrote it, to which texts and checks refer, stays as it is.

A formula is computed at all points of its grid, and read where the residual would have computed it: under the same
conditions. Those are all kept, so what is not finite elsewhere is not read; and one that is to be read without a
condition by which it lies inside the grid stays where it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from optpy.energy.derive.forms import Forms, Part, Place
from optpy.energy.derive.gather import shift
from optpy.energy.language.boundary import always_inside
from optpy.errors import Location
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
from optpy.symbolic.count import EXPENSIVE, count, count_nodes
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
from optpy.symbolic.number import divided
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


def with_common_funcs(problem: Problem, least: int) -> Problem:
    """A problem whose residuals read what they have in common, up to shifts, as intermediates.

    Args:
        problem: as the user wrote it.
        least: additions of an intermediate in two places, at least; of one in more places as many in all.
    """
    residuals = problem.with_funcs
    number = 1
    while (found := _Search(residuals, least).best()) is not None:
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
        func = self._field(name, reading[0].location if reading else None)

        def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
            reads = self.reads.get(node)
            if reads is not None:
                return _replaced(node, children, reads, func)
            return node if children == node.children else rebuild(node, children)

        done: dict[Expr, Expr] = {}
        faces = ((tuple(transform(e, rule, done)) for e in (r.components, r.linearised)) for r in residuals)
        return tuple(replace(r, components=c, linearised=x) for r, (c, x) in zip(residuals, faces, strict=True))

    def _field(self, name: str, location: Location | None) -> Field:
        formula, dims = self.formula, tuple(v.dim for v in self.loops)
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
@dataclass(frozen=True, slots=True)
class _Use:
    """A part of an expression, by which others beside it are looked for.

    Attributes:
        within: the expression.
        part: of it.
        powered: whether what is looked for is the power that stands there, not only its base.
    """

    within: Expr
    part: Part
    powered: bool = False

    @property
    def value(self) -> Expr:
        """The part, or its power, as an expression by itself."""
        return power(self.part.value, self.part.number) if self.powered else self.part.value


@final
class _Search:
    """Looks for one intermediate."""

    def __init__(self, residuals: Sequence[Residual], least: int) -> None:
        self._least = least
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
        """The intermediate that is looked for first: of many operations, in many places."""
        dear = []
        for uses in self._uses().values():
            first = uses[0]
            cost = self._cost[first.part.value] + (count_nodes([first.value]).cost if first.powered else 0)
            if cost >= _ANCHOR and (places := len(self._places(uses))) > 1:
                dear.append((cost * (places - 1), uses))
        dear.sort(key=lambda x: -x[0])
        found = (self._around(uses) for _, uses in dear[:_TRIED])
        return next((f for f in found if f is not None), None)

    def _uses(self) -> dict[object, list[_Use]]:
        """The parts of all expressions, those that are equal up to a shift together."""
        found: dict[object, list[_Use]] = {}
        for node in self._labels:
            parts = self._forms.parts.get(node)
            if parts is None:
                parts = tuple(Part(c, 1, self._forms.of[c]) for c in node.children if c in self._forms.of)
            for p in parts:
                if p.form.at and p.value in self._forms.of:
                    found.setdefault(p.form.number, []).append(_Use(node, p))
                    if isinstance(node, Product) and p.number != 1:
                        found.setdefault((p.form.number, p.number), []).append(_Use(node, p, powered=True))
        return found

    def _places(self, uses: Iterable[_Use]) -> set[tuple[str, Place]]:
        return {(label, u.part.form.at) for u in uses for label in self._labels[u.within]}

    def _around(self, uses: Sequence[_Use]) -> _Found | None:
        """The intermediate that a part with such uses belongs to."""
        loops = tuple(v for v, _ in uses[0].part.form.at)
        domain = canonical_domain(v.dim for v in loops)
        formula: Expr | None = None
        reads: dict[Expr, list[_Read]] = {}
        counted: list[_Use] = []
        for use, parts in _with_neighbours(uses, self._forms):
            e = _joined(use, parts)
            at = tuple(Affine.of(v) + d for v, d in _origin(e, use.part.form.at))
            back: dict[Atom, Affine] = {
                v: Affine.of(i) - (a - Affine.of(v)) for v, i, a in zip(loops, domain, at, strict=True)
            }
            times, own = split_content(shift([e], back)[0])
            if parts and isinstance(use.within, Sum):
                times = times * use.part.number
            formula = formula or own
            if own is not formula or not self._is_inside(use if parts else _Use(use.part.value, use.part), loops, at):
                continue
            if parts:
                reads.setdefault(use.within, []).append(_Read(frozenset(p.value for p in parts), times, at))
            else:
                reads[use.part.value] = [_Read(None, times, at)]
            counted.append(use)
        places = len(self._places(counted))
        if formula is None or places < 2 or places * _operations(formula) < 2 * self._least:
            return None
        return _Found(formula, domain, reads)

    def _is_inside(self, use: _Use, loops: Domain, at: tuple[Affine, ...]) -> bool:
        """Whether what is read lies inside the grid wherever its value matters."""
        held = self._held[use.within]
        if isinstance(use.within, Product) and use.part.value is not use.within:
            held = held | _bounds(use.within)
        return all(always_inside(a, v.dim) or _holds(a, v.dim, held) for v, a in zip(loops, at, strict=True))


def _with_neighbours(uses: Sequence[_Use], forms: Forms) -> Iterator[tuple[_Use, tuple[Part, ...]]]:
    """Each use with all parts that stand beside it in the same way in all of them, itself first; none: it stands alone.

    Sums are flattened: ``B[i, j] - B[i, j + 1]`` has the terms of both, if B is a sum.
    """
    beside = [_beside(u, forms) for u in uses]
    exponents = {u.part.number for u in uses if isinstance(u.within, Product)}
    if None in beside or len({type(u.within) for u in uses}) > 1 or len(exponents) > 1:
        yield from ((u, ()) for u in {u.part.value: u for u in uses}.values())
        return
    tables = [b for b in beside if b is not None]
    taken = {(u.within, u.part.value) for u in uses}
    kept: list[object] = []
    for key in tables[0]:
        found = [(u.within, t[key].value) for u, t in zip(uses, tables, strict=True) if key in t]
        if len(found) == len(uses) == len(set(found)) and taken.isdisjoint(found):
            kept.append(key)
            taken.update(found)
    if any(isinstance(u.within, Product) and not _selects_nothing_else(u, forms, taken) for u in uses):
        kept = [key for key in kept if not tables[0][key].value.boolean]
    for use, table in zip(uses, tables, strict=True):
        yield use, (use.part, *(table[key] for key in kept)) if kept or use.powered else ()


def _beside(use: _Use, forms: Forms) -> dict[object, Part] | None:
    """The other parts that an intermediate may have, by what is equal where they stand beside equal ones."""
    parts = forms.parts.get(use.within)
    if parts is None:
        return None
    own, at = use.part, dict(use.part.form.at)
    found: dict[object, Part] = {}
    for p in parts:
        if p is own or p.value not in use.within.children or any(v not in at for v, _ in p.form.at):
            continue
        seen = p.form.seen_from(own.form.at)
        if isinstance(use.within, Sum):
            ratio = divided(p.number * p.form.sign, own.number * own.form.sign)
            found[p.form.number, ratio, seen] = p
        elif not _is_bound(p.value) and (p.value.boolean or not own.value.boolean):
            sign = p.form.sign if type(p.number) is not int else 1
            found[p.form.number, p.number, sign, seen] = p
    return found


def _selects_nothing_else(use: _Use, forms: Forms, taken: Collection[tuple[Expr, Expr]]) -> bool:
    """Whether no factor beside an intermediate needs the conditions within it: those that are finite do not."""
    rest = (p for p in forms.parts[use.within] if (use.within, p.value) not in taken)
    return all(p.value.boolean or (isinstance(p.value, Var) and p.value.finite and p.number == 1) for p in rest)


def _joined(use: _Use, parts: Sequence[Part]) -> Expr:
    """The parts as an expression, to be multiplied by the number of the first one."""
    if not parts:
        return use.part.value
    if isinstance(use.within, Sum):
        return linear(0, [(divided(p.number, use.part.number), p.value) for p in parts])
    return mul(*(power(p.value, p.number) for p in parts))


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
        if (
            isinstance(node, Call)
            and not node.boolean
            and node.op.cost >= EXPENSIVE
            and index.get(node) is not _SEVERAL
        ):
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


def _is_bound(e: Expr) -> bool:
    return isinstance(e, Var) and isinstance(e.key, InBounds)


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
