from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import optpy as op
from problems import image_warping, pictures, sparse_warping
from problems.image_warping import Handle


@pytest.fixture
def astronaut(monkeypatch: pytest.MonkeyPatch) -> image_warping.Warp:
    monkeypatch.setenv("OPTPY_DATA", "")
    return sparse_warping.default_warp(24)


def test_shares_interpolate_positions() -> None:
    before = np.random.default_rng(0).uniform(0, [8, 5], (50, 2))
    before[:3] = [[8, 5], [0, 0], [3, 2]]  # the last pixel, the first, and one in between
    found = sparse_warping.matches(before, before + 1, np.ones((6, 9), bool))
    identity = image_warping.pixel_places(6, 9).astype(float)
    corners = found["match"].reshape(50, 4, 2)
    places = (found["Share"][..., None] * identity[corners[..., 0], corners[..., 1]]).sum(axis=1)
    np.testing.assert_allclose(places, before, atol=1e-12)
    np.testing.assert_allclose(found["Target"], before + 1)
    assert (found["Share"] >= 0).all()


def test_pixels_that_take_no_part_have_no_share() -> None:
    active = np.ones((4, 4), bool)
    active[:, 2:] = False
    before = np.array([[1.75, 1.0], [2.5, 1.0], [0.5, 0.5], [-0.1, 1.0], [0.0, 3.1]])
    found = sparse_warping.matches(before, before, active)
    assert len(found["match"]) == 2  # the second has no active pixel around it, the last two are outside
    np.testing.assert_allclose(found["Share"], [[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])


def test_points_of_a_disc_turn_as_one_piece() -> None:
    before, after = sparse_warping.points([Handle((10, 10), (8, 9), radius=3, turn=90), Handle((1, 2), (3, 4))])
    assert len(before) == sparse_warping.POINTS + 1
    away = before[:-1] - [10, 10]
    assert 2.9 < np.hypot(*away.T).max() <= 3
    np.testing.assert_allclose(after[:-1], [8, 9] + np.stack([-away[:, 1], away[:, 0]], axis=1))
    np.testing.assert_allclose([before[-1], after[-1]], [[1, 2], [3, 4]])


def test_the_cost_is_that_of_its_residuals(astronaut: image_warping.Warp) -> None:
    rng = np.random.default_rng(1)
    shape = (24, 24)
    data = astronaut.data | dict(Offset=rng.normal(0, 3, (*shape, 2)), Angle=rng.uniform(-1, 1, shape))
    x, angle, rest = data["Offset"], data["Angle"], data["UrShape"].astype(float)
    corners = data["match"].reshape(-1, 4, 2)
    fit = (data["Share"][..., None] * x[corners[..., 0], corners[..., 1]]).sum(axis=1) - data["Target"]
    expected = 0.5 * 10.0**2 * (fit**2).sum()
    for at, to in ((np.s_[:, :-1], np.s_[:, 1:]), (np.s_[:-1], np.s_[1:])):
        for one, other in ((at, to), (to, at)):
            d = rest[one] - rest[other]
            c, s = np.cos(angle[one]), np.sin(angle[one])
            turned = np.stack([c * d[..., 0] - s * d[..., 1], s * d[..., 0] + c * d[..., 1]], axis=-1)
            expected += 0.5 * 0.1**2 * ((x[one] - x[other] - turned) ** 2).sum()
    assert sparse_warping.energy.cost(data) == pytest.approx(expected, rel=1e-9)


def test_the_derivatives_are_right(astronaut: image_warping.Warp) -> None:
    op.check_gradients(sparse_warping.energy, astronaut.data, raise_exception=True)


def by_pixels(data: dict[str, Any]) -> dict[str, Any]:
    """The handles of `image_warping`'s data as matches of whole pixels."""
    pinned = (data["Constraints"] >= 0).all(axis=-1)
    before, after = data["UrShape"][pinned].astype(float), data["Constraints"][pinned].astype(float)
    rest = {name: value for name, value in data.items() if name != "Constraints"}
    return rest | sparse_warping.matches(before, after, data["Mask"] == 0)


@pytest.mark.parametrize("masked", [False, True])
def test_handles_at_pixels_have_the_minimum_of_an_image_of_handles(masked: bool) -> None:
    grid = image_warping.astronaut(32).data
    if masked:
        grid["Mask"][4:9, 20:27] = 1
    graph = by_pixels(grid)
    options: dict[str, Any] = dict(max_iterations=200, function_tolerance=1e-13)
    rng = np.random.default_rng(2)
    start = dict(Angle=rng.uniform(-0.1, 0.1, (32, 32)))
    assert sparse_warping.energy.cost(graph | start) == pytest.approx(image_warping.energy.cost(grid | start))
    one = op.solve(image_warping.energy, grid, "cpu", np.float64, **options)
    other = op.solve(sparse_warping.energy, graph, "cpu", np.float64, **options)
    assert one.cost < 0.01 * one.initial_cost
    assert other.cost == pytest.approx(one.cost, rel=1e-8)
    np.testing.assert_allclose(other.x["Offset"], one.x["Offset"], atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_astronaut_warps(astronaut: image_warping.Warp, dtype: type[np.floating]) -> None:
    data = astronaut.data
    result = op.solve(sparse_warping.energy, data, "cpu", dtype, max_iterations=100)
    assert result.success
    assert result.cost < 0.01 * result.initial_cost
    corners = data["match"].reshape(-1, 4, 2)
    places = (data["Share"][..., None] * result.x["Offset"][corners[..., 0], corners[..., 1]]).sum(axis=1)
    assert np.abs(places - data["Target"]).max() < 0.5


def test_multigrid_serves_the_grid_and_the_points_between_its_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTPY_DATA", "")
    data = sparse_warping.default_warp(96).data
    linear = {}
    for preconditioner in ("multigrid", "block_jacobi"):
        options: dict[str, Any] = dict(max_iterations=3, eta=0, r_tolerance=1e-4, preconditioner=preconditioner)
        result = op.solve(sparse_warping.energy, data, "cpu", np.float64, **options)
        linear[preconditioner] = sum(n.linear_iterations for n in result.iterations)
    assert linear["multigrid"] < linear["block_jacobi"] / 3
    result = op.solve(sparse_warping.energy, data, max_iterations=5)
    assert result.facts["Preconditioners used"] == "jacobi, then multigrid"


@pytest.mark.skipif(pictures.data_file("image_warping/cat512.png") is None, reason="the data folder is not there")
def test_the_cat_has_its_nine_handles() -> None:
    data = sparse_warping.default_warp().data
    assert len(data["match"]) == 9
    assert data["match"][0, :2].tolist() == [132, 30]
    np.testing.assert_allclose(data["Target"][0], [59, 44])


@pytest.mark.parametrize("size", [1, 2, 40])
def test_the_program_draws_before_and_after(tmp_path: Path, size: int) -> None:
    output = tmp_path / "warp.png"
    arguments = ["--size", str(size), "--iterations", "5", "--output", str(output)]
    run = CliRunner().invoke(sparse_warping.main, arguments, env={"OPTPY_DATA": ""}, catch_exceptions=False)
    assert run.exit_code == 0
    assert str(output) in run.output
    with Image.open(output) as opened:
        pixels = np.asarray(opened, dtype=np.float64)
    assert pixels.shape == (size, 2 * size + pictures.GAP, 3)
    if size == 40:
        assert np.abs(pixels[:, :40] - pixels[:, -40:]).mean() > 2  # grey levels of 255: it did move
