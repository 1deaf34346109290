from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

import optpy as op
from problems import blendshape_fitting as problem
from problems import meshes
from problems.blendshape_fitting import Fitting, energy, fitting


def small(count: int = 6, noise: float = 0.002) -> Fitting:
    return fitting(meshes.pebble(2), count, noise)


def disturbed(data: dict[str, Any]) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    turned = Rotation.from_rotvec([0.3, 0.1, -0.2]).as_quat()
    return data | dict(Weight=rng.normal(size=data["Weight"].shape), Turn=turned, Move=rng.normal(size=3))


def test_the_cost_is_that_of_the_model() -> None:
    data = disturbed(small().data)
    shaped = data["Mean"] + np.tensordot(data["Weight"], data["Shape"], axes=(0, 1))
    r = Rotation.from_quat(data["Turn"]).apply(shaped) + data["Move"] - data["Target"]
    expected = 0.5 * ((r**2).sum() + (data["w_prior"] ** 2 * data["Weight"] ** 2).sum())
    assert energy.cost(data) == pytest.approx(expected, rel=1e-12)


def test_the_derivatives_are_right() -> None:
    op.check_gradients(energy, disturbed(small().data), raise_exception=True)


def test_shapes_are_orthogonal_and_no_rigid_motions() -> None:
    task = small(20)
    points = np.asarray(task.mesh.vertices)
    columns = task.shapes.transpose(0, 2, 1).reshape(-1, 20)
    products = columns.T @ columns
    np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-12 * products.max())
    assert (np.diff(np.diag(products)) < 0).all()
    for axis in np.eye(3):
        for rigid in (np.tile(axis, (len(points), 1)), np.cross(axis, points)):
            np.testing.assert_allclose(rigid.ravel() @ columns, 0, atol=1e-9)


@pytest.mark.parametrize(("dtype", "count"), [(np.float32, 6), (np.float64, 6), (np.float64, 40)])
def test_the_weights_are_found(dtype: Any, count: int) -> None:
    task = small(count, noise=0.0005)
    result = op.solve(energy, task.data, "cpu", dtype)
    assert result.success
    assert np.abs(result.x["Weight"] - task.weights).max() < 0.05  # of a standard deviation
    turn = Rotation.from_quat(result.x["Turn"]).as_rotvec()
    np.testing.assert_allclose(turn, [0.1, -0.5, 0.2], atol=0.01)
    assert np.abs(np.asarray(task.fitted(result.x).vertices) - task.target).max() < 0.02


def test_without_noise_they_are_exact() -> None:
    task = small(noise=0.0)
    result = op.solve(energy, task.data, "cpu", np.float64, max_iterations=200)
    np.testing.assert_allclose(result.x["Weight"], task.weights, atol=1e-6)


def test_the_minimum_is_that_of_scipy() -> None:
    task = small()
    ours = op.solve(energy, task.data, "cpu", np.float64)

    def residuals(x: Any) -> Any:
        shaped = task.data["Mean"] + np.tensordot(x[6:], task.shapes, axes=(0, 1))
        fit = Rotation.from_rotvec(x[:3]).apply(shaped) + x[3:6] - task.target
        return np.concatenate([fit.ravel(), task.w_prior * x[6:]])

    theirs = least_squares(residuals, np.zeros(6 + 6))
    assert ours.cost == pytest.approx(theirs.cost, rel=1e-7)
    np.testing.assert_allclose(ours.x["Weight"], theirs.x[6:], atol=1e-4)


def test_any_number_of_shapes_and_vertices_runs_the_same_program() -> None:
    solver = op.compile(energy, "cpu", np.float64)
    for count, subdivisions in ((3, 1), (11, 2), (1, 1)):
        task = fitting(meshes.pebble(subdivisions), count)
        assert np.abs(solver.solve(task.data).x["Weight"] - task.weights).max() < 0.1


def test_the_program_leaves_a_mesh_and_a_picture(tmp_path: Path) -> None:
    arguments = ["--shapes", "5", "--output", str(tmp_path / "out.png"), "--dtype", "float64"]
    run = CliRunner().invoke(problem.main, arguments, env={"OPTPY_DATA": ""}, catch_exceptions=False)
    assert run.exit_code == 0
    assert (tmp_path / "out.png").is_file()
    target = fitting(meshes.pebble(), 5).target
    assert np.abs(np.asarray(meshes.read_mesh(tmp_path / "out.ply").vertices) - target).max() < 0.02
