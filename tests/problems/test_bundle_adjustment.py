from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

import optpy as op
from problems import bundle_adjustment, pictures
from problems.bundle_adjustment import Scene, project, synthetic_bundle
from problems.bundle_files import Bundle, camera_centres, read_bal, read_bundle, write_ply


def small(outliers: float = 0.0, noise: float = 0.0) -> Scene:
    return synthetic_bundle(cameras=5, points=30, noise=noise, outliers=outliers, seed=3)


def test_the_cost_is_that_of_the_camera_in_numpy() -> None:
    start = small().start
    expected = 0.5 * np.sum((project(start.cameras, start.points, start.pairs) - start.seen) ** 2)
    assert bundle_adjustment.energy.cost(start.data) == pytest.approx(expected)


def test_derivatives_agree_with_differences_also_without_rotation() -> None:
    start = small().start
    start.cameras[0, :3] = 0
    start.cameras[1, :3] = [3.0, 0.4, -0.2]
    start.cameras[2, :3] = [1e-9, 0, 0]
    assert op.check_gradients(bundle_adjustment.energy, start.data, 1e-5)


@pytest.mark.parametrize("distance", [1e4, 1e6, 1e8])
def test_points_far_away_have_a_gradient_in_float32(distance: float) -> None:
    cameras = np.tile([0.1, -0.2, 0.3, 0, 0, 0, 400, 0.01, 0.01], (2, 1))
    cameras[1, 0] = 0.8  # Rodrigues' formula beyond its series
    seen_from = np.array([[0.5, 0.4, -1.0], [-0.3, 0.6, -1.2], [0.2, -0.7, -0.9]]) * distance
    points = np.concatenate([Rotation.from_rotvec(c[:3]).inv().apply(seen_from) for c in cameras])
    pairs = np.stack([np.repeat([0, 1], 3), np.arange(6)], axis=1)
    data = Bundle(cameras, points, project(cameras, points, pairs) + 1.0, pairs).data
    at32, at64 = (op.solve(bundle_adjustment.energy, data, dtype=t, max_iterations=0) for t in (np.float32, np.float64))
    assert at32.iterations[0].gradient_norm == pytest.approx(at64.iterations[0].gradient_norm, rel=1e-3)


@pytest.mark.parametrize(("dtype", "pixels"), [(np.float64, 1e-4), (np.float32, 1e-2)])
def test_exact_observations_are_met(dtype: type, pixels: float) -> None:
    start = small().start
    result = op.solve(bundle_adjustment.energy, start.data, dtype=dtype, max_iterations=100)
    cameras, points = (np.asarray(result.x[name], np.float64) for name in ("Camera", "Point"))
    found = project(cameras, points, start.pairs)
    assert np.sqrt(np.mean((found - start.seen) ** 2)) < pixels


def test_the_minimum_is_that_of_scipy() -> None:
    start = small(noise=0.5).start
    energy, data = bundle_adjustment.energy, start.data
    result = op.solve(energy, data, dtype=np.float64, function_tolerance=1e-12, max_iterations=100)

    def residuals(x: np.ndarray) -> np.ndarray:
        cameras, points = x[: start.cameras.size].reshape(-1, 9), x[start.cameras.size :].reshape(-1, 3)
        return (project(cameras, points, start.pairs) - start.seen).ravel()

    at = np.concatenate([start.cameras.ravel(), start.points.ravel()])
    peer = least_squares(residuals, at, x_scale="jac", ftol=1e-12, max_nfev=200)
    assert result.cost == pytest.approx(peer.cost, rel=1e-6)


