from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import optpy as op
from problems import pictures, shape_and_shading, shape_from_shading
from problems.shape_and_shading import OPTIONS, energy, with_unknown_light

needs_statue = pytest.mark.skipif(
    pictures.data_file("shape_from_shading/default.npz") is None, reason="the data folder is not there"
)


def test_with_the_light_given_the_terms_are_those_of_shape_from_shading() -> None:
    scan = shape_from_shading.relief(14)
    depth = scan.data["X"] + 0.001 * np.random.default_rng(0).normal(size=(14, 14))
    data = with_unknown_light(scan) | dict(L=np.array(shape_from_shading.LIGHT), X=depth)
    found, expected = energy.residuals(data), shape_from_shading.energy.residuals(scan.data | dict(X=depth))
    for name, values in expected.items():
        assert values.any()
        np.testing.assert_allclose(found[name], values, rtol=1e-12, atol=1e-12)
    steps = np.diff(found["brightness"], axis=1)[1:-1, 1:]
    np.testing.assert_allclose(steps, -0.1 * expected["shade[0]"][1:-1, 1:-1], atol=1e-12)


def test_the_derivatives_are_right() -> None:
    op.check_gradients(energy, with_unknown_light(shape_from_shading.relief(8)), raise_exception=True)


def test_the_light_is_shared_by_all_pixels() -> None:
    data = with_unknown_light(shape_from_shading.relief(10))
    J = energy.jacobian(data)
    assert J.shape[1] == 100 + 9
    brightness = J.toarray()[:, 100:]
    assert (np.abs(brightness).max(axis=0) > 0).all()


@pytest.mark.optimised
def test_shape_and_light_are_found_together() -> None:
    """The surface looks as it is; how deep it is in all, and how bright the light, brightness tells less of."""
    scan = shape_from_shading.relief(64)
    assert scan.truth is not None
    data = with_unknown_light(scan)
    result = op.solve(energy, data, device="cpu", dtype=np.float32, max_iterations=40, **OPTIONS)
    assert result.cost < 0.02 * result.initial_cost
    wanted = scan.drawn(scan.truth)
    before, after = (np.std((scan.drawn(x) - wanted)[12:-12, 12:-12]) for x in (scan.data["X"], result.x["X"]))
    assert after < 0.75 * before


@pytest.mark.optimised
@needs_statue
def test_the_statue_is_refined_in_unknown_light() -> None:
    data = with_unknown_light(shape_from_shading.statue())
    result = op.solve(energy, data, device="cpu", dtype=np.float32, max_iterations=12, **OPTIONS)
    assert result.cost < 0.5 * result.initial_cost


def test_the_program_draws_the_surface_and_a_ball(tmp_path: Path) -> None:
    output = tmp_path / "surface.png"
    arguments = ["--size", "40", "--iterations", "3", "--device", "cpu", "--output", str(output)]
    done = CliRunner().invoke(shape_and_shading.main, arguments)
    assert done.exit_code == 0, done.output
    assert "\nlight: " in done.output
    with Image.open(output) as picture:
        assert picture.size == (3 * 40 + 2 * pictures.GAP, 40)
