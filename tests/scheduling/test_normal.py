"""The form of J^T J: decided by how the unknowns are coupled, and by hand."""

from __future__ import annotations

from typing import Any

import pytest

import optpy as op
from optpy.api.pipeline import derive, derive_cuda
from optpy.api.plan import build
from optpy.errors import OptionError
from optpy.ir import Coupling, Group, NormalForm, NormalMatrix, NormalSchedule, Schedule
from tests.linear.assembled.test_assembled import uneven
from tests.support.multigrid_cases import bending, values_of

H, W, V, E = op.dims("H W V E")
i, j = op.indices(H, W)
v, e = op.indices(V, E)
X, Y = op.Unknown("X", (H, W)), op.Unknown("Y", (V,))
(seen,) = op.Graph("seen", E, ((H, W),))[e]

TWO_GRIDS = op.Energy(at=X[seen], smooth=Y[v] - Y[v + 1])
ON_GRID, ON_GRAPH = bending(), uneven()


def decided(energy: op.Energy, *, cuda: bool = False) -> NormalSchedule:
    schedule = (derive_cuda if cuda else derive)(energy.problem, "float64").schedule
    assert schedule.normal is not None
    return schedule.normal


def by_hand(form: NormalForm) -> Schedule:
    return Schedule(normal=NormalSchedule(form, "by hand"))


@pytest.mark.parametrize("cuda", [False, True])
def test_near_neighbours_on_a_grid_have_levels_on_every_device(cuda: bool) -> None:
    found = decided(ON_GRID, cuda=cuda)
    assert found.form is NormalForm.LEVELS
    assert found.reason == "its unknowns all stand on (H, W) and are coupled with near neighbours there"


def test_unknowns_on_a_graph_have_a_matrix_on_the_cpu_alone() -> None:
    assert decided(ON_GRAPH).form is NormalForm.MATRIX
    assert decided(ON_GRAPH).reason.startswith("no levels of a grid: ")
    on_gpu = decided(ON_GRAPH, cuda=True)
    assert on_gpu.form is NormalForm.PRODUCTS
    assert on_gpu.reason.endswith("; no matrix: what works on a matrix is native code of the CPU")


def test_unknowns_on_two_grids_have_products_alone_and_both_reasons() -> None:
    found = decided(TWO_GRIDS)
    assert found.form is NormalForm.PRODUCTS
    levels, matrix = found.reason.split("; ")
    assert levels.startswith("no levels of a grid: the unknowns must all stand on one grid")
    assert matrix.startswith("no matrix: 'X")


def test_a_form_by_hand_decides_on_the_routines() -> None:
    made = {form: derive(ON_GRID.problem, "float64", by_hand(form)) for form in NormalForm}
    assert all(derived.schedule.normal == by_hand(form).normal for form, derived in made.items())
    assert {form for form, d in made.items() if isinstance(d.routines.coupling, Coupling)} == {NormalForm.LEVELS}
    assert {form for form, d in made.items() if isinstance(d.routines.normal, NormalMatrix)} == {NormalForm.MATRIX}
    assert {form for form, d in made.items() if Group.SMOOTH_SMOOTHED in d.routines.groups} == {NormalForm.LEVELS}
    assert {form for form, d in made.items() if Group.START_ASSEMBLED in d.routines.groups} == {NormalForm.MATRIX}


def test_a_form_that_there_is_not_is_refused_with_the_reason() -> None:
    with pytest.raises(OptionError, match=r"J\^T J cannot be levels: no term couples"):
        derive(ON_GRAPH.problem, "float64", by_hand(NormalForm.LEVELS))
    with pytest.raises(OptionError, match=r"J\^T J cannot be matrix: 'X.* stand on different"):
        derive(TWO_GRIDS.problem, "float64", by_hand(NormalForm.MATRIX))
    with pytest.raises(OptionError, match="native code of the CPU"):
        derive_cuda(ON_GRAPH.problem, "float64", by_hand(NormalForm.MATRIX))


@pytest.mark.native
def test_a_grid_whose_matrix_is_assembled_by_hand_has_the_same_minimum() -> None:
    data = values_of(ON_GRID, (9, 11))
    options: dict[str, Any] = dict(preconditioner="multigrid", eta=1e-6)
    levels = build(ON_GRID, "float64").solve(data, **options)
    solver = build(ON_GRID, "float64", by_hand(NormalForm.MATRIX))
    for matrix in (solver.solve(data, **options), solver.solve(data, preconditioner="cholesky")):
        assert matrix.success
        assert matrix.cost == pytest.approx(levels.cost, rel=1e-9)


@pytest.mark.native
def test_without_levels_or_a_matrix_there_is_nothing_to_take() -> None:
    data = values_of(ON_GRID, (9, 11))
    solver = build(ON_GRID, "float64", by_hand(NormalForm.PRODUCTS))
    with pytest.raises(OptionError, match=r"'multigrid' does not apply: the schedule has J\^T J as products"):
        solver.solve(data, preconditioner="multigrid")
    assert "multigrid" not in solver.solve(data).report()
