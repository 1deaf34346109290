from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import optpy as op
from problems import deconvolution as problem
from problems import pictures
from problems.deconvolution import HALF, OPTIONS, Photograph, default_photograph, energy, photograph


def tiny() -> Photograph:
    """Barely larger than a kernel."""
    return photograph(np.random.default_rng(0).uniform(size=(19, 18)))


def blurred_by_loops(task: Photograph, y: int, x: int) -> float:
    kernel = task.kernels @ problem.corner_shares(task.sharp.shape[:2])[y, x]
    return float((task.sharp[y - HALF : y + HALF + 1, x - HALF : x + HALF + 1] * kernel).sum())


def test_the_kernels_blend_from_corner_to_corner() -> None:
    task = photograph(np.random.default_rng(1).uniform(size=(24, 22)), noise=0.0)
    np.testing.assert_allclose(task.kernels.sum(axis=(0, 1)), 1)
    for y, x in ((8, 8), (15, 13), (10, 12)):
        assert task.blurred[y, x] == pytest.approx(blurred_by_loops(task, y, x), rel=1e-9)


def test_the_energy_blurs_as_the_photograph_is_blurred() -> None:
    task = photograph(np.random.default_rng(2).uniform(size=(19, 20)), noise=0.0)
    found = energy.residuals(task.data | dict(X=task.sharp))["fit"]
    np.testing.assert_allclose(found, 0, atol=1e-12)
    off = energy.residuals(task.data | dict(X=task.sharp, Blurred=task.blurred + 1))["fit"]
    counted = np.zeros_like(off)
    counted[HALF:-HALF, HALF:-HALF] = -1  # only where the whole window lies in the picture
    np.testing.assert_allclose(off, counted, atol=1e-12)


def test_the_derivatives_are_right() -> None:
    smaller = tiny().kernels[6:-6, 6:-6]  # another size is only other data: a sum over fewer pixels
    op.check_gradients(energy, tiny().data | dict(Kernel=smaller), raise_exception=True)


@pytest.mark.optimised
def test_a_photograph_gets_sharper() -> None:
    task = default_photograph(64)
    result = op.solve(energy, task.data, "cpu", np.float32, method="gn", **OPTIONS)
    assert result.success
    assert task.decibels(result.x["X"]) > task.decibels(task.blurred) + 4


def test_a_larger_window_is_other_data() -> None:
    """Zeros about the kernels change nothing, but for where they are read."""
    task = tiny()
    wider = task.data | dict(Kernel=np.pad(task.kernels, ((0, 2), (0, 3), (0, 0))))
    assert energy.cost(wider) == pytest.approx(energy.cost(task.data), rel=1e-12)


def test_the_program_draws_before_and_after(tmp_path: Path) -> None:
    output = tmp_path / "sharp.png"
    arguments = ["--size", "32", "--output", str(output)]
    run = CliRunner().invoke(problem.main, arguments, catch_exceptions=False)
    assert run.exit_code == 0
    with Image.open(output) as opened:
        assert opened.size == (2 * 32 + pictures.GAP, 32)


@pytest.mark.parametrize("size", [1, 3])
def test_the_program_takes_tiny_pictures(tmp_path: Path, size: int) -> None:
    arguments = ["--size", str(size), "--output", str(tmp_path / "tiny.png"), "--quiet"]
    run = CliRunner().invoke(problem.main, arguments, catch_exceptions=False)
    assert run.exit_code == 0
    assert (tmp_path / "tiny.png").is_file()
