from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import optpy as op
from problems import intrinsic_images, pictures
from problems.intrinsic_images import SMALLEST, energy, painted


def test_the_cost_is_the_norm_that_it_stands_for() -> None:
    """Half of `w^2 |d|^p` for each difference of reflectance, at the weights of the point itself."""
    data = painted(12)[0].data
    R, S, chroma = (np.asarray(data[name]) for name in ("R", "S", "Chroma"))
    R = R + np.random.default_rng(0).normal(0, 0.1, R.shape)
    total = 100 * ((R + S[..., None] - data["Image"]) ** 2).sum() + 0.01**2 * (S**2).sum()
    for axis in (0, 1):
        alike = np.exp(-20 * np.linalg.norm(np.diff(chroma, axis=axis), axis=-1))
        square = (np.diff(R, axis=axis) ** 2).sum(axis=-1)
        total += 9 * (alike**2 * square * (square + SMALLEST**2) ** (0.8 / 2 - 1)).sum()
        total += 64 * (np.diff(S, axis=axis) ** 2).sum()
    assert energy.cost(data | dict(R=R)) == pytest.approx(total / 2, rel=1e-9)


def test_light_and_colours_of_a_painted_scene_are_told_apart() -> None:
    scene, reflectance, shading = painted(32)
    result = op.solve(energy, scene.data, "cpu", np.float64, method="gn", max_iterations=12)
    truth = np.log(shading)
    start, found = (np.asarray(x) - np.mean(x) for x in (scene.data["S"], result.x["S"]))
    truth -= truth.mean()
    assert np.std(found - truth) < 0.25 * np.std(start - truth)
    colours = np.log(reflectance)
    colours -= colours.mean(axis=(0, 1))
    seen = result.x["R"] - result.x["R"].mean(axis=(0, 1))
    assert np.std(seen - colours) < 0.2 * np.std(colours)
    # Flat but for the edges between the four colours.
    steps = np.abs(np.diff(result.x["R"], axis=1)).max(axis=-1)
    assert np.quantile(steps, 0.9) < 1e-2
    assert steps.max() > 0.2


def test_the_derivatives_are_right() -> None:
    data = painted(6)[0].data
    data["R"] = data["R"] + np.random.default_rng(1).normal(0, 0.05, data["R"].shape)
    op.check_gradients(energy, data, raise_exception=True)


def test_a_photograph_starts_as_reflectance_times_shading() -> None:
    data = intrinsic_images.default_photograph(20).data
    whole = np.exp(data["R"] + data["S"][..., None])
    np.testing.assert_allclose(whole, np.exp(data["Image"]), rtol=1e-12)
    np.testing.assert_allclose(data["Chroma"].sum(axis=-1), 1, rtol=1e-12)


def test_the_program_draws_photograph_reflectance_and_shading(tmp_path: Path) -> None:
    output = tmp_path / "parts.png"
    arguments = ["--size", "36", "--iterations", "2", "--device", "cpu", "--quiet", "--output", str(output)]
    done = CliRunner().invoke(intrinsic_images.main, arguments)
    assert done.exit_code == 0, done.output
    with Image.open(output) as picture:
        assert picture.size == (3 * 36 + 2 * pictures.GAP, 24)
