"""A derivative that is not finite at the start, told on GPUs as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from optpy.kernels.runtime.cuda.device import Device
from tests.integration.test_infinite_slopes import check


@pytest.mark.parametrize("name", ["grid", "edges", "manifold"])
def test_the_place_the_operation_and_the_cure_are_told(gpu: Device, name: str) -> None:
    check(name, np.float32, "cuda")
