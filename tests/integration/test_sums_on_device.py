"""Routines of energies with sums on GPUs against the dense Jacobian."""

from __future__ import annotations

import numpy as np
import pytest

from optpy.api.device_choice import DeviceChoice
from optpy.api.plan import build
from optpy.kernels.runtime.cuda.device import Device
from tests.support.func_energies import EXACT_BLOCKS, SUMS
from tests.support.operator_checks import check_everything


@pytest.mark.parametrize("name", SUMS)
def test_every_routine_agrees_with_the_dense_jacobian(gpu: Device, name: str) -> None:
    energy, data = SUMS[name]()
    solver = build(energy, "float64", (), DeviceChoice(gpu, "as asked", False))
    for n in (2, 5):
        check_everything(energy, data(np.random.default_rng(n), n), solver=solver, exact_blocks=name in EXACT_BLOCKS)
