"""J^T F, J^T J p and the preconditioner as gathers: maps over the unknowns, no two points writing one element.

A residual at point I reads the unknown at the affine index a(I). Seen from the unknown's element y, that residual
is at the I that solves a(I) = y (``symbolic.affine.invert``). For a stencil this shifts the residual so that the
access falls on y, as in Opt; indices that the equation leaves free become loops. Where a(I) is a slot of a graph's
edge, the solutions are the edges at y: a loop over the incidence that is built when the graph is bound. Every
derivative is taken once, in the residual's own coordinates, and then shifted.

Reference: DeVito et al., "Opt: A Domain Specific Language for Non-linear Least Squares Optimization", 2017, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from optpy.energy.derive.linearised import LinearisedResidual
from optpy.ir import (
    Access,
    Extent,
    FieldChannel,
    InBounds,
    Incidence,
    IndexCondition,
    IndexValue,
    LocalName,
    LocalSum,
    LoopVariable,
    SumLoop,
    canonical_domain,
    indices_of,
    loop_variable,
    point,
    slot_read,
)
from optpy.symbolic.affine import Affine, Atom, Inverse, IsZero, invert
from optpy.symbolic.expr import ONE, ZERO, Expr, Product, add, mul, var
from optpy.symbolic.factor import factor
from optpy.symbolic.traverse import map_variables, variables

MultiIndex = tuple[Affine, ...]
"""An index into a grid: one for each of its dims."""


# -- seen from the unknown ---------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class View:
    """A residual seen from the element of the unknown that it reads at ``index``: how its coordinates are found."""

    source: LinearisedResidual
    index: MultiIndex
    inverse: Inverse
    loops: tuple[SumLoop, ...]
    guard: Expr
    columns: Sequence[Mapping[FieldChannel, Expr]]
    """For each component, the partials with respect to what is seen, in the residual's own coordinates."""

    def seen(self, expressions: Iterable[Expr]) -> list[Expr]:
        """Expressions of the residual, in coordinates of the unknown (and of the free loops)."""
        return shift(expressions, self.inverse.solution)


@final
@dataclass(slots=True)
class LoopNames:
    """Names for the loops of one gather. Views that look along the same edges share their loops."""

    count: int = 0
    shared: dict[Hashable, tuple[SumLoop, ...]] = field(default_factory=dict)

    def next(self) -> str:
        """A name that no loop of this gather has yet."""
        self.count += 1
        return f"k{self.count - 1}"


def views(source: LinearisedResidual, dims: tuple[Extent, ...], names: LoopNames) -> list[View]:
    """One view for each distinct index at which the residual reads unknowns of the given grid."""
    target = point(canonical_domain(dims))
    return [
        _slot_view(source, a, target, names, columns) or _grid_view(source, a, target, names, columns)
        for a, columns in columns_at(source, dims).items()
    ]


ViewColumns = list[dict[FieldChannel, Expr]]
"""For each component of a residual, its partials with respect to what it reads at one index."""


def columns_at(source: LinearisedResidual, dims: tuple[Extent, ...]) -> dict[MultiIndex, ViewColumns]:
    """The columns at each index at which a residual reads unknowns of a grid."""
    found: dict[MultiIndex, ViewColumns] = {}
    for a in source.accesses:
        if a.field.dims == dims and a.index not in found:
            found[a.index] = [{} for _ in source.partials]
    for component, partials in enumerate(source.partials):
        for a, d in partials.items():
            if a.field.dims == dims:
                found[a.index][component][a.field, a.channel] = d
    return found


def _grid_view(
    source: LinearisedResidual, index: MultiIndex, target: MultiIndex, names: LoopNames, columns: ViewColumns
) -> View:
    # The residual's loop variables and the unknown's have the same names: rename before solving.
    own = {i: LoopVariable(f"r{n}", i.dim) for n, i in enumerate(source.residual.domain)}
    rename: dict[Atom, Affine] = {i: Affine.of(r) for i, r in own.items()}
    inverse = invert([a.substitute(rename) for a in index], target, list(own.values()))
    prefix = names.next()
    loops = {f: LoopVariable(f"{prefix}_{n}", _dim(f)) for n, f in enumerate(inverse.free)}
    relabel: dict[Atom, Affine] = {f: Affine.of(k) for f, k in loops.items()}
    solution: dict[Atom, Affine] = {
        i: inverse.solution[r].substitute(relabel) if r in inverse.solution else relabel[r] for i, r in own.items()
    }
    conditions = [map_key(IndexCondition(c), relabel) for c in inverse.conditions]
    guard = mul(*conditions, *(in_bounds(solution[i], i.dim) for i in source.residual.domain))
    return View(source, index, Inverse(solution, (), ()), tuple(loops.values()), guard, columns)


