"""Routines of energies with intermediates, named or found, on GPUs against the dense Jacobian."""

from __future__ import annotations

import numpy as np
import pytest

from optpy.api.device_choice import DeviceChoice
from optpy.api.plan import build
from optpy.ir import FuncSchedule, FuncStorage
from optpy.kernels.runtime.cuda.device import Device
from optpy.scheduling.funcs import with_found_funcs
from tests.support.common_energies import Written
from tests.support.func_energies import ENERGIES
from tests.support.operator_checks import check_everything


@pytest.mark.parametrize("all_stored", [False, True])
@pytest.mark.parametrize("name", ENERGIES)
def test_every_routine_agrees_with_the_dense_jacobian(gpu: Device, name: str, all_stored: bool) -> None:
    energy, data = ENERGIES[name]()
    stored = [FuncSchedule(f.name, FuncStorage.PARTIALS, True) for f in energy.problem.funcs] if all_stored else []
    solver = build(energy, "float64", stored, DeviceChoice(gpu, "as asked", False))
    for n in (2, 5):
        check_everything(energy, data(np.random.default_rng(n), n), solver=solver)


@pytest.mark.parametrize("seed", [55, pytest.param(8, marks=pytest.mark.deep)])
def test_every_routine_of_found_ones_agrees_with_the_dense_jacobian(gpu: Device, seed: int) -> None:
    written = Written(np.random.default_rng(seed), outside=seed % 3 == 0)
    energy = written.energy()
    stored = [FuncSchedule(f.name, FuncStorage.PARTIALS, True) for f in with_found_funcs(energy.problem).funcs]
    assert stored
    solver = build(energy, "float64", stored, DeviceChoice(gpu, "as asked", False))
    for rows, columns in ((1, 1), (9, 8)):
        check_everything(energy, written.data(rows, columns), solver=solver)
