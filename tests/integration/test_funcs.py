"""Routines of energies with intermediates, however those are stored, against the dense Jacobian of what is written."""

from __future__ import annotations

import numpy as np
import pytest

from optpy.api.pipeline import derive
from optpy.api.plan import build
from optpy.ir import FuncSchedule, FuncStorage
from tests.support.func_energies import ENERGIES, EXACT_BLOCKS, SUMS
from tests.support.operator_checks import check_everything

pytestmark = pytest.mark.native

STORED = [(storage, in_cost) for storage in FuncStorage for in_cost in (False, True)]


@pytest.mark.parametrize(("storage", "in_cost"), STORED)
@pytest.mark.parametrize("name", ENERGIES)
def test_every_routine_agrees_with_the_dense_jacobian(name: str, storage: FuncStorage, in_cost: bool) -> None:
    energy, data = ENERGIES[name]()
    schedule = [FuncSchedule(f.name, storage, in_cost) for f in energy.problem.funcs]
    assert list(derive(energy.problem, "float64", schedule).schedule.funcs) == schedule
    solver = build(energy, "float64", schedule)
    for n in (2, 3, 6):
        check_everything(energy, data(np.random.default_rng(n), n), solver=solver)


@pytest.mark.parametrize("name", SUMS)
def test_every_routine_of_sums_agrees_with_the_dense_jacobian(name: str) -> None:
    energy, data = SUMS[name]()
    solver = build(energy, "float64")
    for n in (2, 3, 6):  # other sizes compile nothing anew
        check_everything(energy, data(np.random.default_rng(n), n), solver=solver, exact_blocks=name in EXACT_BLOCKS)
