"""A photograph that follows its handles, step by step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from scipy.ndimage import gaussian_filter

from problems.demos.image_work import Grip, GripAt, ImageWork
from problems.image_warping import pixel_places
from problems.pictures import shipped_picture

pytestmark = pytest.mark.applications

HEIGHT, WIDTH = 40, 56
PICTURE = gaussian_filter(np.random.default_rng(1).random((HEIGHT, WIDTH, 3)), (2, 2, 0))
PLACES = pixel_places(HEIGHT, WIDTH)
LEFT, RIGHT = GripAt(20, 6), GripAt(20, 49)


@pytest.fixture
def work() -> ImageWork:
    return ImageWork(PICTURE, np.zeros((HEIGHT, WIDTH), np.uint8))


def follow(work: ImageWork, inputs: dict[Any, Any], frames: int = 60) -> None:
    work.change(inputs)
    for _ in range(frames):
        if work.step().finished:
            break


def test_handles_pull_the_photograph_and_turn_their_discs(work: ImageWork) -> None:
    follow(work, {LEFT: Grip(6, 20), RIGHT: Grip(52, 12, turn=30), "radius": 3.0})
    np.testing.assert_allclose(work.position[20, 6], [6, 20], atol=0.3)
    np.testing.assert_allclose(work.position[20, 49], [52, 12], atol=0.3)
    beside = work.position[20, 51] - work.position[20, 49]
    assert np.degrees(np.arctan2(beside[1], beside[0])) == pytest.approx(30, abs=5)
    lengths = np.linalg.norm(np.diff(work.position, axis=1), axis=-1)
    assert np.median(np.abs(lengths - 1)) < 0.1
    assert work.canvas.shape == (HEIGHT + 14, WIDTH + 14, 3)
    assert (work.canvas < 250).any()


def test_places_left_of_the_photograph_and_above_are_reached(work: ImageWork) -> None:
    follow(work, {LEFT: Grip(-9, -8), "w_fit": 100.0})
    np.testing.assert_allclose(work.position[20, 6], [-9, -8], atol=0.3)


def test_nothing_moves_without_handles_nor_where_the_mask_says_so(work: ImageWork) -> None:
    assert work.step().finished
    np.testing.assert_allclose(work.position, PLACES, atol=1e-4)
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[:, 28:] = 255
    masked = ImageWork(PICTURE, mask)
    follow(masked, {LEFT: Grip(12, 25)})
    assert np.abs(masked.position[:, :28] - PLACES[:, :28]).max() > 4
    np.testing.assert_array_equal(masked.position[:, 28:], PLACES[:, 28:])
    with pytest.raises(ValueError, match="row 20, column 49 takes no part"):
        masked.change({RIGHT: Grip(0, 0)})


def test_a_border_that_is_held_stays(work: ImageWork) -> None:
    follow(work, {GripAt(20, 28): Grip(34, 20), "hold_border": True})
    assert np.abs(work.position[0] - PLACES[0]).max() < 0.2
    assert work.position[20, 28, 0] > 33


def test_undo_takes_back_what_was_marked_and_reset_everything(work: ImageWork) -> None:
    follow(work, {"mark": True, LEFT: Grip(6, 20)}, 1)
    follow(work, {"mark": True, RIGHT: Grip(50, 20)}, 1)
    follow(work, {RIGHT: Grip(55, 25)}, 1)
    work.change({"undo": 1})
    assert work.grips == {LEFT: Grip(6, 20)}
    work.change({"undo": 1})  # the same press, seen again
    assert work.grips == {LEFT: Grip(6, 20)}
    work.change({"undo": 3})  # twice, of which one finds nothing
    assert work.grips == {}
    follow(work, {RIGHT: Grip(55, 25)}, 3)
    work.change({"reset": True})
    assert work.grips == {}
    np.testing.assert_array_equal(work.position, PLACES)


@pytest.mark.parametrize(
    ("name", "value"), [("method", "gn"), ("preconditioner", "multigrid"), ("linear", 3), ("w_reg", 2.0)]
)
def test_settings_change_in_the_middle(work: ImageWork, name: str, value: Any) -> None:
    follow(work, {LEFT: Grip(6, 20), RIGHT: Grip(52, 12)}, 3)
    stood = work.position.copy()
    work.change({name: value})
    assert getattr(work.settings, name) == value
    np.testing.assert_allclose(work.position, stood)
    assert work.step().linear_iterations <= work.settings.linear
    assert np.abs(work.position - stood).max() < 5  # it goes on from where it stood


def test_handles_that_are_none_are_refused(work: ImageWork) -> None:
    with pytest.raises(ValueError, match="which is no place"):
        work.change({LEFT: Grip(math.nan, 0.0)})
    with pytest.raises(ValueError, match="no pixel in row 1000000, column 0"):
        work.change({GripAt(1_000_000, 0): Grip(0.0, 0.0)})
    assert work.grips == {}
    work.change({LEFT: Grip(1e30, -1e30)})  # far away: as far as the canvas goes, and some more
    assert np.isfinite(work.step().cost)


def test_it_recovers_as_it_was(work: ImageWork) -> None:
    follow(work, {LEFT: Grip(20, 30)}, 2)
    work.recover()
    np.testing.assert_array_equal(work.position, PLACES)
    assert np.isfinite(work.step().cost)
    np.testing.assert_allclose(work.exported(), PICTURE, atol=0.03)


def run(*arguments: str) -> str:
    pytest.importorskip("viser")
    from problems.demos.image import main

    shown = CliRunner().invoke(main, list(arguments))
    assert shown.exit_code == 1
    return shown.output


def test_files_that_cannot_be_used_end_the_program_with_a_sentence(tmp_path: Path) -> None:
    assert "there is no file" in run("--image", str(tmp_path / "none.png"))
    (tmp_path / "text.png").write_text("no picture")
    assert "no picture that Pillow reads" in run("--image", str(tmp_path / "text.png"))
    Image.fromarray((255 * shipped_picture("astronaut.png")).astype(np.uint8)).save(tmp_path / "a.png")
    Image.new("L", (512, 512), 255).save(tmp_path / "white.png")
    said = run("--image", str(tmp_path / "a.png"), "--mask", str(tmp_path / "white.png"))
    assert "a.png has 512 x 512 pixels: it is solved at 256 x 256" in said
    assert "white.png is empty" in said
    assert "--mask belongs to a photograph" in run("--mask", str(tmp_path / "white.png"))
