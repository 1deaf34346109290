"""Intermediates, named or found: inlined, or stored with their partials, whichever takes less in products with J^T J.

A product at a point of the unknowns reads an intermediate at the points around it, and computes its partials anew at
each of them, unless they are stored once for each linearisation. Counted are operations, and the numbers that have to
be brought from memory for each point, however many of its neighbours read them, as for J (see ``scheduling.stencils``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, final
from weakref import WeakKeyDictionary

from optpy.energy.derive.common import FOUND, with_common_funcs
from optpy.energy.derive.funcs import depends_on_unknowns, linearised_func
from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.materialised import store_func
from optpy.energy.derive.sums import derived_sum, read_from
from optpy.energy.derive.views import MultiIndex
from optpy.energy.language.written_out import Formulas, func_accesses, with_formulas
from optpy.ir import (
    ALL,
    SAMPLED,
    Field,
    FuncSchedule,
    FuncStorage,
    Problem,
    Residual,
    Schedule,
    funcs_read,
    is_unknown,
)
from optpy.scheduling.costs import STREAM, TERMS, pays, stored_numbers, storing
from optpy.scheduling.given import Given, as_schedule, check_names, decided_by, refused
from optpy.symbolic.count import count
from optpy.symbolic.expr import Expr
from optpy.symbolic.traverse import variables


def with_found_funcs(problem: Problem) -> Problem:
    """A problem with the intermediates that its residuals have written out in several places.

    In two places none takes fewer operations than a store and a load of its values; in more, as many in all.
    """
    if problem not in _FOUND:
        found = with_common_funcs(problem, storing(1))
        _FOUND[problem] = None if found is problem else found
    return _FOUND[problem] or problem


_FOUND: Final[WeakKeyDictionary[Problem, Problem | None]] = WeakKeyDictionary()
"""Answers of `with_found_funcs`, for which all that is bound asks anew; None: the problem itself, which must not keep
itself alive."""


def schedule_funcs(problem: Problem, given: Given = ()) -> Schedule:
    """The schedules of intermediates, each the given one, or the one that costs least.

    Those that read others are decided first: how often an intermediate is read depends on which of its readers are
    inlined.

    Raises:
        OptionError: a given one cannot be.
    """
    given = as_schedule(given)
    linearised: dict[Field, LinearisedResidual] = {}
    moving: set[Field] = set()
    for func in problem.funcs:
        if func.is_sampled:
            continue
        if func.is_sum:
            linearised[func] = read_from(derived_sum(func, linearised).memory, depends_on_unknowns(func, moving))
        else:
            linearised[func] = linearised_func(func, linearised)
        if depends_on_unknowns(func, moving):
            moving.add(func)
    inlined: Formulas = {}
    stored: list[Field] = []
    found: dict[str, FuncSchedule] = {}
    for func in reversed(problem.funcs):
        if func.is_sum or func.is_sampled:
            stored.append(func)
            continue
        decided = decided_by(given.funcs, FuncSchedule(func.name))
        if decided is None:
            decided = _cheapest(func, linearised[func], func in moving, _Reads.of(func, problem, inlined, stored))
        elif decided.in_cost and decided.storage is FuncStorage.INLINE and func not in moving:
            by_hand = next(x for x in given.funcs if x.about in (func.name, ALL))
            raise refused(given, by_hand, f"{func.name!r} reads no unknown: with its values kept, costs read them, too")
        found[func.name] = replace(decided, reason=_where_found(func, problem) + decided.reason)
        if decided.storage is not FuncStorage.INLINE:
            stored.append(func)
            continue
        own = {func: _values(func)}
        inlined = {**{f: tuple(with_formulas(e, own)) for f, e in inlined.items()}, **own}
    check_names(given.funcs, list(found), given, _always_stored(problem))
    return Schedule(funcs=tuple(found[func.name] for func in problem.funcs if func.name in found))


def _always_stored(problem: Problem) -> dict[str, str]:
    """The intermediates of which nothing can be decided, by name, and why not."""
    sums = {f.name: "it is an op.sum, which is always stored" for f in problem.funcs if f.is_sum}
    sampled = [f.name.removeprefix(SAMPLED) for f in problem.funcs if f.is_sampled]
    return {**sums, **dict.fromkeys(sampled, "op.Sampled reads it, so that it is always stored")}


def _where_found(func: Field, problem: Problem) -> str:
    """The residuals in which an intermediate is written out that the user has not named."""
    if not func.name.startswith(FOUND):
        return ""
    read = [r for r in problem.with_funcs if func in funcs_read(r.linearised)]
    places = ", ".join(f"{r.label} ({r.location})" for r in read)
    return f"written out in {places}; "


@final
@dataclass(frozen=True, slots=True)
class _Reads:
    """The places at which an intermediate is read.

    Attributes:
        in_products: around a point of the unknowns, by a product with J^T J.
        in_costs: around a point of a residual, by a cost.
        in_passes: around a point of another intermediate, by the pass that stores it.
    """

    in_products: int
    in_costs: int
    in_passes: int

    @staticmethod
    def of(func: Field, problem: Problem, inlined: Formulas, stored: Iterable[Field]) -> _Reads:
        """Those of an intermediate.

        Args:
            func: the intermediate.
            problem: whose it is.
            inlined: the intermediates that are computed wherever they are read.
            stored: those that have passes of their own.
        """
        seen: set[object] = set()
        near: dict[object, set[object]] = {}
        for r, with_funcs in zip(problem.residuals, problem.with_funcs, strict=True):
            found = _indices(func, with_formulas(with_funcs.components, inlined))
            seen |= _seen_from_unknowns(r, found)
            near.setdefault(r.domain, set()).update(found)
        stored = list(stored)
        for summed in (f for f in stored if f.is_sum):
            terms = _in_summands(summed, _indices(func, with_formulas(_values(summed), inlined)))
            seen |= terms
            near[summed] = terms
        formulas = map(_values, stored)
        passes = [len(_indices(func, with_formulas(values, inlined))) for values in formulas]
        return _Reads(len(seen), max(map(len, near.values()), default=0), max(passes, default=0))


def _values(func: Field) -> tuple[Expr, ...]:
    assert func.definition is not None
    return func.definition.values


def _in_summands(summed: Field, read: Iterable[MultiIndex]) -> set[object]:
    """The places at which the terms of a sum read an intermediate; there are products with each term, too."""
    assert summed.definition is not None
    loops = summed.definition.loops
    found: set[object] = set()
    for index in read:
        terms = TERMS if any(a.reads(loops) for a in index) else 1
        found |= {(summed, index, n) for n in range(terms)}
    return found


def _indices(func: Field, roots: Iterable[Expr]) -> set[MultiIndex]:
    return {a.index for a in func_accesses(roots) if a.field == func}


def _seen_from_unknowns(residual: Residual, read: Iterable[MultiIndex]) -> set[object]:
    """The places at which a product reads what a residual reads, seen from the unknowns that the residual reads.

    Where all of them are at constant distances from the residual's point, those that coincide count once.
    """
    unknowns = {v.key.index for v in variables(residual.linearised) if is_unknown(v.key)}
    found: set[object] = set()
    for a, u in product(read, unknowns):
        apart = _distance(a, u)
        found.add(apart if apart is not None else (residual.label, a, u))
    return found


def _distance(a: MultiIndex, b: MultiIndex) -> tuple[int, ...] | None:
    if len(a) != len(b):
        return None
    differences = [x - y for x, y in zip(a, b, strict=True)]
    return tuple(d.constant for d in differences) if all(d.is_constant for d in differences) else None


def _cheapest(func: Field, source: LinearisedResidual, moves: bool, reads: _Reads) -> FuncSchedule:
    """The schedule of an intermediate that costs least.

    Args:
        func: the intermediate.
        source: with its derivatives.
        moves: whether its values depend on unknowns.
        reads: where it is read.
    """
    values = count(source.values).cost
    entries = [d for p in source.partials for d in p.values()]
    whole = FuncStorage.PARTIALS if entries else FuncStorage.VALUES
    kept = _numbers(source, whole)
    once = count([*entries, *source.jvps]).cost if entries else values
    again, spent = reads.in_products * once, STREAM * kept
    in_passes = (reads.in_passes - 1) * values
    stored = pays(spent, again) or pays(storing(func.channels), in_passes)
    storage = whole if stored and kept else FuncStorage.INLINE
    saved = (reads.in_costs - 1) * values
    in_cost = moves and pays(storing(func.channels), saved)
    reason = (
        f"at each point of a product with J^T J, {once} additions at each of {reads.in_products} places or "
        f"{spent:g} for what is stored; in a cost, {values} additions at each of {reads.in_costs}"
    )
    if reads.in_passes:
        reason += f"; in a pass that stores another, {values} additions at each of {reads.in_passes}"
    return FuncSchedule(func.name, storage, in_cost, reason)


def _numbers(source: LinearisedResidual, storage: FuncStorage) -> float:
    """The numbers of the solver's precision that products read at each point, where an intermediate is stored."""
    read, _ = store_func(source.residual.label, source, storage)
    roots = read.jvps if storage is FuncStorage.PARTIALS else read.values
    return stored_numbers(roots)
