"""The bench of the host's time for launches runs, and counts them."""

from __future__ import annotations

import pytest

from bench import launches
from bench.__main__ import load_case

pytestmark = pytest.mark.bench


def test_an_iteration_is_three_launches() -> None:
    found = launches.measure(load_case("poisson"), iterations=3, repeat=2)
    assert found.launches == 3
    assert found.launch == found.iteration / 3 > 0
