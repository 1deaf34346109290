"""Unknowns at indices beyond affine on GPUs: routines against the dense Jacobian, by gathers and by scatters."""

from __future__ import annotations

import pytest

from optpy.kernels.runtime.cuda.device import Device
from tests.integration.test_operators_on_device import WAYS, solver_on
from tests.support.index_energies import CASES, WITH_GRAPHS, data_of
from tests.support.operator_checks import check_everything
from tests.support.schedules import Way


def check(gpu: Device, name: str, way: Way) -> None:
    energy = CASES[name].make()
    solver = solver_on(gpu, energy, "float64", way)
    for sizes in CASES[name].sizes[:3]:
        check_everything(energy, data_of(energy, sizes), solver=solver, exact_blocks=name != "sums")


@pytest.mark.parametrize("name", ["frames", "labels", "periodic"])
def test_routines_agree_with_the_dense_jacobian(gpu: Device, name: str) -> None:
    check(gpu, name, "scatter" if name == "labels" else None)


@pytest.mark.deep
@pytest.mark.parametrize("name", [name for name in CASES if name not in WITH_GRAPHS])
def test_every_energy(gpu: Device, name: str) -> None:
    check(gpu, name, None)


@pytest.mark.deep
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", WITH_GRAPHS)
def test_every_way(gpu: Device, name: str, way: Way) -> None:
    check(gpu, name, way)
