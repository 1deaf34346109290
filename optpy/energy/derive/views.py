"""Residuals seen from the elements of the unknowns that they read: affine reads inverted, edges followed back.

A residual at point I reads the unknown at the index a(I). Seen from the unknown's element y, that residual is at the I
that solves a(I) = y (``symbolic.affine.invert``). For a stencil this shifts the residual so that the access falls on y,
as in Opt; indices that the equation leaves free become loops. Where axes of a(I) are a slot of a graph's edge, the edge
is one of those at y: a loop over the incidence that is built when the graph is bound.

Reference: DeVito et al., "Opt: A Domain Specific Language for Non-linear Least Squares Optimization", 2017, section 5.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
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
    LoopVariable,
    SumLoop,
    canonical_domain,
    entry_dim,
    extremes,
    index_value,
    indices_of,
    loop_variable,
    point,
    slot_read,
)
from optpy.symbolic.affine import Affine, Atom, FloorDiv, TableEntry
from optpy.symbolic.expr import ONE, ZERO, Expr, Product, mul, var
from optpy.symbolic.inversion import Below, Inverse, IsZero, Quotient, Remainder, SolutionCondition, invert
from optpy.symbolic.traverse import map_variables, variables

MultiIndex = tuple[Affine, ...]
"""An index into a grid: one for each of its dims."""


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
    """Names for the loops of one gather. Views that look along the same edges share their loops, views from one point
    those over the same rows."""

    count: int = 0
    shared: dict[Hashable, tuple[SumLoop, ...]] = field(default_factory=dict)

    def next(self) -> str:
        """A name that no loop of this gather has yet."""
        self.count += 1
        return f"k{self.count - 1}"


def views(source: LinearisedResidual, dims: tuple[Extent, ...], names: LoopNames) -> list[View]:
    """The views for each distinct index at which the residual reads unknowns of the given grid: one, or one for each
    remainder of the index's quotients, if there are few."""
    target = point(canonical_domain(dims))
    found = columns_at(source, dims).items()
    return [view for index, columns in found for view in _views_at(source, index, target, names, columns)]


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


def _views_at(
    source: LinearisedResidual, index: MultiIndex, target: MultiIndex, names: LoopNames, columns: ViewColumns
) -> list[View]:
    # The residual's loop variables and the unknown's have the same names: rename before solving.
    own = {i: LoopVariable(f"r{n}", i.dim) for n, i in enumerate(source.residual.domain)}
    rename: dict[Atom, Affine] = {i: Affine.of(r) for i, r in own.items()}
    equations = [(a.substitute(rename), y) for a, y in zip(index, target, strict=True)]
    edges, known = None, {}
    read = slot_read(index)
    if read is not None:
        at = tuple(target[n] - d for n, d in zip(read.axes, read.offsets, strict=True))
        edges = Incidence(LoopVariable("edge", read.graph.edges), read.graph, read.slot, at)
        # What this slot points at is known: it needs no load.
        known = {a.atoms[0]: y for a, y in zip(read.graph.at(read.slot, read.edge), at, strict=True)}
        equations = [e for n, e in enumerate(equations) if n not in read.axes]
        own_index = read.graph.index_of(read.edge), read.graph.index_of(Affine.of(edges.edge))
        equations += [(a.substitute(rename), y) for a, y in zip(*own_index, strict=True)]
    inverse = invert([a for a, _ in equations], [y for _, y in equations], list(own.values()))
    back: dict[Atom, Affine] = {r: Affine.of(i) for i, r in own.items()}
    solution: dict[Atom, Affine] = {i: inverse.solution.get(r, Affine.of(r)) for i, r in own.items()} | known
    for atom, value in inverse.solution.items():
        if isinstance(atom, FloorDiv):  # as the residual spells it, so that no division is left
            solution[Affine.of(atom).substitute(back).atoms[0]] = value
    solved = Inverse(solution, inverse.free, inverse.conditions)
    return [_view(source, index, solved, edges, apart, names, columns) for apart in _apart(inverse.free)]


_MOST_SHIFTED = 4
"""Remainders of quotients, over all axes of an index, that are views of their own, whose reads are at constant
distances again; more are loops, as text grows with each. By reasoning: an image of half the size has 4."""


def _apart(free: Sequence[Atom]) -> list[dict[Atom, Affine]]:
    """The remainders that are views of their own, with their numbers in each; nothing in one where all are loops."""
    remainders = [f for f in free if isinstance(f, Remainder)]
    if prod(r.of.denominator for r in remainders) > _MOST_SHIFTED:
        return [{}]
    values = product(*(map(Affine, range(r.of.denominator)) for r in remainders))
    return [dict(zip(remainders, found, strict=True)) for found in values]