def _slot_view(
    source: LinearisedResidual, index: MultiIndex, target: MultiIndex, names: LoopNames, columns: ViewColumns
) -> View | None:
    """The view along the edges whose slot, moved by the offsets of the read, is the element; None if it is no slot."""
    read = slot_read(index)
    if read is None:
        return None
    graph, slot, row, offsets = read
    (own,) = row.atoms
    at = tuple(t - d for t, d in zip(target, offsets, strict=True))
    others = [i for i in source.residual.domain if i != own]
    key = (graph, slot, at, tuple(i.dim for i in others))
    if key not in names.shared:
        prefix = names.next()
        edge = LoopVariable(f"{prefix}_0", graph.edges)
        free = (LoopVariable(f"{prefix}_{n + 1}", i.dim) for n, i in enumerate(others))
        names.shared[key] = (Incidence(edge, graph, slot, at), *free)
    loops = names.shared[key]
    solution: dict[Atom, Affine] = {
        i: Affine.of(loop_variable(k)) for i, k in zip((_index(own), *others), loops, strict=True)
    }
    # What this slot points at is known: it needs no load.
    solution |= {a.atoms[0]: t for a, t in zip(graph.at(slot, row), at, strict=True)}
    guard = mul(*(in_bounds(t, d) for t, d in zip(at, graph.slots[slot], strict=True)))
    return View(source, index, Inverse(solution, (), ()), loops, guard, columns)


def _index(atom: Atom) -> LoopVariable:
    assert isinstance(atom, LoopVariable)
    return atom


def _dim(atom: Atom) -> Extent:
    return _index(atom).dim


def in_bounds(index: Affine, dim: Extent) -> Expr:
    """The bounds check, 1 where it holds by construction: a loop variable over the same dim."""
    for atom in index.atoms:
        if isinstance(atom, LoopVariable) and atom.dim == dim and index.offset_from(atom) == 0:
            return ONE
    return var(InBounds(index, dim))


def map_key(key: object, replacement: Mapping[Atom, Affine]) -> Expr:
    """A leaf with its loop variables replaced."""
    match key:
        case Access():
            return var(Access(key.field, tuple(a.substitute(replacement) for a in key.index), key.channel))
        case InBounds():
            return in_bounds(key.index.substitute(replacement), key.dim)
        case IndexValue():
            return var(IndexValue(key.index.substitute(replacement)))
        case IndexCondition():
            return index_condition(key, replacement)
        case _:
            return var(key)  # type: ignore[arg-type]


def index_condition(key: IndexCondition, replacement: Mapping[Atom, Affine]) -> Expr:
    """A condition with its loop variables replaced; 0 or 1 where it no longer depends on any."""
    condition = key.condition
    if isinstance(condition, IsZero):
        value = condition.value.substitute(replacement)
        if value.is_constant:
            return ONE if value.constant == 0 else ZERO
        value = value if value.terms[0][1] > 0 else value * -1  # the same condition, and the same node
        return var(IndexCondition(IsZero(value)))
    numerator = condition.numerator.substitute(replacement)
    if all(c % condition.denominator == 0 for c in (numerator.constant, *(c for _, c in numerator.terms))):
        return ONE
    return var(IndexCondition(type(condition)(numerator, condition.denominator)))


def shift(expressions: Iterable[Expr], replacement: Mapping[Atom, Affine]) -> list[Expr]:
    """Expressions with their loop variables replaced."""
    return map_variables(expressions, lambda v: map_key(v.key, replacement))


# -- sums over views ---------------------------------------------------------------------------------------------


@final
@dataclass(slots=True)
class GatheredSum:
    """Adds up contributions to named outputs; those under loops become local sums, one for each nest of loops."""

    _outputs: dict[Hashable, list[Expr]] = field(default_factory=dict)
    _looped: dict[tuple[tuple[SumLoop, ...], Expr], dict[Hashable, list[Expr]]] = field(default_factory=dict)
    _locals: list[LocalSum] = field(default_factory=list)

    def add(self, view: View, contributions: Mapping[Hashable, Expr]) -> None:
        """Add expressions, by the keys of their outputs, in the coordinates of a view, times its guard."""
        names = {k: e for k, e in contributions.items() if e is not ZERO}
        if not view.loops:
            for key, e in names.items():
                self._outputs.setdefault(key, []).append(mul(view.guard, e))
            return
        outer, inner = _split_guard(view.guard, view.loops)
        sums = self._looped.setdefault((view.loops, outer), {})
        for key, e in names.items():
            sums.setdefault(key, []).append(mul(inner, e))

    def total(self, key: Hashable) -> Expr:
        """The expression of an output, once everything has been added."""
        looped = (
            var(LocalName(_local_name(n, list(sums).index(key))))
            for n, sums in enumerate(self._looped.values())
            if key in sums
        )
        return add(*self._outputs.get(key, []), *looped)

    @property
    def locals(self) -> list[LocalSum]:
        """Every local sum, once everything has been added."""
        if len(self._locals) != len(self._looped):
            self._locals = [
                LocalSum(
                    tuple(_local_name(n, m) for m in range(len(sums))),
                    loops,
                    outer,
                    tuple(factor(add(*parts) for parts in sums.values())),
                )
                for n, ((loops, outer), sums) in enumerate(self._looped.items())
            ]
        return self._locals

    def locals_of(self, values: Iterable[Expr]) -> tuple[LocalSum, ...]:
        """The local sums that these values need, and no others."""
        needed = {v.key.name for v in variables(values) if isinstance(v.key, LocalName)}
        kept = []
        for x in self.locals:
            pairs = [(n, e) for n, e in zip(x.names, x.values, strict=True) if n in needed]
            if pairs:
                names, summands = zip(*pairs, strict=True)
                kept.append(LocalSum(names, x.loops, x.condition, summands))
        return tuple(kept)


