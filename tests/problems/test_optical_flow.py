from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import optpy as op
from problems import optical_flow, pictures
from problems.optical_flow import Film, coarse_to_fine, drawn, film, read_flo, resized, turning

needs_sintel = pytest.mark.skipif(
    pictures.data_file("optical_flow/sintel_alley_1/frame_0002.png") is None, reason="the data folder is not there"
)


def found(frames: Film) -> np.ndarray:
    *_, last = coarse_to_fine(frames, device="cpu", dtype="float32", max_iterations=5)
    return last.flow


def test_a_made_motion_is_found() -> None:
    frames = turning(80)
    flow = found(frames)
    assert flow.shape == (80, 80, 2)
    assert frames.error(np.zeros_like(flow)) > 1.5
    assert frames.error(flow) < 0.06


def test_the_plain_energy_refines_what_is_nearly_right() -> None:
    frames = turning(40)
    assert frames.truth is not None
    data = dict(First=255 * frames.first, Second=255 * frames.second, w_smooth=5.0)
    start = frames.truth + np.array([0.4, -0.3])
    result = op.solve(optical_flow.energy, data | dict(Flow=start), device="cpu", dtype=np.float64, max_iterations=20)
    assert frames.error(result.x["Flow"]) < 0.3 * frames.error(start)


@pytest.mark.parametrize("name", ["energy", "robust"])
def test_the_derivatives_are_right(name: str) -> None:
    frames = turning(9)
    flow = 2 * np.random.default_rng(1).normal(size=(9, 9, 2))
    plain = dict(First=frames.first, Second=frames.second, w_smooth=0.5)
    robust = optical_flow.frames(frames, (9, 9)) | optical_flow.PARAMS
    data = dict(Flow=flow) | (plain if name == "energy" else robust)
    op.check_gradients(getattr(optical_flow, name), data, raise_exception=True)


def test_what_has_left_the_picture_is_not_compared() -> None:
    frames = turning(9)
    data = optical_flow.frames(frames, (9, 9)) | optical_flow.PARAMS
    flow = np.zeros((9, 9, 2))
    flow[..., 0] = 7.5
    fit = optical_flow.robust.residuals(data | dict(Flow=flow))["fit"]
    assert fit[:, 0].any()
    assert not fit[:, 1:].any()


@pytest.mark.optimised
@needs_sintel
def test_the_motion_in_a_film_is_found() -> None:
    frames = film("sintel_alley_1", 512)
    assert frames.first.shape == (218, 512, 3)
    assert frames.error(found(frames)) < 0.25


@pytest.mark.deep
@needs_sintel
@pytest.mark.parametrize(("name", "error"), [("sintel_alley_1", 0.25), ("sintel_cave_2", 1.6)])
def test_the_motion_in_a_whole_film_is_found(name: str, error: float) -> None:
    assert film(name).error(found(film(name))) < error


def test_a_flow_in_a_smaller_picture_is_shorter() -> None:
    flow = np.broadcast_to([4.0, -2.0], (20, 30, 2))
    np.testing.assert_allclose(resized(flow, (10, 10)), np.broadcast_to([4 / 3, -1.0], (10, 10, 2)))


def test_a_flow_is_read_with_what_is_not_known(tmp_path: Path) -> None:
    flow = np.arange(12, dtype="<f4").reshape(2, 3, 2)
    flow[1, 2] = 2e9
    head = np.array([202021.25], "<f4").tobytes() + np.array([3, 2], "<i4").tobytes()
    path = tmp_path / "flow.flo"
    path.write_bytes(head + flow.tobytes())
    read = read_flo(path)
    np.testing.assert_array_equal(read[0], flow[0])
    assert np.isnan(read[1, 2]).all()
    for wrong in (head + flow.tobytes()[:-4], b"PIEH", np.zeros(15, "<f4").tobytes()):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"is no \.flo file, or was cut short"):
            read_flo(path)


def test_an_unknown_motion_has_no_error() -> None:
    frames = Film(np.zeros((2, 2)), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="nobody knows"):
        frames.error(np.zeros((2, 2, 2)))


def test_directions_have_the_colours_of_the_wheel() -> None:
    """Right is red, down yellow, left cyan, up blue; no motion is white, and what is not known black."""
    arrows = np.array([[[1, 0], [0, 1], [-1, 0], [0, -1], [0, 0], [np.nan, 0]]], float)
    red, yellow, cyan, blue, white, black = drawn(arrows)[0]
    assert red[0] > 0.9 > 0.3 > max(red[1], red[2])
    assert min(yellow[0], yellow[1]) > 0.6 > 0.2 > yellow[2]
    assert min(cyan[1], cyan[2]) > 0.6 > 0.3 > cyan[0]
    assert blue[2] > 0.9 > 0.6 > max(blue[0], blue[1])
    assert white.tolist() == [1, 1, 1]
    assert black.tolist() == [0, 0, 0]


def test_frames_that_are_not_there_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTPY_DATA", "")
    assert film("auto", 24).first.shape == (24, 24)
    with pytest.raises(FileNotFoundError, match="OPTPY_DATA"):
        film("sintel_cave_2")


def test_the_program_draws_the_frame_and_its_motion(tmp_path: Path) -> None:
    output = tmp_path / "flow.png"
    arguments = ["--film", "made", "--size", "30", "--iterations", "2", "--device", "cpu", "--output", str(output)]
    done = CliRunner().invoke(optical_flow.main, arguments)
    assert done.exit_code == 0, done.output
    assert "30 x 30: cost" in done.output
    assert "mean end-point error" in done.output
    with Image.open(output) as picture:
        assert picture.size == (3 * 30 + 2 * pictures.GAP, 30)