def test_a_robust_loss_sees_past_outliers() -> None:
    """All but the wild observations are met exactly."""
    scene = small(outliers=0.05)
    wild = np.abs(project(scene.truth.cameras, scene.truth.points, scene.truth.pairs) - scene.truth.seen).max(1) > 1
    assert 0 < wild.sum() < 10
    worst = {}
    for name, energy in (("linear", bundle_adjustment.energy), ("cauchy", bundle_adjustment.robust_energy("cauchy"))):
        data = scene.start.data | ({"scale": 0.5} if name == "cauchy" else {})
        x = op.solve(energy, data, dtype=np.float64, max_iterations=200).x
        error = np.abs(project(x["Camera"], x["Point"], scene.start.pairs) - scene.start.seen).max(axis=1)
        worst[name] = error[~wild].max()
    assert worst["cauchy"] < 0.5
    assert worst["linear"] > 2


# -- files -----------------------------------------------------------------------------------------------------------

BAL = "\n".join(["2 1 2", "", "0 0 1.5 -2", "1 0 3e0 4", *map(str, range(18)), "7 8", "9"])


def written(folder: Path, text: str, name: str = "bundle.txt") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_bal_file_is_read(tmp_path: Path) -> None:
    bundle = read_bundle(written(tmp_path, BAL))
    np.testing.assert_array_equal(bundle.cameras, np.arange(18.0).reshape(2, 9))
    np.testing.assert_array_equal(bundle.points, [[7, 8, 9]])
    np.testing.assert_array_equal(bundle.seen, [[1.5, -2], [3, 4]])
    np.testing.assert_array_equal(bundle.pairs, [[0, 0], [1, 0]])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2 1 2", "", "bundle.txt:3: expected the numbers of cameras, points and observations"),
        ("2 1 2", "2 1 -2", "bundle.txt:1: expected the numbers of"),
        ("2 1 2", "2 1 99", "99 observations announced, 22 found"),
        ("1 0 3e0 4", "1 0 3e0", "bundle.txt:4: expected an observation: camera, point, x, y, got '1 0 3e0'"),
        ("1 0 3e0 4", "1 0 x 4", "bundle.txt:4: expected an observation"),
        ("1 0 3e0 4", "1 0 nan 4", "bundle.txt:4: .*, all finite"),
        ("1 0 3e0 4", "1.5 0 3 4", "bundle.txt:4: expected an observation"),
        ("1 0 3e0 4", "1 1 3 4", "bundle.txt:4: expected a camera below 2 and a point below 1"),
        ("7 8", "7", "21 numbers of cameras and points expected, 20 found"),
        ("7 8", "7 b", "bundle.txt:23: expected a number, got 'b'"),
    ],
)
def test_mistakes_in_a_bal_file_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(op.DataError, match=message):
        read_bal(written(tmp_path, BAL.replace(old, new, 1)))


def test_an_empty_file_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(op.DataError, match="is empty"):
        read_bal(written(tmp_path, ""))
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(op.DataError, match="no text file"):
        read_bal(tmp_path / "binary.txt")


def bundler_text(bundle: Bundle) -> str:
    lines = ["# Bundle file v0.3", f"{len(bundle.cameras)} {len(bundle.points)}"]
    for camera in bundle.cameras:
        rows = [camera[6:], *Rotation.from_rotvec(camera[:3]).as_matrix(), camera[3:6]]
        lines += [" ".join(map(repr, map(float, row))) for row in rows]
    for n, point in enumerate(bundle.points):
        views = [
            f"{c} 5 {x!r} {y!r}" for (c, p), (x, y) in zip(bundle.pairs, bundle.seen.tolist(), strict=True) if p == n
        ]
        lines += [" ".join(map(repr, map(float, point))), "1 2 3", " ".join([str(len(views)), *views])]
    return "\n".join(lines)


