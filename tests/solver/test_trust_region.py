from __future__ import annotations

import numpy as np
import pytest

from optpy.solver import Damping
from optpy.solver.trust_region import TrustRegion


@pytest.mark.parametrize(
    ("rho", "factor"), [(1.0, 3.0), (0.5, 1.0), (0.0, 0.5), (0.25, 1 / 1.125), (7.0, 3.0), (1e300, 3.0)]
)
def test_an_accepted_step_moves_the_radius_by_its_quality(rho: float, factor: float) -> None:
    region = TrustRegion(10.0, 1e16).accepted(rho)
    assert region.radius == pytest.approx(10 * factor)


def test_rejections_shrink_faster_and_faster_until_a_step_is_accepted() -> None:
    region, radii = TrustRegion(1024.0, 1e16), []
    for _ in range(3):
        region = region.rejected()
        radii.append(region.radius)
    assert radii == [512.0, 128.0, 16.0]
    assert region.accepted(0.5).rejected().radius == 8.0


def test_the_radius_grows_no_larger_than_its_maximum() -> None:
    assert TrustRegion(10.0, 20.0).accepted(1.0).radius == 20.0


def test_damping_is_ceres_diagonal() -> None:
    c = np.array([0.0, 1e-8, 1.0, 100.0, 1e10])
    s = 1 / (1 + np.sqrt(c))
    D = Damping(50.0, 1e-6, 1e32, True).diagonal(c)
    np.testing.assert_allclose(D, np.maximum(c * s**2, 1e-6) / 50 / s**2)
    np.testing.assert_allclose(Damping(50.0, 1e-6, 10.0, False).diagonal(c), np.clip(c, 1e-6, 10) / 50)


def test_an_infinite_radius_is_no_damping() -> None:
    assert not Damping(np.inf, 1e-6, 1e32, True).diagonal(np.ones(3)).any()
