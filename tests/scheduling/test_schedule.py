"""Every decision with its reason; schedules by hand; and that what follows a schedule decides nothing."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import optpy as op
from optpy import ir
from optpy.api.pipeline import derive, derive_cuda
from optpy.api.plan import build
from optpy.ir import Access, GridLayout, Group, NormalForm, NormalSchedule, Schedule, StoredValue, Target
from optpy.kernels.codegen.store import store_values
from optpy.kernels.codegen.symbol_table import gathered_grids
from optpy.scheduling.layouts import layouts
from optpy.symbolic.expr import add, var
from tests.integration.test_graph_operators import SIZES, possible
from tests.support.operator_checks import check_everything
from tests.support.random_graphs import RandomGraphEnergy, random_graph_energies
from tests.support.schedules import GATHERS, Way, by_hand, routines_of

H, W, V, E = op.dims("H W V E")
i, j, v, e = op.indices(H, W, V, E)
Z, A = op.Unknown("Z", (H, W)), op.Array("A", (H, W), 2)
X, w = op.Unknown("X", (V,), 2), op.params("w")
a, b = op.Graph("edges", E, (V, V))[e]
(pixel,) = op.Graph("seen", E, ((H, W),))[e]

EVERYTHING = op.Energy(
    grid=[op.sin(Z[i, j]) - w * op.sin(Z[i, j + 1]), op.where((A[i, j] > 0).all(), Z[i, j], 0)],
    edges=op.exp(X[a][0]) * X[b] - 1,
    seen=Z[pixel] - X[a][0],
)


def schedule(energy: op.Energy, way: Way = None) -> Schedule:
    return derive(energy.problem, "float64", by_hand(energy, way)).schedule


@functools.cache
def of_everything(way: Way = None) -> Schedule:
    return schedule(EVERYTHING, way)


# -- values ------------------------------------------------------------------------------------------------------------


def test_functions_and_conditions_are_stored_once_with_their_readers_and_the_count() -> None:
    energy = op.Energy(grid=[op.sin(Z[i, j]) - op.sin(Z[i, j + 1]), op.where((A[i, j] > 0).all(), Z[i, j], 0)])
    derived = derive(energy.problem, "float64")
    by_operation = {repr(v.value).partition("(")[0]: v for v in derived.stored}
    sine, cosine, condition = (by_operation[n] for n in ("sin", "cos", ""))
    assert sine.readers == ("modelcost_0", "evalJTF_0")
    assert cosine.readers == ("modelcost_0", "evalJTF_0", "applyJTJ_0", "applyJTJ_damped_0")
    reasons = {v.name: v.reason for v in derived.schedule.values}
    assert list(reasons) == [repr(v.value) for v in derived.stored]
    assert reasons["sin(Z[i0, i1])"] == (
        "21 additions once at each linearisation; read at 3 places in modelcost_0, evalJTF_0"
    )
    assert condition.value.boolean
    assert reasons[repr(condition.value)].startswith("one byte in place of A; read at 1 place in ")
    assert {v.memory.field.dtype for v in derived.stored} == {"real", "bool"}


def test_numbers_at_points_that_graphs_reach_are_channels_of_one_field() -> None:
    values = derive(EVERYTHING.problem, "float64", by_hand(EVERYTHING, GATHERS[0])).stored
    at_vertices = [v.memory for v in values if v.memory.field.dims == (ir.Extent("V"),)]
    assert {m.field.channels for m in at_vertices} == {len(at_vertices)}
    assert sorted(m.channel for m in at_vertices) == list(range(len(at_vertices)))
    assert all(v.memory.field.channels == 1 for v in values if len(v.memory.field.dims) == 2)


def test_a_value_that_is_left_out_is_computed_in_every_routine() -> None:
    decided = of_everything()
    values = tuple(replace(v, stored=not v.name.startswith("cos")) for v in decided.values)
    assert values != decided.values
    less = derive(EVERYTHING.problem, "float64", replace(decided, values=values))
    assert [v.stored for v in less.schedule.values] == [not v.name.startswith("cos") for v in decided.values]
    sources = ["\n".join(p.functions[n] for n in p.groups[Group.PRODUCT]) for p in (less.listing, _program(decided))]
    assert ["cos" in text for text in sources] == [True, False]


def _program(given: Schedule) -> Any:
    return derive(EVERYTHING.problem, "float64", given).listing


def test_a_value_of_ones_own_choice_is_stored() -> None:
    """Any expression of one point: here a sum, which no rule would store."""
    energy = op.Energy(r=(Z[i, j] + A[i, j][0]) * Z[i, j + 1])
    home = ir.point(ir.canonical_domain((ir.Extent("H"), ir.Extent("W"))))
    z, first = (f for f in energy.problem.fields)
    sum_ = add(var(Access(z, home, 0)), var(Access(first, home, 0)))
    memory = Access(ir.Field("stored.0", z.dims, 1, ir.REAL, ir.Role.STORED), home, 0)
    groups = store_values(routines_of(energy).groups, [StoredValue(sum_, memory, ("evalJTF_0",))])
    (gradient,), (precomputed,) = groups[Group.GRADIENT], groups[Group.PRECOMPUTE]
    assert memory.field in {x.field for x in gradient.accesses()}
    assert [(s.target, s.value) for s in precomputed.assignments] == [(memory, sum_)]


# -- splits, layouts, orders -------------------------------------------------------------------------------------------


def test_sums_over_edges_on_grids_are_split_on_the_processor_only() -> None:
    decided = of_everything()
    assert {s.routine for s in decided.splits} == {"evalJTF_0", "evalJTF_block_0", "applyJTJ_0", "applyJTJ_damped_0"}
    assert all("(H, W)" in s.reason for s in decided.splits)
    assert derive_cuda(EVERYTHING.problem, "float64").schedule.splits == ()
    kept = tuple(replace(s, apart=n == 0) for n, s in enumerate(decided.splits))
    whole = derive(EVERYTHING.problem, "float64", replace(decided, splits=kept)).listing
    assert [len(whole.groups[g]) for g in (Group.GRADIENT, Group.PRODUCT)] == [3, 2]


def test_each_grid_has_a_layout_and_a_reason() -> None:
    recomputed, stored = (
        {"".join(d.name for d in x.dims): x for x in of_everything(way).layouts} for way in GATHERS[::2]
    )
    assert {name: x.interleaved for name, x in recomputed.items()} == {"HW": False, "V": True, "E": False}
    assert {name: x.interleaved for name, x in stored.items()} == {"HW": False, "V": True, "E": True}
    assert "rows" in stored["HW"].reason
    assert "graphs" in stored["E"].reason


def test_a_grid_that_is_solved_on_as_a_whole_is_planar_though_graphs_reach_it() -> None:
    energy = op.Energy(smooth=X[v] - X[v + 1], at=op.sin(X[a]))
    derived = routines_of(energy)
    assert isinstance(derived.coupling, ir.Coupling)
    routines = [r for found in derived.groups.values() for r in found]
    assert (ir.Extent("V"),) in gathered_grids(routines)
    (grid,) = (x for x in layouts(routines, derived.coupling, Target.CPU) if x.dims == (ir.Extent("V"),))
    assert not grid.interleaved
    assert "solves on the grid" in grid.reason
    without = ir.Uncoupled("none")
    assert next(x for x in layouts(routines, without, Target.CPU) if x.dims == grid.dims).interleaved


def test_a_layout_by_hand_is_that_of_the_program() -> None:
    decided = of_everything()
    planar = replace(decided, layouts=tuple(GridLayout(x.dims, False, reason="by hand") for x in decided.layouts))
    assert derive(EVERYTHING.problem, "float64", planar).listing.symbols.interleaved == set()
    assert derive(EVERYTHING.problem, "float64").listing.symbols.interleaved == decided.interleaved != set()


def test_channels_are_ordered_on_gpus_only() -> None:
    energy = op.Energy(r=op.exp(X[a][0] * X[b][1]) * op.sin(X[b][0] * X[a][1]) - X[a][0] * X[b][0])
    given = by_hand(energy, GATHERS[2])
    (order,) = derive_cuda(energy.problem, "float64", given).schedule.orders
    assert order.stored == "J.r"
    assert sorted(order.positions) == list(range(len(order.positions)))
    assert list(order.positions) != sorted(order.positions)
    assert order.reason
    assert derive(energy.problem, "float64", given).schedule.orders == ()


# -- the whole ---------------------------------------------------------------------------------------------------------


def test_a_schedule_prints_one_line_for_each_decision() -> None:
    decided = derive_cuda(EVERYTHING.problem, "float64", by_hand(EVERYTHING, GATHERS[2])).schedule
    lines = str(decided).split("\n")
    assert len(lines) == len(list(decided.decisions))
    assert "residual edges: J  # as asked" in lines
    assert {line.partition(" ")[0] for line in lines} >= {"residual", "value", "layout"}
    assert [str(d) for d in decided.decisions][-1] in lines[-1]


@pytest.mark.parametrize("target", Target)
def test_a_whole_schedule_by_hand_gives_the_same_text_as_the_decider(target: Target) -> None:
    if target is Target.CPU:
        decided = derive(EVERYTHING.problem, "float32")
        again = derive(EVERYTHING.problem, "float32", decided.schedule)
        assert again.listing.source == decided.listing.source
    else:
        on_gpu = derive_cuda(EVERYTHING.problem, "float32", (), target)
        same = derive_cuda(EVERYTHING.problem, "float32", on_gpu.schedule, target)
        assert same.listing.source == on_gpu.listing.source


@pytest.mark.native
@settings(deadline=None, derandomize=True, max_examples=6, suppress_health_check=list(HealthCheck))
@given(random_graph_energies(), st.sampled_from([None, *GATHERS]), st.data())
def test_any_choice_of_stored_values_layouts_and_splits_computes_the_same(
    random: RandomGraphEnergy, way: Way, draw: st.DataObject
) -> None:
    decided = schedule(random.energy, way)
    given_ = replace(
        decided,
        values=tuple(replace(x, stored=draw.draw(st.booleans())) for x in decided.values),
        splits=tuple(replace(x, apart=draw.draw(st.booleans())) for x in decided.splits),
        layouts=tuple(replace(x, interleaved=draw.draw(st.booleans())) for x in decided.layouts),
        normal=NormalSchedule(NormalForm.PRODUCTS),
    )
    solver = build(random.energy, "float64", given_)
    for sizes in SIZES:
        if possible(random.energy, sizes):
            check_everything(random.energy, random.data(**sizes), solver=solver)


@pytest.mark.native
def test_a_schedule_by_hand_gives_the_same_minimum() -> None:
    rng = np.random.default_rng(0)
    data = dict(
        Z=rng.normal(size=(6, 7)), A=rng.normal(size=(6, 7, 2)), X=rng.normal(size=(9, 2)), w=0.5,
        edges=rng.integers(0, 9, (30, 2)), seen=np.stack([rng.integers(0, 6, 30), rng.integers(0, 7, 30)], axis=1),
    )  # fmt: skip
    options: dict[str, Any] = dict(method="lm", max_iterations=30)
    chosen = build(EVERYTHING, "float64").solve(data, **options)
    none = Schedule(
        residuals=by_hand(EVERYTHING, GATHERS[3]), values={"*": "recomputed"}, splits={"*": "together"},
        layouts={"*": "planar"},
    )  # fmt: skip
    bare = build(EVERYTHING, "float64", none).solve(data, **options)
    assert bare.cost == pytest.approx(chosen.cost, rel=1e-7)
