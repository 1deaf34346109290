from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from scipy.spatial.transform import Rotation

import optpy as op
from problems import mesh_deformation, meshes, pictures
from problems.mesh_deformation import ENERGIES, Deformation, deformation
from problems.mesh_handles import top_and_foot


@pytest.fixture(params=list(ENERGIES))
def rotations(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def small() -> Deformation:
    mesh = meshes.pebble(2)
    return Deformation(mesh, top_and_foot(mesh.vertices, fraction=0.05))


def turned(data: dict[str, Any], rotation: Rotation) -> dict[str, Any]:
    """The same data with every vertex's rotation set."""
    count = len(data["Offset"])
    if "Angle" in data:
        return data | dict(Angle=np.tile(rotation.as_euler("xyz"), (count, 1)))
    return data | dict(Rotation=np.tile(rotation.as_quat(), (count, 1)))


def test_the_cost_is_that_of_a_loop_over_the_edges(rotations: str) -> None:
    rng = np.random.default_rng(0)
    data = small().data(rotations)
    count = len(data["Offset"])
    R = Rotation.from_rotvec(rng.uniform(-1, 1, (count, 3)))
    state = dict(Angle=R.as_euler("xyz")) if rotations == "euler" else dict(Rotation=R.as_quat())
    data |= dict(Offset=data["Offset"] + rng.normal(0, 0.1, (count, 3)), w_fit=3.0, w_reg=0.7, **state)
    fit = 3.0 * (data["Offset"] - data["Constraints"])[data["Handle"]]
    reg = [
        0.7 * ((data["Offset"][a] - data["Offset"][b]) - R[a].apply(data["UrShape"][a] - data["UrShape"][b]))
        for a, b in data["edges"].tolist()
    ]
    expected = 0.5 * ((fit**2).sum() + (np.array(reg) ** 2).sum())
    assert ENERGIES[rotations].cost(data) == pytest.approx(expected, rel=1e-9)


def test_the_derivatives_are_right(rotations: str) -> None:
    data = turned(small().data(rotations), Rotation.from_euler("xyz", [0.3, -0.4, 0.5]))
    op.check_gradients(ENERGIES[rotations], data, raise_exception=True)


def test_a_mesh_that_only_turns_costs_nothing(rotations: str) -> None:
    rotation = Rotation.from_euler("xyz", [0.4, 0.2, -1.1])
    task = small()
    rotated = rotation.apply(task.mesh.vertices)
    data = turned(task.data(rotations) | dict(Offset=rotated, Constraints=rotated), rotation)
    assert ENERGIES[rotations].cost(data) == pytest.approx(0, abs=1e-20)


def test_handles_that_turn_as_one_turn_the_mesh(rotations: str) -> None:
    rotation = Rotation.from_euler("xyz", [0.2, 0.5, -0.4])
    task = small()
    rotated = rotation.apply(task.mesh.vertices)
    data = task.data(rotations) | dict(Constraints=rotated)
    result = op.solve(ENERGIES[rotations], data, "cpu", np.float64, function_tolerance=1e-14)
    assert result.cost < 1e-12 * result.initial_cost
    np.testing.assert_allclose(result.x["Offset"], rotated, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_deformation_converges(rotations: str, dtype: type[np.floating]) -> None:
    task = small()
    result = op.solve(ENERGIES[rotations], task.data(rotations), "cpu", dtype, max_iterations=100)
    assert result.success
    assert result.cost < 0.01 * result.initial_cost
    away = np.linalg.norm(result.x["Offset"] - task.handles.target, axis=1)[task.handles.pulled]
    assert away.max() < 0.02


def test_both_versions_reach_the_same_cost() -> None:
    task = small()
    costs = [
        op.solve(e, task.data(name), "cpu", np.float64, max_iterations=200, function_tolerance=1e-10).cost
        for name, e in ENERGIES.items()
    ]
    assert costs[0] == pytest.approx(costs[1], rel=1e-5)


def test_rotations_in_space_know_no_angle_that_locks() -> None:
    """The top turns by 90 degrees about y, where two of three Euler angles are one and the same."""
    mesh = meshes.pebble(2)
    handles = top_and_foot(mesh.vertices, 0.05, turn=(0, 90, 0), shift=(0, 0, 0))
    data = Deformation(mesh, handles).data("so3")
    start = Rotation.from_euler("xyz", [0.0, np.pi / 2, 0.0]).as_quat()
    result = op.solve(ENERGIES["so3"], data | dict(Rotation=np.tile(start, (len(mesh.vertices), 1))), "cpu", np.float64)
    assert result.success
    np.testing.assert_allclose(np.linalg.norm(result.x["Rotation"], axis=1), 1)


def test_the_program_leaves_a_mesh_and_a_picture(tmp_path: Path, rotations: str) -> None:
    meshes.write_mesh(tmp_path / "in.obj", meshes.pebble(1))
    output = tmp_path / "out.png"
    arguments = ["--mesh", str(tmp_path / "in.obj"), "--output", str(output), "--rotations", rotations]
    run = CliRunner().invoke(mesh_deformation.main, [*arguments, "--iterations", "4"], catch_exceptions=False)
    assert run.exit_code == 0
    assert str(output) in run.output
    assert "out.ply" in run.output
    before, after = meshes.read_mesh(tmp_path / "in.obj"), meshes.read_mesh(tmp_path / "out.ply")
    np.testing.assert_array_equal(before.faces, after.faces)
    assert np.abs(before.vertices - after.vertices).max() > 0.1
    with Image.open(output) as opened:
        assert opened.size == (2 * 480 + pictures.GAP, 480)


def test_the_program_starts_from_a_mesh_of_its_own(tmp_path: Path) -> None:
    arguments = [
        "--output",
        str(tmp_path / "out.png"),
        "--result",
        str(tmp_path / "else.obj"),
        "--iterations",
        "2",
        "--quiet",
    ]
    run = CliRunner().invoke(mesh_deformation.main, arguments, env={"OPTPY_DATA": ""}, catch_exceptions=False)
    assert (run.exit_code, run.stdout) == (0, "")
    assert len(meshes.read_mesh(tmp_path / "else.obj").vertices) == len(meshes.pebble().vertices)
    assert (tmp_path / "out.png").is_file()
    assert not (tmp_path / "out.ply").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--mesh", "gone.obj"], 1, "there is no file gone.obj"),
        (["--result", "gone/mesh.obj"], 2, "there is no folder"),
        (["--result", "mesh.doc"], 2, "'mesh.doc' has none of the endings .obj, .off, .ply, .stl"),
        (["--rotations", "quaternion"], 2, "'quaternion' is not one of"),
    ],
)
def test_bad_options_are_named(arguments: list[str], code: int, message: str) -> None:
    run = CliRunner().invoke(mesh_deformation.main, arguments)
    assert run.exit_code == code
    assert message in run.output


@pytest.mark.optimised  # its solve takes longer than the compiler
@pytest.mark.skipif(pictures.data_file("meshes/penguin.obj") is None, reason="the data folder is not there")
def test_the_penguin_bows() -> None:
    task = deformation(mesh_deformation.default_mesh())
    assert len(task.mesh.vertices) == 3362
    result = op.solve(ENERGIES["so3"], task.data("so3"), "cpu", max_iterations=100)
    assert result.success
    assert result.cost < 1e-4 * result.initial_cost
