from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh
from click.testing import CliRunner
from PIL import Image
from scipy.spatial.transform import Rotation

import optpy as op
from problems import meshes, nonrigid_alignment, pictures
from problems.nonrigid_alignment import Alignment, AlignmentSettings, align, bent, energy
from problems.surface import Surface


def small() -> Alignment:
    return Alignment(meshes.pebble(2), Surface(bent(meshes.pebble(3))))


def settings(tmp_path: Path, **changes: Any) -> AlignmentSettings:
    usual: dict[str, Any] = dict(
        device="cpu",
        dtype="float64",
        method="lm",
        iterations=20,
        output=tmp_path / "out.png",
        quiet=True,
        mesh=None,
        result=tmp_path / "out.ply",
    )
    return AlignmentSettings(**(usual | dict(target=None) | changes))


def somewhere() -> dict[str, Any]:
    """The data of `small` away from its start."""
    rng = np.random.default_rng(0)
    data = small().data
    count = len(data["X"])
    return data | dict(
        X=data["X"] + rng.normal(0, 0.1, (count, 3)),
        Rotation=Rotation.from_rotvec(rng.uniform(-1, 1, (count, 3))).as_quat(),
        Weight=rng.uniform(0.2, 1.2, count),
        Matched=rng.uniform(size=count) < 0.7,
        w_fit=3.0,
        w_conf=0.4,
        w_reg=0.7,
    )


def test_the_cost_is_that_of_loops_over_vertices_and_edges() -> None:
    data = somewhere()
    matched, weight = data["Matched"], data["Weight"]
    fit = 3.0 * weight * (data["Normal"] * (data["X"] - data["Target"])).sum(axis=1)
    conf = 0.4 * (1 - weight**2)
    R = Rotation.from_quat(data["Rotation"])
    reg = [
        0.7 * ((data["X"][a] - data["X"][b]) - R[a].apply(data["UrShape"][a] - data["UrShape"][b]))
        for a, b in data["edges"].tolist()
    ]
    expected = 0.5 * ((fit[matched] ** 2).sum() + (conf[matched] ** 2).sum() + (np.array(reg) ** 2).sum())
    assert energy.cost(data) == pytest.approx(expected, rel=1e-9)


def test_the_derivatives_are_right() -> None:
    op.check_gradients(energy, somewhere(), raise_exception=True)


def test_the_best_weights_turn_far_pulls_off() -> None:
    """The least cost over the weights is 1/2 w_fit^2 d^2 (1 - d^2 / (2 reach^2)), and that of a far pull is flat."""
    distances = np.array([0.0, 0.1, 0.5, 0.9, 1.5, 3.0])
    count, reach, w_fit = len(distances), 1.0, 2.0
    places = np.zeros((count, 3))
    data = dict(
        X=places,
        Rotation=np.tile([0.0, 0.0, 0.0, 1.0], (count, 1)),
        Weight=np.ones(count),
        UrShape=places,
        Target=np.stack([distances, 0 * distances, 0 * distances], axis=1),
        Normal=np.tile([1.0, 0.0, 0.0], (count, 1)),
        Matched=np.ones(count, bool),
        edges=np.zeros((0, 2), np.int64),
        w_fit=w_fit,
        w_conf=w_fit * reach / 2**0.5,
        w_reg=1.0,
    )
    weights = np.sqrt(np.maximum(0, 1 - distances**2 / reach**2))
    near = np.minimum(distances, reach)
    expected = (0.5 * w_fit**2 * near**2 * (1 - near**2 / (2 * reach**2))).sum()
    assert energy.cost(data | dict(Weight=weights)) == pytest.approx(expected)
    for change in (-1e-3, 1e-3):
        assert energy.cost(data | dict(Weight=weights + change)) > expected


def test_vertices_far_away_or_facing_elsewhere_are_not_matched() -> None:
    ball = trimesh.creation.icosphere(subdivisions=3)
    task = Alignment(ball, Surface(ball))
    vertices = np.asarray(ball.vertices)
    assert task.matches(vertices * 1.01)["Matched"].all()
    assert not task.matches(vertices * 1.5)["Matched"].any()
    inside_out = meshes.moved(ball, vertices)
    inside_out.invert()
    assert not Alignment(inside_out, Surface(ball)).matches(vertices)["Matched"].any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", ["lm", "gn"])