def _local_name(nest: int, output: int) -> str:
    return f"local{nest}_{output}"


def _split_guard(guard: Expr, loops: Iterable[SumLoop]) -> tuple[Expr, Expr]:
    """The guard's factors without and with the loop variables."""
    own = set(map(loop_variable, loops))
    factors = [b for b, _ in guard.factors] if isinstance(guard, Product) else [guard]
    inner = [b for b in factors if any(i in own for v in variables([b]) for i in indices_of(v.key))]
    return mul(*(b for b in factors if b not in inner)), mul(*inner)


@final
@dataclass(frozen=True, slots=True)
class Contribution:
    """The contribution of each residual component to the outputs at the element that it is seen from.

    Attributes:
        multiplied: for each component of a residual, what its column of J^T is multiplied by.
        added: ``(column, full, multiplied) -> {output: expression}``. ``column`` holds its partials by the accesses of
            this view, ``full`` the whole entries of J.
    """

    multiplied: Callable[[LinearisedResidual], Sequence[Expr]]
    added: Callable[[Mapping[FieldChannel, Expr], Mapping[FieldChannel, Expr], Expr], Mapping[Hashable, Expr]]


SummandContribution = Callable[[View], Mapping[Hashable, Expr]]
"""``view -> {output: expression}``: what the summand of a sum adds to the outputs at the element it is seen from."""


def gather(
    sources: Sequence[LinearisedResidual],
    dims: tuple[Extent, ...],
    contribution: Contribution,
    summands: Sequence[tuple[LinearisedResidual, SummandContribution]] = (),
) -> GatheredSum:
    """The sum, over all residuals that read unknowns of a grid, of what each contributes to an element.

    Args:
        sources: the linearised residuals.
        dims: the grid of the unknowns.
        contribution: what one component adds.
        summands: of the sums that residuals read, each with what it adds.
    """
    total = GatheredSum()
    names = LoopNames()
    for source in sources:
        found = views(source, dims, names)
        meeting = found if len({moving_part(v.index) for v in found}) > 1 else []
        for view in found:
            for component in range(len(source.values)):
                total.add(view, contributed(view, meeting, component, contribution))
    for source, adds in summands:
        for view in views(source, dims, names):
            total.add(view, adds(view))
    return total


def contributed(
    view: View, found: Sequence[View], component: int, contribution: Contribution
) -> Mapping[Hashable, Expr]:
    """The contributions of one component of a residual to the element that it is seen from.

    Args:
        view: where it is seen from.
        found: all views of the residual from elements of the same grid, where some may be of the same element.
        component: its number.
        contribution: what it adds.
    """
    partials = view.columns[component]
    if not partials:
        return {}
    multiplied, *entries = view.seen([contribution.multiplied(view.source)[component], *partials.values()])
    column = dict(zip(partials, entries, strict=True))
    return contribution.added(column, _whole_entries(view, found, component, column), multiplied)


def moving_part(index: MultiIndex) -> tuple[object, ...]:
    """An index without its constants: two that differ in these alone never fall on the same element."""
    return tuple(x.terms for x in index)


def _whole_entries(
    view: View, found: Sequence[View], component: int, column: Mapping[FieldChannel, Expr]
) -> dict[FieldChannel, Expr]:
    """The whole entry of J: other accesses of the same residual may fall on the same element (X[i] and X[2*i] at 0)."""
    full = dict(column)
    for other in found:
        if other is view:
            continue
        same = mul(
            *(
                index_condition(IndexCondition(IsZero(a - b)), view.inverse.solution)
                for a, b in zip(view.index, other.index, strict=True)
            )
        )
        if same is ZERO:
            continue
        for element, d in other.columns[component].items():
            full[element] = add(full.get(element, ZERO), mul(same, *view.seen([d])))
    return full
