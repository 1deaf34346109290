from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import optpy as op
from problems import pictures, shape_from_shading
from problems.shape_from_shading import Scan

needs_statue = pytest.mark.skipif(
    pictures.data_file("shape_from_shading/default.npz") is None, reason="the data folder is not there"
)


def error(scan: Scan, depth: np.ndarray) -> float:
    """Of a depth where something was measured, in metres, but for a constant."""
    assert scan.truth is not None
    off = (depth - scan.truth)[scan.data["D"] > 0]
    return float(np.std(off))


def test_shading_brings_back_what_the_scan_has_lost() -> None:
    scan = shape_from_shading.relief(64)
    result = op.solve(shape_from_shading.energy, scan.data, device="cpu", dtype=np.float64, max_iterations=60)
    assert result.cost < 0.01 * result.initial_cost
    assert error(scan, result.x["X"]) < 0.6 * error(scan, scan.data["X"])
    outside = scan.data["D"] == 0
    np.testing.assert_array_equal(result.x["X"][outside], 0)


def test_a_picture_of_the_scan_itself_leaves_no_contrast() -> None:
    scan = shape_from_shading.relief(32)
    assert scan.truth is not None
    exact = np.where(scan.data["D"] > 0, scan.truth, 0)
    cost = shape_from_shading.energy.residuals(scan.data | dict(D=exact, X=exact))
    # The picture is blurred in the energy, as a camera blurs it: half a pixel, and no more.
    assert max(np.abs(cost["shade[0]"]).max(), np.abs(cost["shade[1]"]).max()) < 0.1


def test_the_derivatives_are_right() -> None:
    data = shape_from_shading.relief(9).data
    op.check_gradients(shape_from_shading.energy, data, raise_exception=True)


def test_intermediates_change_neither_residuals_nor_derivatives() -> None:
    data, energy, inline = shape_from_shading.relief(12).data, shape_from_shading.energy, shape_from_shading.inline
    data["X"] = data["X"] + 0.003 * np.random.default_rng(0).normal(size=data["X"].shape)
    assert [f.name for f in energy.problem.funcs] == ["B", "whole"]
    assert not inline.problem.funcs
    found, expected = energy.residuals(data), inline.residuals(data)
    for name, values in expected.items():
        assert values.any()
        np.testing.assert_allclose(found[name], values, rtol=1e-12, atol=1e-12)
    J, expected_J = energy.jacobian(data).toarray(), inline.jacobian(data).toarray()
    np.testing.assert_allclose(J, expected_J, rtol=1e-12, atol=1e-12 * np.abs(expected_J).max())


@needs_statue
def test_the_statue_costs_what_it_costs_elsewhere() -> None:
    data = shape_from_shading.statue().data
    assert data["D"].shape == (480, 640)
    for energy in (shape_from_shading.energy, shape_from_shading.inline):
        assert energy.cost(data) == pytest.approx(128.722776, abs=1e-6)
    found, expected = (e.jacobian(data) for e in (shape_from_shading.energy, shape_from_shading.inline))
    assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()


@pytest.mark.optimised
@needs_statue
def test_the_statue_is_refined() -> None:
    """Below the costs at which Ceres is after 12 iterations: 70.2 with conjugate gradients, 67.6 with Cholesky."""
    data = shape_from_shading.statue().data
    result = op.solve(shape_from_shading.energy, data, device="cpu", dtype=np.float32, method="lm", max_iterations=18)
    assert result.cost < 67.605


def test_a_file_that_was_cut_short_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "short.imagedump"
    path.write_bytes(np.array([3, 2, 1, 0], "<i4").tobytes() + np.zeros(5, "<f4").tobytes())
    with pytest.raises(ValueError, match="3 x 2 x 1 numbers announced, 5 found"):
        shape_from_shading.read_image_dump(path)


def test_the_program_draws_the_surface_before_and_after(tmp_path: Path) -> None:
    output = tmp_path / "surface.png"
    arguments = ["--size", "40", "--iterations", "3", "--device", "cpu", "--quiet", "--output", str(output)]
    done = CliRunner().invoke(shape_from_shading.main, arguments)
    assert done.exit_code == 0, done.output
    with Image.open(output) as picture:
        assert picture.size == (2 * 40 + pictures.GAP, 40)
