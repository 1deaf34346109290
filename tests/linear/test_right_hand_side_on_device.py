"""(J^T J + D) x = b for any b, with each preconditioner on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from optpy.kernels.runtime.cuda.device import Device
from tests.support.any_right_hand_side import check
from tests.support.multigrid_cases import bending, values_of


@pytest.mark.parametrize("preconditioner", ["jacobi", "block_jacobi", "multigrid"])
def test_on_a_grid(gpu: Device, preconditioner: Any) -> None:
    energy = bending()
    check(energy, values_of(energy, (9, 11)), preconditioner, "cuda")
