"""Routines of energies that sample arrays on GPUs, against the dense Jacobian."""

from __future__ import annotations

import numpy as np
import pytest

from optpy.api.device_choice import DeviceChoice
from optpy.api.plan import build
from optpy.kernels.runtime.cuda.device import Device
from tests.support.operator_checks import check_everything
from tests.support.sampled_energies import ENERGIES, INEXACT_BLOCKS


@pytest.mark.parametrize("name", ENERGIES)
def test_every_routine_agrees_with_the_dense_jacobian(gpu: Device, name: str) -> None:
    energy, data = ENERGIES[name]()
    solver = build(energy, "float64", (), DeviceChoice(gpu, "as asked", False))
    for n in (2, 5):
        made = data(np.random.default_rng(n), n)
        check_everything(energy, made, solver=solver, exact_blocks=name not in INEXACT_BLOCKS)
