from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.spatial.transform import Rotation

import optpy as op
from bench.torus import torus
from problems import embedded_deformation, meshes
from problems.embedded_deformation import Deformation, deformation, energy


def small() -> Deformation:
    return deformation(meshes.pebble(2))


def disturbed(data: dict[str, Any]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return data | {n: data[n] + rng.normal(0, 0.2, data[n].shape) for n in ("Matrix", "Translation")}


def test_the_cost_is_that_of_the_paper() -> None:
    data = disturbed(small().data) | dict(w_rot=1.5, w_reg=0.7, w_con=3.0)
    R, t, g = data["Matrix"].reshape(-1, 3, 3), data["Translation"], data["UrShape"]
    c1, c2, c3 = R[:, :, 0], R[:, :, 1], R[:, :, 2]
    pairs = [(c1, c2), (c1, c3), (c2, c3), (c1, c1), (c2, c2), (c3, c3)]
    rot = sum((((p * q).sum(axis=1) - (p is q)) ** 2).sum() for p, q in pairs)
    reg = sum(
        ((R[j] @ (g[k] - g[j]) + g[j] + t[j] - (g[k] + t[k])) ** 2).sum() for j, k in data["edges"].tolist()
    )  # fmt: skip
    con = ((g + t - data["Constraints"])[data["Handle"]] ** 2).sum()
    expected = 0.5 * (1.5**2 * rot + 0.7**2 * reg + 3.0**2 * con)
    assert energy.cost(data) == pytest.approx(expected, rel=1e-9)


def test_every_vertex_has_twelve_unknowns() -> None:
    data = small().data
    assert energy.jacobian(data).shape[1] == 12 * len(data["UrShape"])


def test_the_derivatives_are_right() -> None:
    op.check_gradients(energy, disturbed(small().data), raise_exception=True)


def test_a_mesh_that_only_turns_costs_nothing() -> None:
    task = small()
    g = np.asarray(task.mesh.vertices)
    R = Rotation.from_euler("xyz", [0.3, -1.0, 0.8]).as_matrix()
    rotated = g @ R.T + [1.0, 2.0, 3.0]
    data = task.data | dict(Matrix=np.tile(R.ravel(), (len(g), 1)), Translation=rotated - g, Constraints=rotated)
    assert energy.cost(data) == pytest.approx(0, abs=1e-20)


def test_the_mesh_is_scaled_to_edges_of_length_one() -> None:
    assert np.mean(small().mesh.edges_unique_length) == pytest.approx(1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_deformation_converges(dtype: type[np.floating]) -> None:
    task = small()
    result = op.solve(energy, task.data, "cpu", dtype, max_iterations=100)
    assert result.success
    assert result.cost < 0.01 * result.initial_cost
    after = np.asarray(task.moved_by(result.x["Translation"]).vertices)
    assert np.linalg.norm(after - task.handles.target, axis=1)[task.handles.pulled].max() < 0.2  # lengths of an edge
    determinants = np.linalg.det(result.x["Matrix"].reshape(-1, 3, 3))
    assert np.abs(determinants - 1).max() < 0.5


def test_the_program_leaves_a_mesh_and_a_picture(tmp_path: Path) -> None:
    meshes.write_mesh(tmp_path / "in.ply", meshes.pebble(1))
    arguments = ["--mesh", str(tmp_path / "in.ply"), "--output", str(tmp_path / "out.png"), "--iterations", "4"]
    run = CliRunner().invoke(embedded_deformation.main, arguments, catch_exceptions=False)
    assert run.exit_code == 0
    assert (tmp_path / "out.png").is_file()
    before, after = meshes.read_mesh(tmp_path / "in.ply"), meshes.read_mesh(tmp_path / "out.ply")
    np.testing.assert_array_equal(before.faces, after.faces)
    assert np.abs(before.vertices - after.vertices).max() > 0.1


def test_the_program_starts_from_a_mesh_of_its_own(tmp_path: Path) -> None:
    arguments = ["--output", str(tmp_path / "out.png"), "--iterations", "1", "--quiet"]
    run = CliRunner().invoke(embedded_deformation.main, arguments, env={"OPTPY_DATA": ""}, catch_exceptions=False)
    assert (run.exit_code, run.stdout) == (0, "")
    assert len(meshes.read_mesh(tmp_path / "out.ply").vertices) == len(meshes.pebble().vertices)


def test_far_from_the_origin_float32_ends_at_the_minimum_and_says_so() -> None:
    """Places round to 1e-5 there: in the end the residuals deny what the gradient promises."""
    data = deformation(torus(12)).data
    data |= {name: 60 * data[name] + 200 for name in ("UrShape", "Constraints")}
    single, double = (op.solve(energy, data, dtype=t, max_iterations=300) for t in (np.float32, np.float64))
    assert single.success, single.message
    assert single.cost == pytest.approx(double.cost, rel=1e-5)
