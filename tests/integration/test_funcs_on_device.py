"""Routines of energies with intermediates on GPUs, as scheduled and all stored, against the dense Jacobian."""

from __future__ import annotations

import numpy as np
import pytest

from optpy.api.device_choice import DeviceChoice
from optpy.api.plan import build
from optpy.ir import FuncSchedule, FuncStorage
from optpy.kernels.runtime.cuda.device import Device
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
