"""J^T F, J^T J p and the preconditioner as gathers: maps over the unknowns, no two points writing one element.

Each element adds up what the residuals that read it contribute, seen from there (``views``). Every derivative is taken
once, in the residual's own coordinates, and then shifted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.views import LoopNames, MultiIndex, View, index_condition, split_guard, views
from optpy.ir import Extent, FieldChannel, IndexCondition, LocalName, LocalSum, SumLoop
from optpy.symbolic.expr import ZERO, Expr, add, mul, var
from optpy.symbolic.factor import factor
from optpy.symbolic.inversion import IsZero
from optpy.symbolic.traverse import variables


@final
@dataclass(slots=True)
class GatheredSum:
    """Adds up contributions to named outputs; those under loops become local sums, one for each nest of loops."""

    _outputs: dict[Hashable, list[Expr]] = field(default_factory=dict)
    _looped: dict[tuple[tuple[SumLoop, ...], Expr], dict[Hashable, list[Expr]]] = field(default_factory=dict)
    _locals: list[LocalSum] = field(default_factory=list)
    _summands: list[dict[Hashable, Expr]] = field(default_factory=list)

    def add(self, view: View, contributions: Mapping[Hashable, Expr]) -> None:
        """Add expressions, by the keys of their outputs, in the coordinates of a view, times its guard."""
        names = {k: e for k, e in contributions.items() if e is not ZERO}
        if not view.loops:
            self.add_here({key: mul(view.guard, e) for key, e in names.items()})
            return
        outer, inner = split_guard(view.guard, view.loops)
        sums = self._looped.setdefault((view.loops, outer), {})
        for key, e in names.items():
            sums.setdefault(key, []).append(mul(inner, e))

    def add_here(self, contributions: Mapping[Hashable, Expr]) -> None:
        """Add expressions in the element's own coordinates."""
        for key, e in contributions.items():
            self._outputs.setdefault(key, []).append(e)

    def total(self, key: Hashable) -> Expr:
        """The expression of an output, once everything has been added: equal sums have one name."""
        looped = (
            var(LocalName(_local_name(n, list(dict.fromkeys(sums.values())).index(sums[key]))))
            for n, sums in enumerate(self._added_up)
            if key in sums
        )
        return add(*self._outputs.get(key, []), *looped)

    @property
    def _added_up(self) -> list[dict[Hashable, Expr]]:
        """For each nest of loops, the summand of each output, once everything has been added."""
        if len(self._summands) != len(self._looped):
            self._summands = [{key: add(*es) for key, es in sums.items()} for sums in self._looped.values()]
        return self._summands

    @property
    def locals(self) -> list[LocalSum]:
        """Every local sum, once everything has been added."""
        if len(self._locals) != len(self._looped):
            apart = [list(dict.fromkeys(sums.values())) for sums in self._added_up]
            self._locals = [
                LocalSum(tuple(_local_name(n, m) for m in range(len(sums))), loops, outer, tuple(factor(sums)))
                for n, ((loops, outer), sums) in enumerate(zip(self._looped, apart, strict=True))
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
    for index, other in {other.index: other for other in found if other.index != view.index}.items():
        same = mul(
            *(
                index_condition(IndexCondition(IsZero(a - b)), view.inverse.solution)
                for a, b in zip(view.index, index, strict=True)
            )
        )
        if same is ZERO:
            continue
        for element, d in other.columns[component].items():
            full[element] = add(full.get(element, ZERO), mul(same, *view.seen([d])))
    return full
