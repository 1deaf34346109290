from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

import optpy as op
from problems import pictures, poisson_image_editing
from problems.poisson_image_editing import Clone

needs_portraits = pytest.mark.skipif(
    pictures.data_file("poisson_image_editing/poisson0.png") is None, reason="the data folder is not there"
)


def reference_solution(clone: Clone) -> NDArray[np.float64]:
    """The normal equations of the cloning, assembled edge by edge and solved directly."""
    height, width = clone.mask.shape
    number = np.arange(height * width).reshape(height, width)
    tail = np.concatenate([number[:, :-1].ravel(), number[:-1].ravel()])
    head = np.concatenate([number[:, 1:].ravel(), number[1:].ravel()])
    unknown = (clone.mask == 0).ravel()
    kept = unknown[tail] | unknown[head]
    tail, head = tail[kept], head[kept]
    edge = np.arange(len(tail))
    entries = np.concatenate([-np.ones(len(edge)), np.ones(len(edge))])
    places = (np.concatenate([edge, edge]), np.concatenate([tail, head]))
    D = scipy.sparse.coo_matrix((entries, places), shape=(len(edge), height * width)).tocsc()
    X, S = clone.base.reshape(-1, 3).copy(), clone.source.reshape(-1, 3)
    right = D[:, unknown].T @ (D @ S - D[:, ~unknown] @ X[~unknown])
    X[unknown] = scipy.sparse.linalg.spsolve((D[:, unknown].T @ D[:, unknown]).tocsc(), right)
    return X.reshape(height, width, 3)


def test_cloning_solves_poissons_equation() -> None:
    clone = poisson_image_editing.latte_art(48)
    result = op.solve(
        poisson_image_editing.energy,
        clone.data,
        device="cpu",
        dtype=np.float64,
        method="gn",
        max_iterations=20,
    )
    np.testing.assert_allclose(result.x["X"], reference_solution(clone), atol=1e-4)
    np.testing.assert_array_equal(result.x["X"][clone.mask != 0], clone.base[clone.mask != 0])


def test_cloning_the_base_into_itself_is_already_solved() -> None:
    clone = poisson_image_editing.latte_art(32)
    assert poisson_image_editing.energy.cost(Clone(clone.base, clone.base, clone.mask).data) == 0


def test_the_cat_lies_inside_the_cup() -> None:
    clone = poisson_image_editing.latte_art(108)
    inside = clone.mask == 0
    assert clone.base.shape == clone.source.shape == (96, 108, 3)
    assert 0.1 < inside.mean() < 0.25
    assert clone.source[inside].min() > 0  # no pixel of the mask without a pixel of the cat
    np.testing.assert_array_equal(clone.pasted[inside], clone.source[inside])
    np.testing.assert_array_equal(clone.pasted[~inside], clone.base[~inside])


@needs_portraits
def test_the_portraits_have_the_unknown_pixels_of_their_description() -> None:
    clone = poisson_image_editing.portraits()
    assert clone.base.shape == clone.source.shape == (320, 448, 3)
    assert (clone.mask == 0).sum() == 120_532
    assert (clone.mask == 255).sum() == 22_828


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_program_draws_base_pasted_and_cloned(tmp_path: Path, dtype: str) -> None:
    output = tmp_path / "clone.png"
    arguments = ["--size", "36", "--dtype", dtype, "--output", str(output)]
    run = CliRunner().invoke(poisson_image_editing.main, arguments, env={"OPTPY_DATA": ""}, catch_exceptions=False)
    assert run.exit_code == 0
    assert str(output) in run.output
    with Image.open(output) as opened:
        assert opened.size == (3 * 36 + 2 * pictures.GAP, 32)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_program_takes_tiny_pictures(tmp_path: Path, size: int) -> None:
    output = tmp_path / "tiny.png"
    arguments = ["--size", str(size), "--output", str(output), "--quiet"]
    run = CliRunner().invoke(poisson_image_editing.main, arguments, env={"OPTPY_DATA": ""}, catch_exceptions=False)
    assert run.exit_code == 0
    assert output.is_file()
