from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from problems import pictures


@pytest.mark.parametrize("name", ["astronaut.png", "camera.png", "chelsea.png", "coffee.png"])
def test_the_pictures_of_the_problems_ship_inside_the_wheel(name: str) -> None:
    picture = pictures.shipped_picture(name)
    assert min(picture.shape[:2]) >= 300
    assert 0 <= picture.min() < 0.1
    assert 0.9 < picture.max() <= 1


def test_a_picture_that_does_not_ship_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"scikit-image does not ship unheard_of\.png"):
        pictures.shipped_picture("unheard_of.png")


def test_optpy_data_names_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here.txt").touch()
    monkeypatch.setenv("OPTPY_DATA", str(tmp_path))
    assert pictures.data_folder() == tmp_path
    assert pictures.data_file("here.txt") == tmp_path / "here.txt"
    assert pictures.data_file("elsewhere.txt") is None


def test_optpy_data_set_but_empty_means_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTPY_DATA", "")
    assert pictures.data_folder() is None
    assert pictures.data_file("image_warping/cat512.png") is None


def test_optpy_data_that_is_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTPY_DATA", str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match="gone"):
        pictures.data_folder()


@pytest.mark.parametrize(("size", "shape"), [(None, (30, 45, 3)), (90, (60, 90, 3)), (9, (6, 9, 3)), (1, (1, 1, 3))])
def test_resize_keeps_the_aspect(size: int | None, shape: tuple[int, ...]) -> None:
    picture = np.full((30, 45, 3), 0.25)
    resized = pictures.resize_longest_side(picture, size)
    assert resized.shape == shape
    np.testing.assert_allclose(resized, 0.25, atol=1e-6)


def test_resize_keeps_the_values_in_range() -> None:
    steps = np.kron(np.eye(4), np.ones((5, 5))).astype(np.float64)
    resized = pictures.resize(steps, (63, 63))
    assert resized.min() >= 0
    assert resized.max() <= 1


def test_resized_masks_have_no_new_values() -> None:
    mask = np.array([[0, 255], [255, 0]], np.uint8)
    np.testing.assert_array_equal(pictures.resize_mask(mask, (4, 4)), np.kron(mask, np.ones((2, 2), np.uint8)))
    assert pictures.resize_mask(mask, (1, 1)).shape == (1, 1)


def test_alpha_is_laid_on_white() -> None:
    picture = np.array([[[0.5, 0.5, 0.5, 1.0], [0.2, 0.2, 0.2, 0.0], [0.0, 0.0, 0.0, 0.5]]])
    np.testing.assert_allclose(pictures.flatten_on_white(picture)[0, :, 0], [0.5, 1.0, 0.5])


def test_side_by_side_pictures_read_back(tmp_path: Path) -> None:
    grey, colour = np.full((4, 5), 0.2), np.broadcast_to([1.0, 0.4, -3.0], (4, 6, 3))
    pictures.save_side_by_side(tmp_path / "both.png", [grey, colour])
    with Image.open(tmp_path / "both.png") as opened:
        pixels = np.asarray(opened)
    assert pixels.shape == (4, 5 + pictures.GAP + 6, 3)
    np.testing.assert_array_equal(pixels[:, :5], 51)
    np.testing.assert_array_equal(pixels[:, 5 : 5 + pictures.GAP], 255)
    np.testing.assert_array_equal(pixels[2, -1], [255, 102, 0])


@pytest.mark.parametrize(("name", "known"), [("a.png", True), ("a.JPG", True), ("a.txt", False), ("a", False)])
def test_picture_names(name: str, known: bool) -> None:
    assert pictures.is_picture_name(Path(name)) is known
