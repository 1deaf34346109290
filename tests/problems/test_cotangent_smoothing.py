from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from trimesh import Trimesh

import optpy as op
from problems import cotangent_smoothing, meshes
from problems.cotangent_smoothing import LEAST_WEIGHT, NoisyMesh, energy, wedges_and_border, with_noise

pytestmark = pytest.mark.optimised  # its solves take longer than the compiler


def open_mesh() -> Trimesh:
    """A pebble with a hole."""
    whole = meshes.pebble(2)
    return Trimesh(whole.vertices, np.asarray(whole.faces)[12:], process=False)


def data_of(mesh: Trimesh, **weights: float) -> dict[str, Any]:
    return NoisyMesh(mesh, mesh).data | weights


def expected_cost(vertices: NDArray[Any], faces: NDArray[Any], w_reg: float) -> float:
    """A loop over the corners of the triangles, with angles."""
    weights: dict[tuple[int, int], float] = {}
    for triangle in faces.tolist():
        for n in range(3):
            a, b, c = (triangle[(n + m) % 3] for m in range(3))
            p, q = vertices[a] - vertices[c], vertices[b] - vertices[c]
            angle = np.arccos(p @ q / np.linalg.norm(p) / np.linalg.norm(q))
            edge = (min(a, b), max(a, b))
            weights[edge] = weights.get(edge, 0.0) + 0.5 / np.tan(angle)
    return 0.5 * w_reg**2 * sum(
        max(w, LEAST_WEIGHT) * float(((vertices[a] - vertices[b]) ** 2).sum()) for (a, b), w in weights.items()
    )  # fmt: skip


@pytest.mark.parametrize("mesh", [meshes.pebble(1), open_mesh()], ids=["closed", "open"])
def test_the_cost_is_that_of_the_angles(mesh: Trimesh) -> None:
    noisy = with_noise(mesh).noisy
    moved = np.asarray(noisy.vertices) + [0.1, 0.0, 0.0]
    data = data_of(noisy, w_fit=3.0, w_reg=0.7) | dict(X=moved)
    fit = 0.5 * 3.0**2 * 0.1**2 * len(moved)
    assert energy.cost(data) == pytest.approx(fit + expected_cost(moved, mesh.faces, 0.7), rel=1e-9)


def test_smoothness_is_the_area() -> None:
    ball = Trimesh(*_icosahedron(), process=False)
    assert energy.cost(data_of(ball, w_reg=1.0)) == pytest.approx(ball.area)
    half = Trimesh(ball.vertices, np.asarray(ball.faces)[:9], process=False)
    assert energy.cost(data_of(half, w_reg=1.0)) == pytest.approx(half.area)


def _icosahedron() -> tuple[NDArray[Any], NDArray[Any]]:
    from trimesh.creation import icosahedron

    made = icosahedron()
    return np.asarray(made.vertices), np.asarray(made.faces)


@pytest.mark.parametrize("mesh", [meshes.pebble(1), open_mesh()], ids=["closed", "open"])
def test_the_derivatives_are_right(mesh: Trimesh) -> None:
    op.check_gradients(energy, data_of(with_noise(mesh, 0.05).noisy), raise_exception=True)


def test_the_weights_are_differentiated() -> None:
    """The gradient of the area, also where it comes from the change of angles."""
    noisy = with_noise(Trimesh(*_icosahedron(), process=False), 0.05).noisy  # no angle is obtuse
    data = data_of(noisy, w_fit=0.0, w_reg=1.0)
    F = np.concatenate([r.ravel() for r in energy.residuals(data).values()])
    gradient = energy.jacobian(data).T @ F
    direction = np.random.default_rng(1).normal(size=noisy.vertices.shape)
    h = 1e-6
    areas = [meshes.moved(noisy, noisy.vertices + s * h * direction).area for s in (1, -1)]
    assert gradient @ direction.ravel() == pytest.approx((areas[0] - areas[1]) / (2 * h), rel=1e-5)


# -- wedges ----------------------------------------------------------------------------------------------------------


def test_wedges_of_two_triangles() -> None:
    wedges, border = wedges_and_border(np.array([[0, 1, 2], [2, 1, 3]]))
    assert wedges.tolist() == [[1, 2, 0, 3]]
    assert sorted(map(tuple, border.tolist())) == [(0, 1, 2), (0, 2, 1), (1, 3, 2), (2, 3, 1)]