def test_the_pebble_bends_onto_the_other(tmp_path: Path, dtype: str, method: str) -> None:
    task = small()
    before = task.distance(np.asarray(task.source.vertices))
    after = task.distance(align(task, settings(tmp_path, dtype=dtype, method=method, iterations=30)))
    assert before > 0.03
    assert after < 0.02 * before


def test_a_mesh_on_its_target_stays(tmp_path: Path) -> None:
    pebble = meshes.pebble(2)
    after = align(Alignment(pebble, Surface(pebble)), settings(tmp_path, iterations=3))
    np.testing.assert_allclose(after, pebble.vertices, atol=1e-9)


def test_holes_in_the_target_do_not_pull_the_mesh_away(tmp_path: Path) -> None:
    """Where a third of the target is missing, nothing pulls from afar: the mesh stays in shape."""
    whole = bent(meshes.pebble(3), scale=1.0)
    part = trimesh.Trimesh(whole.vertices, whole.faces[whole.triangles_center[:, 1] < 0.25], process=False)
    part.remove_unreferenced_vertices()
    task = Alignment(meshes.pebble(2), Surface(part))
    after = align(task, settings(tmp_path))
    assert Surface(whole).nearest(after).distances.mean() < 0.02
    assert np.ptp(after[:, 1]) > 0.95 * np.ptp(np.asarray(whole.vertices)[:, 1])


def test_the_program_leaves_a_mesh_and_a_picture(tmp_path: Path) -> None:
    meshes.write_mesh(tmp_path / "one.obj", meshes.pebble(1))
    meshes.write_mesh(tmp_path / "other.ply", bent(meshes.pebble(2)))
    files = ["--mesh", str(tmp_path / "one.obj"), "--target", str(tmp_path / "other.ply")]
    output = tmp_path / "out.png"
    arguments = [*files, "--output", str(output), "--iterations", "8"]
    run = CliRunner().invoke(nonrigid_alignment.main, arguments, catch_exceptions=False)
    assert run.exit_code == 0
    assert "mean distance to the target: 0.0" in run.output
    assert sum(" cost " in line for line in run.output.splitlines()) == 8
    before, after = meshes.read_mesh(tmp_path / "one.obj"), meshes.read_mesh(tmp_path / "out.ply")
    np.testing.assert_array_equal(before.faces, after.faces)
    assert np.abs(before.vertices - after.vertices).max() > 0.05
    with Image.open(output) as opened:
        assert opened.size == (3 * 480 + 2 * pictures.GAP, 480)


def test_the_program_starts_from_meshes_of_its_own(tmp_path: Path) -> None:
    arguments = ["--output", str(tmp_path / "out.png"), "--iterations", "2", "--quiet"]
    run = CliRunner().invoke(nonrigid_alignment.main, arguments, env={"OPTPY_DATA": ""}, catch_exceptions=False)
    assert (run.exit_code, run.stdout) == (0, "")
    assert len(meshes.read_mesh(tmp_path / "out.ply").vertices) == len(meshes.pebble(3).vertices)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--mesh", "one.obj"], 2, "--mesh and --target go together"),
        (["--target", "one.obj"], 2, "--mesh and --target go together"),
        (["--mesh", "gone.obj", "--target", "gone.obj"], 1, "there is no file gone.obj"),
    ],
)
def test_bad_options_are_named(arguments: list[str], code: int, message: str) -> None:
    run = CliRunner().invoke(nonrigid_alignment.main, arguments)
    assert run.exit_code == code
    assert message in run.output


@pytest.mark.optimised  # its solve takes longer than the compiler
@pytest.mark.skipif(
    pictures.data_file("nonrigid_registration/human_man.obj") is None, reason="the data folder is not there"
)
def test_the_man_becomes_the_woman(tmp_path: Path) -> None:
    task = nonrigid_alignment.default_alignment()
    after = align(task, settings(tmp_path, dtype="float32", iterations=15))
    assert task.distance(after) < 0.001  # metres
    # The two have the same vertices, which the alignment was not told.
    assert np.linalg.norm(after - task.target.mesh.vertices, axis=1).mean() < 0.015
