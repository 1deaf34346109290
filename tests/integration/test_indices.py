"""Unknowns at indices beyond affine: generated routines against the dense Jacobian, and that against differences."""

from __future__ import annotations

import functools

import pytest

import optpy as op
from optpy.api.plan import build
from optpy.energy.gradients import check_gradients
from tests.kernels.codegen.test_loops_of_energies import check_loops
from tests.support.deep import but_deep
from tests.support.index_energies import CASES, WITH_GRAPHS, data_of
from tests.support.operator_checks import check_everything
from tests.support.schedules import GATHERS, Way, by_hand


@functools.cache
def energy_of(name: str) -> op.Energy:
    return CASES[name].make()


@pytest.mark.native
@pytest.mark.parametrize("name", CASES)
def test_routines_agree_with_the_dense_jacobian(name: str) -> None:
    energy = energy_of(name)
    solver = build(energy, "float64")
    for sizes in CASES[name].sizes:
        check_everything(energy, data_of(energy, sizes), solver=solver, exact_blocks=name != "sums")


@pytest.mark.deep
@pytest.mark.native
@pytest.mark.parametrize("way", GATHERS, ids=str)
@pytest.mark.parametrize("name", WITH_GRAPHS)
def test_every_schedule_agrees_with_the_dense_jacobian(name: str, way: Way) -> None:
    energy = energy_of(name)
    solver = build(energy, "float64", by_hand(energy, way))
    for sizes in CASES[name].sizes:
        check_everything(energy, data_of(energy, sizes), solver=solver)


@pytest.mark.parametrize("name", CASES)
def test_the_jacobian_agrees_with_differences(name: str) -> None:
    energy = energy_of(name)
    for sizes in CASES[name].sizes[:2]:
        assert check_gradients(energy, data_of(energy, sizes), 1e-5)


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu, scatter"])
@pytest.mark.parametrize("name", but_deep(CASES, ("frames", "labels", "enlarged")))
def test_loops_compute_what_routines_say(name: str, target: str) -> None:
    energy = energy_of(name)
    if name != "sums":  # whose passes are in no group that is compared
        way: Way = "scatter" if "scatter" in target else None
        check_loops(energy, data_of(energy, CASES[name].sizes[1]), target != "cpu", way)
