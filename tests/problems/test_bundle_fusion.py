from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from scipy.ndimage import map_coordinates
from scipy.spatial.transform import Rotation

import optpy as op
from problems import bundle_fusion, meshes, pictures
from problems.bundle_fusion import OPTIONS, Scene, drawn, energy, scene
from problems.depth_frames import Camera, around, rendered
from problems.poses import matrices, stored

needs_data = pytest.mark.skipif(
    pictures.data_file("optical_flow/tum_pair/1_depth.png") is None, reason="the data folder is not there"
)


def small(count: int = 6, size: int = 24) -> Scene:
    return bundle_fusion.turning(meshes.pebble(2), size, count)


def test_a_ball_is_seen_where_it_is() -> None:
    ball = meshes.pebble(4).copy()
    ball.vertices *= 0.3 / np.linalg.norm(ball.vertices, axis=1, keepdims=True)
    camera = Camera(50.0, 15.5, 11.5)
    frames = rendered(ball, camera, around(np.array([0.1, 0, 0]), 1.0, np.array([20.0, 200.0])), (24, 32))
    assert frames.truth is not None
    for depth, grey, pose in zip(frames.depth, frames.grey, frames.truth, strict=True):
        rays = camera.points(np.ones_like(depth)) @ pose[:3, :3].T
        middle, square = rays @ pose[:3, 3], (rays**2).sum(axis=-1)
        under = middle**2 - square * (pose[:3, 3] @ pose[:3, 3] - 0.09)
        expected = np.where(under > 0, (-middle - np.sqrt(np.maximum(under, 0))) / square, 0)
        clear = np.abs(under) > 0.01
        np.testing.assert_allclose(depth[clear], expected[clear], atol=2e-3)
        np.testing.assert_array_equal(depth == 0, grey == 0)


@pytest.mark.native
def test_the_depth_term_is_the_distance_along_normals() -> None:
    """By NumPy, of one pair of frames: points of the one, seen from the other, against its surface there."""
    task = small()
    data = task.data | dict(pairs=np.array([[1, 2]]), w_depth=2.0)
    found = energy.residuals(data)["depth"][0]
    T = matrices(data["Pose"])
    to_b = np.linalg.inv(T[2]) @ T[1]
    points = task.frames.camera.points(data["Depth"])
    normals, whole = np.zeros_like(points), np.zeros(points.shape[:3])
    crossed = np.cross(points[:, 2:, 1:-1] - points[:, :-2, 1:-1], points[:, 1:-1, 2:] - points[:, 1:-1, :-2])
    normals[:, 1:-1, 1:-1] = crossed / np.maximum(np.linalg.norm(crossed, axis=-1, keepdims=True), 1e-30)
    d = data["Depth"]
    beside = np.stack([d[:, 2:, 1:-1], d[:, :-2, 1:-1], d[:, 1:-1, 2:], d[:, 1:-1, :-2]])
    whole[:, 1:-1, 1:-1] = (
        (beside > 0).all(axis=0) & (d[:, 1:-1, 1:-1] > 0) & (np.abs(beside - d[:, 1:-1, 1:-1]) < 0.05).all(axis=0)
    )
    there = points[1] @ to_b[:3, :3].T + to_b[:3, 3]
    c = task.frames.camera
    at = [c.focal * there[..., n] / there[..., 2] + m for n, m in ((1, c.centre_y), (0, c.centre_x))]
    planes = [whole[2], whole[2] * d[2], *np.moveaxis(whole[2][..., None] * normals[2], -1, 0)]
    some, depth, *normal = (map_coordinates(p, at, order=1, mode="grid-constant") for p in planes)
    seen = (whole[1] > 0) & (some > 0.1)
    turned = normals[1] @ to_b[:3, :3].T
    with np.errstate(divide="ignore", invalid="ignore"):
        depth = depth / some
        alike = np.clip((turned * np.stack(normal, axis=-1)).sum(axis=-1) / some, 0, None)
        close = np.clip(1 - ((depth - there[..., 2]) / 0.05) ** 2, 0, None)
        off = (turned * (there - there * (depth / there[..., 2])[..., None])).sum(axis=-1)
        expected = np.where(seen, 2 * some**4 * alike * close * off, 0)
    assert seen.sum() > 50
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_derivatives_are_right() -> None:
    task = small(3, 10)
    op.check_gradients(energy, task.data | dict(w_grey=0.5), raise_exception=True)


@pytest.mark.optimised
def test_the_poses_are_found() -> None:
    task = small(12, 32)
    data = task.data
    result = op.solve(energy, data, "cpu", np.float64, max_iterations=12, **OPTIONS)
    (start, _), (metres, degrees) = task.errors(data["Pose"]), task.errors(result.x["Pose"])
    assert start > 0.03
    assert metres < 0.006
    assert degrees < 0.5
    np.testing.assert_array_equal(result.x["Pose"][0], data["Pose"][0])


def test_errors_do_not_depend_on_the_world() -> None:
    task = small(4)
    assert task.frames.truth is not None
    whole = np.eye(4)
    whole[:3, :3], whole[:3, 3] = Rotation.from_rotvec([0.3, 2, 1]).as_matrix(), [4, 5, 6]
    moved = stored(whole @ task.frames.truth)
    assert max(task.errors(moved)) < 1e-6
    assert max(task.errors(task.data["Pose"])) > 1e-3


@needs_data
@pytest.mark.optimised
def test_a_desk_is_laid_on_itself() -> None:
    """Nothing is known of two frames of a real camera; afterwards brightness and depth agree where both have some."""
    task = scene("room")
    result = op.solve(energy, task.data, "cpu", np.float64, max_iterations=30, **OPTIONS)
    c = task.frames.camera
    known = task.frames.depth[0] > 0
    points = c.points(task.frames.depth[0])[known]

    def apart(poses: np.ndarray) -> tuple[float, float]:
        T = np.linalg.inv(poses[1]) @ poses[0]
        there = points @ T[:3, :3].T + T[:3, 3]
        at = [c.focal * there[:, n] / there[:, 2] + m for n, m in ((1, c.centre_y), (0, c.centre_x))]
        grey = map_coordinates(task.frames.grey[1], at, order=1) - task.frames.grey[0][known]
        depth = map_coordinates(task.frames.depth[1], at, order=0)
        both = depth > 0
        return float(np.median(np.abs(grey[both]))), float(np.median(np.abs(depth - there[:, 2])[both]))

    before, after = apart(task.start), apart(matrices(result.x["Pose"]))
    assert after[0] < 0.5 * before[0]
    assert after[1] < 0.2 * before[1]


def test_a_picture_has_all_frames_in_it() -> None:
    task = small(2)
    assert task.frames.truth is not None
    picture = drawn(task.frames, task.frames.truth, 48)
    assert picture.shape == (48, 48, 3)
    covered = (picture < 1).any(axis=-1).mean()
    assert 0.1 < covered < 0.7


def test_the_program_leaves_a_picture(tmp_path: Path) -> None:
    arguments = ["--scene", "made", "--size", "16", "--frames", "4", "--iterations", "2"]
    arguments += ["--output", str(tmp_path / "out.png")]
    run = CliRunner().invoke(bundle_fusion.main, arguments, catch_exceptions=False)
    assert run.exit_code == 0
    assert "after: poses are" in run.output
    with Image.open(tmp_path / "out.png") as picture:
        assert picture.height == 480
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPTPY_DATA", "")
        refused = CliRunner().invoke(bundle_fusion.main, ["--scene", "room"])
    assert refused.exit_code == 1
    assert "needs the data folder" in refused.output
