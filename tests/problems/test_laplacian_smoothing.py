from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.fft
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

import optpy as op
from problems import laplacian_smoothing, pictures


def exact_solution(A: NDArray[np.float64], w_fit: float, w_reg: float) -> NDArray[np.float64]:
    """The cosine transform diagonalises the Laplacian of differences that end at the border."""
    rows, columns = (2 - 2 * np.cos(np.pi * np.arange(n) / n) for n in A.shape)
    eigenvalues = w_fit**2 + w_reg**2 * (rows[:, None] + columns[None, :])
    solution: NDArray[np.float64] = scipy.fft.idctn(w_fit**2 * scipy.fft.dctn(A) / eigenvalues)
    return solution


@pytest.mark.parametrize("method", ["gn", "lm"])
def test_smoothing_agrees_with_the_closed_form(method: str) -> None:
    noisy = laplacian_smoothing.default_noisy(40)
    result = op.solve(
        laplacian_smoothing.energy,
        noisy.data,
        device="cpu",
        dtype=np.float64,
        method=method,
        max_iterations=20,
    )
    expected = exact_solution(noisy.noisy, noisy.data["w_fit"], noisy.data["w_reg"])
    np.testing.assert_allclose(result.x["X"], expected, atol=1e-4)


def test_smoothing_comes_nearer_to_the_clean_picture() -> None:
    noisy = laplacian_smoothing.default_noisy(256)
    result = op.solve(laplacian_smoothing.energy, noisy.data, device="cpu", method="gn", max_iterations=5)
    before, after = (np.sqrt(np.mean((p - noisy.clean) ** 2)) for p in (noisy.noisy, result.x["X"]))
    assert after < 0.75 * before


def test_the_noise_is_the_same_every_time() -> None:
    first, second = (laplacian_smoothing.default_noisy(24, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first.noisy, second.noisy)
    assert 0.05 < np.std(first.noisy - first.clean) < 0.15


def test_the_program_draws_before_and_after(tmp_path: Path) -> None:
    output = tmp_path / "smooth.png"
    arguments = ["--size", "32", "--method", "lm", "--output", str(output)]
    run = CliRunner().invoke(laplacian_smoothing.main, arguments, catch_exceptions=False)
    assert run.exit_code == 0
    assert str(output) in run.output
    with Image.open(output) as opened:
        assert opened.size == (2 * 32 + pictures.GAP, 32)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_program_takes_tiny_pictures(tmp_path: Path, size: int) -> None:
    output = tmp_path / "tiny.png"
    arguments = ["--size", str(size), "--output", str(output), "--quiet"]
    run = CliRunner().invoke(laplacian_smoothing.main, arguments, env={"OPTPY_DATA": ""}, catch_exceptions=False)
    assert run.exit_code == 0
    assert output.is_file()
