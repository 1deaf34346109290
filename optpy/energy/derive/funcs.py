"""Intermediates that users have named, ``op.Func``: their derivatives, and the passes that store them.

Where an intermediate is stored, residuals read it from memory, and J reads its partials from there, by the chain rule.
A pass stores it at each linearisation; one that reads no unknown, when data are bound. A cost is needed at candidates,
too, where nothing is linearised: its passes store values by themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

from optpy.energy.derive.linearised import LinearisedFuncs, LinearisedResidual, linearise
from optpy.energy.derive.materialised import dtype_of, func_memory, in_memory, store_func
from optpy.energy.derive.stopped import reads_unknown
from optpy.energy.language.written_out import Formulas, with_formulas
from optpy.ir import (
    Access,
    Assignment,
    Definition,
    Field,
    FuncSchedule,
    FuncStorage,
    Group,
    Problem,
    Residual,
    Routine,
    Scalar,
    canonical_domain,
    graphs_in,
)
from optpy.symbolic.expr import Expr
from optpy.symbolic.traverse import variables

_Stores = list[tuple[Field, list[Assignment]]]


@final
@dataclass(frozen=True, slots=True)
class DerivedFuncs:
    """The intermediates of a problem, as a schedule has them.

    Attributes:
        linearised: with their derivatives, as residuals read them at a linearisation.
        formulas: their values, as a cost reads them.
        at_binding, at_linearisation, in_cost: stores, of each intermediate in order.
    """

    linearised: LinearisedFuncs
    formulas: Formulas
    at_binding: _Stores
    at_linearisation: _Stores
    in_cost: _Stores

    def in_costs(self, residuals: Iterable[Residual]) -> list[Residual]:
        """Residuals as a cost reads them."""
        if not self.formulas:
            return list(residuals)
        return [replace(r, components=tuple(with_formulas(r.components, self.formulas))) for r in residuals]


def derive_funcs(problem: Problem, schedules: Sequence[FuncSchedule]) -> DerivedFuncs:
    """All intermediates of a problem, by their schedules; those without one are inlined."""
    by_name = {s.name: s for s in schedules}
    linearised: dict[Field, LinearisedResidual] = {}
    formulas: dict[Field, tuple[Expr, ...]] = {}
    at_binding: _Stores = []
    at_linearisation: _Stores = []
    in_cost: _Stores = []
    moving: set[Field] = set()
    for func in problem.funcs:
        moves = depends_on_unknowns(func, moving)
        if moves:
            moving.add(func)
        schedule = by_name.get(func.name, FuncSchedule(func.name))
        source = linearised_func(func, linearised)
        values = value_formulas(func, formulas)
        if schedule.storage is not FuncStorage.INLINE:
            source, stores = store_func(func.name, source, schedule.storage)
            (at_linearisation if moves else at_binding).append((func, stores))
            values = values if moves else source.values
        if schedule.in_cost and moves:
            read, stores = in_memory(f"cost.{func.name}", canonical_domain(func.dims), values, dtype_of(values))
            in_cost.append((func, stores))
            values = tuple(map(read, values))
        linearised[func], formulas[func] = source, values
    return DerivedFuncs(linearised, formulas, at_binding, at_linearisation, in_cost)


def linearised_func(func: Field, others: LinearisedFuncs) -> LinearisedResidual:
    """An intermediate with its derivatives, over its own grid.

    Args:
        func: the intermediate.
        others: those that it reads.
    """
    assert func.definition is not None
    d = func.definition
    shape = (func.channels,) if func.channel_axis else ()
    as_residual = Residual(func.name, func.name, canonical_domain(func.dims), d.values, d.linearised, shape, d.location)
    return linearise(as_residual, as_residual, others)


def depends_on_unknowns(func: Field, others: Collection[Field]) -> bool:
    """Whether the values of an intermediate change with the unknowns, be it in a condition.

    Args:
        func: the intermediate.
        others: those that it may read and that do so.
    """
    assert func.definition is not None
    return reads_unknown(func.definition.linearised) or not set(others).isdisjoint(func.definition.funcs)


def data_of_stored(problem: Problem, memory: Iterable[Field]) -> frozenset[str]:
    """The names of the data from which intermediates are stored when data are bound: they stand until one changes.

    Args:
        problem: whose intermediates they are.
        memory: the fields that are stored.
    """
    stored = {f.name for f in memory}
    moving: set[Field] = set()
    reads: dict[Field, frozenset[str]] = {}
    for func in problem.funcs:
        assert func.definition is not None
        reads[func] = _data_of(func.definition).union(*(reads[f] for f in func.definition.funcs))
        if depends_on_unknowns(func, moving):
            moving.add(func)
    return frozenset().union(*(reads[f] for f in reads if f not in moving and func_memory(f.name) in stored))


def _data_of(definition: Definition) -> frozenset[str]:
    """The names of the arrays, params and graphs that a formula reads by itself."""
    keys = [v.key for v in variables(definition.linearised)]
    arrays = {k.field.name for k in keys if isinstance(k, Access)}
    return frozenset(
        arrays | {k.name for k in keys if isinstance(k, Scalar)} | set(map(str, graphs_in(definition.values)))
    )


def value_formulas(func: Field, others: Formulas) -> tuple[Expr, ...]:
    """The values of an intermediate in terms of others' formulas."""
    assert func.definition is not None
    return tuple(with_formulas(func.definition.values, others))


def func_passes(group: Group, stores: _Stores) -> list[Routine]:
    """The stores of intermediates as routines: one for each, in order."""
    return [
        Routine(f"{group}_func{n}", canonical_domain(func.dims), tuple(own), prepares=True)
        for n, (func, own) in enumerate(stores)
        if own
    ]