def _view(
    source: LinearisedResidual,
    index: MultiIndex,
    inverse: Inverse,
    edges: Incidence | None,
    apart: Mapping[Atom, Affine],
    names: LoopNames,
    columns: ViewColumns,
) -> View:
    """The view with loops over the edges and over what an inverse has left free, but for what is a number apart."""
    ranges = {f: _range(f) for f in inverse.free if f not in apart}
    dims = [dim for _, dim in ranges.values()]
    if edges is None and not any(isinstance(f, Quotient | Remainder) for f in ranges):
        loops = _loops(names.next(), None, dims)
        if not index and loops:  # all that is added up at one point is met in the same rows
            loops = (*names.shared.setdefault(("rows", dims[0]), loops[:1]), *loops[1:])
    else:
        # Names follow from what stands before the loops: what two of them add up under other conditions stays apart.
        loops = _loops("any", edges, dims)
        outer, _ = split_guard(_guard(source, inverse, edges, _relabel(loops, edges, ranges, apart)), loops)
        key = (edges, tuple(dims), outer)
        loops = names.shared.get(key) or names.shared.setdefault(key, _loops(names.next(), edges, dims))
    relabel = _relabel(loops, edges, ranges, apart)
    solution = {atom: value.substitute(relabel) for atom, value in inverse.solution.items()}
    return View(source, index, Inverse(solution, (), ()), loops, _guard(source, inverse, edges, relabel), columns)


def _loops(prefix: str, edges: Incidence | None, dims: Sequence[Extent]) -> tuple[SumLoop, ...]:
    around: list[SumLoop] = []
    if edges is not None:
        around = [replace(edges, edge=LoopVariable(f"{prefix}_0", edges.edge.dim))]
    return (*around, *(LoopVariable(f"{prefix}_{n}", dim) for n, dim in enumerate(dims, len(around))))


def _relabel(
    loops: Sequence[SumLoop],
    edges: Incidence | None,
    ranges: Mapping[Atom, tuple[Affine, Extent]],
    apart: Mapping[Atom, Affine],
) -> dict[Atom, Affine]:
    """The values in the place of all that is free."""
    counts = [Affine.of(loop_variable(k)) for k in loops]
    found = dict(apart) if edges is None else {**apart, edges.edge: counts.pop(0)}
    return found | {f: start + count for (f, (start, _)), count in zip(ranges.items(), counts, strict=True)}


def _guard(
    source: LinearisedResidual, inverse: Inverse, edges: Incidence | None, relabel: Mapping[Atom, Affine]
) -> Expr:
    """1 where a view's coordinates are those of a residual that reads the element."""
    checks = [_condition(c, relabel) for c in inverse.conditions]
    checks += [in_bounds(inverse.solution[i].substitute(relabel), i.dim) for i in source.residual.domain]
    if edges is not None:
        checks += [in_bounds(y, d) for y, d in zip(edges.at, edges.graph.slots[edges.slot], strict=True)]
    return mul(*checks)


def _condition(c: SolutionCondition | Below, replacement: Mapping[Atom, Affine]) -> Expr:
    if isinstance(c, Below):
        return in_bounds(c.value.substitute(replacement), Extent.of(Affine(c.bound)))
    return map_key(IndexCondition(c), replacement)


def _range(free: Atom) -> tuple[Affine, Extent]:
    """The first value, and the number of values, that something free may take."""
    if isinstance(free, Quotient):
        least, most = extremes(Affine.of(free.of))
        return least, Extent.of(most - least + 1)
    if isinstance(free, Remainder):
        return Affine(0), Extent.of(Affine(free.of.denominator))
    assert isinstance(free, LoopVariable)
    return Affine(0), free.dim


def in_bounds(index: Affine, dim: Extent) -> Expr:
    """The bounds check, 1 where it holds by construction: a loop variable over the same dim, a number below another."""
    for atom in index.atoms:
        own = isinstance(atom, TableEntry) and atom.column in atom.table.own_columns and entry_dim(atom) == dim
        if (own or (isinstance(atom, LoopVariable) and atom.dim == dim)) and index.offset_from(atom) == 0:
            return ONE
    if index.is_constant and dim.length.is_constant:
        return ONE if 0 <= index.constant < dim.length.constant else ZERO
    return var(InBounds(index, dim))


def map_key(key: object, replacement: Mapping[Atom, Affine]) -> Expr:
    """A leaf with its loop variables replaced."""
    match key:
        case Access():
            return var(Access(key.field, tuple(a.substitute(replacement) for a in key.index), key.channel))
        case InBounds():
            return in_bounds(key.index.substitute(replacement), key.dim)
        case IndexValue():
            return index_value(key.index.substitute(replacement))
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


def split_guard(guard: Expr, loops: Iterable[SumLoop]) -> tuple[Expr, Expr]:
    """The guard's factors without and with the loop variables."""
    own = set(map(loop_variable, loops))
    factors = [b for b, _ in guard.factors] if isinstance(guard, Product) else [guard]
    inner = [b for b in factors if any(i in own for v in variables([b]) for i in indices_of(v.key))]
    return mul(*(b for b in factors if b not in inner)), mul(*inner)