def test_every_side_of_every_triangle_is_counted_once() -> None:
    for mesh in (meshes.pebble(2), open_mesh()):
        wedges, border = wedges_and_border(mesh.faces)
        assert 2 * len(wedges) + len(border) == 3 * len(mesh.faces)
    assert len(border) > 0


def test_an_edge_with_three_triangles_is_three_times_an_edge_with_one() -> None:
    wedges, border = wedges_and_border(np.array([[0, 1, 2], [0, 1, 3], [0, 1, 4]]))
    assert len(wedges) == 0
    assert len(border) == 9
    assert sorted(border[(border[:, :2] == [0, 1]).all(axis=1), 2].tolist()) == [2, 3, 4]


def test_triangles_with_a_vertex_twice_have_no_edges() -> None:
    wedges, border = wedges_and_border(np.array([[0, 1, 1], [2, 2, 2]]))
    assert wedges.shape == (0, 4)
    assert border.shape == (0, 3)


# -- solving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mesh", [meshes.pebble(3), open_mesh()], ids=["closed", "open"])
def test_smoothing_converges_to_less_area(mesh: Trimesh, dtype: type[np.floating]) -> None:
    noisy = with_noise(mesh)
    # The minimum lies at kinks, where triangles would turn over: steps towards it become short one after the other.
    result = op.solve(energy, noisy.data, "cpu", dtype, max_iterations=100, function_tolerance=1e-6)
    assert result.success
    assert result.cost < 0.97 * result.initial_cost
    smooth = meshes.moved(mesh, result.x["X"])
    assert smooth.area < noisy.noisy.area


def test_smoothing_comes_nearer_to_the_clean_mesh() -> None:
    noisy = with_noise(meshes.pebble(4))
    result = op.solve(energy, noisy.data, "cpu", max_iterations=100)
    before, after = (
        np.sqrt(np.mean((v - noisy.clean.vertices) ** 2)) for v in (noisy.noisy.vertices, result.x["X"])
    )  # fmt: skip
    assert after < 0.8 * before


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("apex", [[0.5, 0.0, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, 0.0], [0.5, 1e-30, 0.0]])
def test_triangles_without_an_area_do_no_harm(apex: list[float], dtype: type[np.floating]) -> None:
    """Its third corner stands on the side, or on another corner."""
    corners = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], apex, [0.5, 1.0, 0.0]])
    flat = Trimesh(corners, [[0, 1, 2], [1, 0, 3]], process=False)
    data = data_of(flat)
    assert np.isfinite(energy.cost(data))
    assert np.isfinite(energy.jacobian(data).data).all()
    result = op.solve(energy, data, "cpu", dtype, max_iterations=100)
    assert np.isfinite(result.x["X"]).all()
    assert result.cost <= result.initial_cost


def test_the_noise_is_the_same_every_time() -> None:
    first, second = (with_noise(meshes.pebble(1), seed=3).noisy.vertices for _ in range(2))
    np.testing.assert_array_equal(first, second)


# -- the program -----------------------------------------------------------------------------------------------------


def test_the_program_leaves_a_mesh_and_a_picture(tmp_path: Path) -> None:
    noisy = with_noise(open_mesh()).noisy
    meshes.write_mesh(tmp_path / "in.ply", noisy)
    arguments = ["--mesh", str(tmp_path / "in.ply"), "--output", str(tmp_path / "out.png"), "--method", "gn"]
    run = CliRunner().invoke(cotangent_smoothing.main, [*arguments, "--iterations", "4"], catch_exceptions=False)
    assert run.exit_code == 0
    assert (tmp_path / "out.png").is_file()
    assert meshes.read_mesh(tmp_path / "out.ply").area < 0.97 * noisy.area


def test_the_program_starts_from_a_mesh_of_its_own(tmp_path: Path) -> None:
    arguments = ["--output", str(tmp_path / "out.png"), "--iterations", "1", "--quiet"]
    run = CliRunner().invoke(cotangent_smoothing.main, arguments, env={"OPTPY_DATA": ""}, catch_exceptions=False)
    assert (run.exit_code, run.stdout) == (0, "")
    assert len(meshes.read_mesh(tmp_path / "out.ply").vertices) == len(meshes.pebble().vertices)
