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
from optpy.energy.derive.sums import DerivedSum, derived_sum, read_from, summing
from optpy.energy.language.written_out import Formulas, with_formulas
from optpy.ir import (
    Access,
    Assignment,
    Definition,
    Field,
    FuncSchedule,
    FuncStorage,
    Problem,
    Residual,
    Routine,
    canonical_domain,
    declared_in,
    graphs_in,
    point,
)
from optpy.symbolic.expr import Expr
from optpy.symbolic.factor import factor


@final
@dataclass(frozen=True, slots=True)
class DerivedFuncs:
    """The intermediates of a problem, as a schedule has them.

    Attributes:
        linearised: with their derivatives, as residuals read them at a linearisation.
        formulas: their values, as a cost reads them.
        sums: those that are sums and depend on unknowns, each after those that it reads.
        at_binding, at_linearisation, in_cost: the passes that store them, in order, by names without their group's.
    """

    linearised: LinearisedFuncs
    formulas: Formulas
    sums: tuple[DerivedSum, ...]
    at_binding: tuple[Routine, ...]
    at_linearisation: tuple[Routine, ...]
    in_cost: tuple[Routine, ...]

    def in_costs(self, residuals: Iterable[Residual]) -> list[Residual]:
        """Residuals as a cost reads them."""
        return _reading(residuals, self.formulas)

    def with_data(self, residuals: Iterable[Residual]) -> list[Residual]:
        """Residuals with sums of data read from memory; what depends on unknowns is as it was."""
        of_data = {f: e for f, e in self.formulas.items() if f.is_sum and not any(self.linearised[f].partials)}
        return _reading(residuals, of_data)


def _reading(residuals: Iterable[Residual], formulas: Formulas) -> list[Residual]:
    if not formulas:
        return list(residuals)
    return [replace(r, components=tuple(with_formulas(r.components, formulas))) for r in residuals]


def derive_funcs(problem: Problem, schedules: Sequence[FuncSchedule]) -> DerivedFuncs:
    """All intermediates of a problem, by their schedules; those without one are inlined. Sums are always stored,
    and so is what is sampled."""
    by_name = {s.name: s for s in schedules}
    state = _Deriving()
    for func in problem.funcs:
        if func.is_sum:
            state.add_sum(func)
        elif func.is_sampled:
            state.add_sampled(func)
        else:
            state.add(func, by_name.get(func.name, FuncSchedule(func.name)))
    return state.derived


@final
class _Deriving:
    """Derives one intermediate after the other."""

    def __init__(self) -> None:
        self._linearised: dict[Field, LinearisedResidual] = {}
        self._formulas: dict[Field, tuple[Expr, ...]] = {}
        self._moving: set[Field] = set()
        self._sums: list[DerivedSum] = []
        self._at_binding: list[Routine] = []
        self._at_linearisation: list[Routine] = []
        self._in_cost: list[Routine] = []

    @property
    def derived(self) -> DerivedFuncs:
        """All of them."""
        passes = self._at_binding, self._at_linearisation, self._in_cost
        return DerivedFuncs(self._linearised, self._formulas, tuple(self._sums), *map(tuple, passes))

    def add(self, func: Field, schedule: FuncSchedule) -> None:
        """A formula, inlined or stored."""
        moves = self._moves(func)
        source = linearised_func(func, self._linearised)
        values = value_formulas(func, self._formulas)
        if schedule.storage is not FuncStorage.INLINE:
            source, stores = store_func(func.name, source, schedule.storage)
            self._store(self._at_linearisation if moves else self._at_binding, func, stores)
            values = values if moves else source.values
        if schedule.in_cost and moves:
            read, stores = in_memory(f"cost.{func.name}", canonical_domain(func.dims), values, dtype_of(values))
            self._store(self._in_cost, func, stores)
            values = tuple(map(read, values))
        self._linearised[func], self._formulas[func] = source, values

    def add_sum(self, func: Field) -> None:
        """A sum."""
        moves = self._moves(func)
        own = derived_sum(func, self._linearised)
        self._linearised[func] = read_from(own.memory, moves)
        found = self._at_linearisation if moves else self._at_binding
        found.append(summing(f"func{len(found)}", own.memory, own.loops, own.summand.values))
        memory = own.memory
        if moves:
            self._sums.append(own)
            memory = replace(own.memory, name=f"cost.{func.name}")
            summands = value_formulas(func, self._formulas)
            self._in_cost.append(summing(f"func{len(self._in_cost)}", memory, own.loops, summands))
        self._formulas[func] = read_from(memory, moves=False).values

    def add_sampled(self, memory: Field) -> None:
        """The memory of one that is sampled: all of it is stored, and reads no unknown."""
        values = factor(value_formulas(memory, self._formulas))
        domain = canonical_domain(memory.dims)
        stores = [Assignment(Access(memory, point(domain), c), v) for c, v in enumerate(values)]
        self._store(self._at_binding, memory, stores)

    def _moves(self, func: Field) -> bool:
        moves = depends_on_unknowns(func, self._moving)
        if moves:
            self._moving.add(func)
        return moves

    def _store(self, passes: list[Routine], func: Field, stores: Sequence[Assignment]) -> None:
        if stores:
            passes.append(Routine(f"func{len(passes)}", canonical_domain(func.dims), tuple(stores), prepares=True))


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
    kept = {f: f.name if f.is_sampled else func_memory(f.name) for f in reads}
    return frozenset().union(*(reads[f] for f in reads if f not in moving and kept[f] in stored))


def _data_of(definition: Definition) -> frozenset[str]:
    """The names of the arrays, params and graphs that a formula reads by itself."""
    return frozenset(d.name for d in (*declared_in(definition.linearised), *graphs_in(definition.values)))


def value_formulas(func: Field, others: Formulas) -> tuple[Expr, ...]:
    """The values of an intermediate in terms of others' formulas."""
    assert func.definition is not None
    return tuple(with_formulas(func.definition.values, others))
