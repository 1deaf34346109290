from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.spatial.transform import Rotation

import optpy as op
from problems import meshes, volumetric_deformation
from problems.volumetric_deformation import Deformation, deformation, energy, lattice_around


def small() -> Deformation:
    return deformation(meshes.pebble(1), cells=6)


def test_the_cost_is_that_of_the_paper() -> None:
    rng = np.random.default_rng(0)
    data = small().data | dict(w_fit=3.0, w_reg=0.7)
    data["Offset"] = data["Offset"] + rng.normal(0, 0.1, data["Offset"].shape)
    data["Angle"] = rng.normal(0, 0.5, data["Angle"].shape)
    x, rest = data["Offset"], data["UrShape"]
    turn = Rotation.from_euler("xyz", data["Angle"].reshape(-1, 3)).as_matrix().reshape(*x.shape, 3)
    total = 9 * ((x - data["Constraints"])[data["Handle"]] ** 2).sum()
    for axis in range(3):
        low = tuple(slice(None, -1) if a == axis else slice(None) for a in range(3))
        high = tuple(slice(1, None) if a == axis else slice(None) for a in range(3))
        for here, there in ((low, high), (high, low)):
            turned = np.einsum("...ab,...b->...a", turn[here], rest[here] - rest[there])
            total += 0.49 * ((x[here] - x[there] - turned) ** 2).sum()
    assert energy.cost(data) == pytest.approx(total / 2, rel=1e-9)


def test_the_derivatives_are_right() -> None:
    data = small().data
    data["Angle"] = np.random.default_rng(0).normal(0, 0.5, data["Angle"].shape)
    op.check_gradients(energy, data, raise_exception=True)


def test_the_vertices_are_where_the_lattice_has_them() -> None:
    vertices = np.random.default_rng(2).normal(size=(200, 3)) * [1, 3, 0.2] + [5, -1, 2]
    lattice = lattice_around(vertices, 7)
    np.testing.assert_allclose(lattice.shares.sum(axis=1), 1)
    assert lattice.shares.min() >= 0
    np.testing.assert_allclose(lattice.interpolated(lattice.points), vertices, atol=1e-12)
    A, t = np.array([[1.0, 0.2, 0.0], [0.0, 0.9, -0.3], [0.1, 0.0, 1.2]]), np.array([3.0, -2.0, 1.0])
    np.testing.assert_allclose(lattice.interpolated(lattice.points @ A.T + t), vertices @ A.T + t, atol=1e-12)


FLAT = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 1.0]])


@pytest.mark.parametrize("vertices", [FLAT, FLAT[:1]])
def test_a_mesh_without_a_volume_has_a_lattice(vertices: np.ndarray) -> None:
    lattice = lattice_around(vertices, 4)
    assert min(lattice.points.shape[:3]) >= 2
    np.testing.assert_allclose(lattice.interpolated(lattice.points), vertices, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_deformation_converges(dtype: type[np.floating]) -> None:
    task = small()
    result = op.solve(energy, task.data, "cpu", dtype, max_iterations=60)
    assert result.success
    assert result.cost < 0.01 * result.initial_cost
    far = np.linalg.norm(result.x["Offset"].reshape(-1, 3) - task.handles.target, axis=1)
    assert far[task.handles.pulled].max() < 0.1 * np.ptp(task.mesh.vertices[:, 1])
    lengths = [np.asarray(m.edges_unique_length) for m in (task.mesh, task.moved_by(result.x["Offset"]))]
    assert np.median(np.abs(lengths[1] / lengths[0] - 1)) < 0.2


def test_the_program_leaves_a_mesh_and_a_picture(tmp_path: Path) -> None:
    meshes.write_mesh(tmp_path / "in.ply", meshes.pebble(1))
    arguments = ["--mesh", str(tmp_path / "in.ply"), "--output", str(tmp_path / "out.png"), "--iterations", "3"]
    run = CliRunner().invoke(volumetric_deformation.main, [*arguments, "--cells", "4"], catch_exceptions=False)
    assert run.exit_code == 0
    assert (tmp_path / "out.png").is_file()
    before, after = meshes.read_mesh(tmp_path / "in.ply"), meshes.read_mesh(tmp_path / "out.ply")
    np.testing.assert_array_equal(before.faces, after.faces)
    assert np.abs(before.vertices - after.vertices).max() > 0.1