def test_a_file_of_bundler_is_the_same_bundle(tmp_path: Path) -> None:
    truth = small().truth
    read = read_bundle(written(tmp_path, bundler_text(truth), "scene.out"))
    np.testing.assert_allclose(read.cameras, truth.cameras, atol=1e-12)
    order = np.argsort(truth.pairs[:, 1], kind="stable")
    np.testing.assert_array_equal(read.pairs, truth.pairs[order])
    np.testing.assert_allclose(read.seen, truth.seen[order])


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (1, "5 31", "points of three announced"),
        (3, "1 0 0", "scene.out:4: expected a rotation matrix"),
        (27, "1 2 x", "scene.out:28: expected the three coordinates of a point"),
        (29, "1 9 0 1 1", r"scene.out:30: expected the views of a point: how many, then camera \(below 5\)"),
        (29, "2 0 0 1 1", "scene.out:30: expected the views"),
        (29, "0.25 3", "scene.out:30: expected the views"),
        (29, "-1", "scene.out:30: expected the views"),
        (29, "nan 0 0 1 1", "scene.out:30: expected the views.*all finite"),
        (29, "1 1e300 0 1 1", "scene.out:30: expected the views"),
        (3, "1e200 -1e200 1e200", "scene.out:4: expected a rotation matrix"),
        (1, "1e300 2", "scene.out:2: expected the numbers of cameras and points"),
        (1, "-5 30", "scene.out:2: expected the numbers of cameras and points"),
        (1, "1000000000000 30", "points of three announced"),
    ],
)
def test_mistakes_in_a_file_of_bundler_are_named(tmp_path: Path, line: int, text: str, message: str) -> None:
    lines = bundler_text(small().truth).splitlines()
    lines[line] = text
    with pytest.raises(op.DataError, match=message):
        read_bundle(written(tmp_path, "\n".join(lines), "scene.out"))


def test_points_and_cameras_are_written_as_ply(tmp_path: Path) -> None:
    truth = small().truth
    write_ply(tmp_path / "cloud.ply", truth.cameras, truth.points)
    lines = (tmp_path / "cloud.ply").read_text().splitlines()
    assert lines[0] == "ply"
    assert "element vertex 35" in lines
    last = np.array(lines[-1].split(), float)
    np.testing.assert_allclose(last[:3], camera_centres(truth.cameras)[-1], atol=1e-5)
    np.testing.assert_array_equal(last[3:], [220, 30, 30])


# -- the program -----------------------------------------------------------------------------------------------------


def test_the_start_of_ladybug_has_the_published_cost() -> None:
    path = pictures.data_file(bundle_adjustment.DEFAULT_FILE)
    if path is None:
        pytest.skip("the data folder is not there")
    assert bundle_adjustment.energy.cost(read_bal(path).data) == pytest.approx(850912.460681)


def test_the_program_draws_before_and_after(tmp_path: Path) -> None:
    path = written(tmp_path, bundler_text(small(noise=0.5).start), "scene.out")
    output = tmp_path / "picture.png"
    arguments = ["--input", str(path), "--loss", "huber", "--scale", "2", "--output", str(output)]
    run = CliRunner().invoke(bundle_adjustment.main, arguments, catch_exceptions=False)
    assert run.exit_code == 0
    assert (tmp_path / "picture.ply").is_file()
    with Image.open(output) as opened:
        assert opened.size == (2 * 512 + pictures.GAP, 512)


def test_the_program_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, BAL.replace("1.5", "one"))
    run = CliRunner().invoke(bundle_adjustment.main, ["--input", str(path)])
    assert run.exit_code == 1
    assert "bundle.txt:3: expected an observation" in run.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scale", "2"], "--scale is that of a robust loss: choose one, such as --loss huber"),
        (["--loss", "linear", "--scale", "1"], "--scale is that of a robust loss"),
        (["--result", "gone/cloud.ply"], "there is no folder"),
    ],
)
def test_what_the_program_cannot_use_is_refused_at_once(arguments: list[str], message: str) -> None:
    run = CliRunner().invoke(bundle_adjustment.main, arguments)
    assert run.exit_code == 2
    assert message in run.output


def test_without_the_data_folder_the_scene_is_synthetic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTPY_DATA", "")
    assert bundle_adjustment.default_bundle().cameras.shape == (24, 9)
