"""Photographs and masks that users give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from problems.demos.photographs import read_mask, read_photograph


def saved(path: Path, pixels: np.ndarray, mode: str | None = None) -> Path:
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(path)
    return path


def gradient(height: int, width: int) -> np.ndarray:
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width)
    pixels[..., 1] = np.linspace(0, 255, height)[:, None]
    return pixels


def test_a_photograph_is_read_as_it_is(tmp_path: Path) -> None:
    found = read_photograph(saved(tmp_path / "a.png", gradient(20, 30)), 256)
    np.testing.assert_allclose(found.picture, gradient(20, 30) / 255)
    assert found.scaled == ""


def test_a_large_one_is_scaled_down_and_that_is_said(tmp_path: Path) -> None:
    found = read_photograph(saved(tmp_path / "large.png", gradient(600, 900)), 90)
    assert found.picture.shape == (60, 90, 3)
    assert found.scaled == "large.png has 900 x 600 pixels: it is solved at 90 x 60, --size N changes that"
    np.testing.assert_allclose(found.picture, gradient(60, 90) / 255, atol=0.02)


@pytest.mark.parametrize("mode", ["L", "P", "LA", "1", "CMYK"])
def test_all_kinds_of_pictures_become_colours(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("a.tiff" if mode == "CMYK" else "a.png")
    found = read_photograph(saved(path, np.full((6, 8, 3), 255, np.uint8), mode), 256)
    assert found.picture.shape == (6, 8, 3)
    np.testing.assert_allclose(found.picture, 1.0)


def test_transparent_parts_are_white_and_16_bits_are_kept(tmp_path: Path) -> None:
    pixels = np.zeros((6, 8, 4), np.uint8)
    pixels[:, 4:, 3] = 255
    found = read_photograph(saved(tmp_path / "a.png", pixels), 256)
    np.testing.assert_array_equal(found.picture[0, :, 0], [1, 1, 1, 1, 0, 0, 0, 0])
    deep = np.linspace(0, 65535, 48).astype(np.uint16).reshape(6, 8)
    found = read_photograph(saved(tmp_path / "deep.png", deep), 256)
    np.testing.assert_allclose(found.picture[..., 0], deep / 65535, atol=0.01)


def test_a_photograph_that_was_taken_sideways_stands_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned
    Image.fromarray(gradient(20, 30)).save(tmp_path / "a.jpg", exif=exif)
    found = read_photograph(tmp_path / "a.jpg", 256)
    assert found.picture.shape == (30, 20, 3)
    assert found.whole == (30, 20)


def test_what_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_photograph(tmp_path / "none.png", 256)
    text = tmp_path / "text.png"
    text.write_text("no picture")
    with pytest.raises(ValueError, match="no picture that Pillow reads"):
        read_photograph(text, 256)
    whole = saved(tmp_path / "whole.png", gradient(200, 300)).read_bytes()
    cut = tmp_path / "cut.png"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cannot be read as a picture"):
        read_photograph(cut, 256)
    with pytest.raises(ValueError, match="cannot be read as a picture"):
        read_photograph(tmp_path, 256)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(ValueError, match="too large to be read"):
        read_photograph(tmp_path / "whole.png", 256)


def test_a_mask_is_black_where_the_photograph_takes_part(tmp_path: Path) -> None:
    photograph = read_photograph(saved(tmp_path / "a.png", gradient(40, 60)), 30)
    pixels = np.full((40, 60), 255, np.uint8)
    pixels[:, :30] = 0
    mask = read_mask(saved(tmp_path / "mask.png", pixels), photograph)
    assert mask.shape == (20, 30)
    assert (mask[:, :15] == 0).all()
    assert (mask[:, 15:] != 0).all()


def test_masks_that_do_not_fit_are_told(tmp_path: Path) -> None:
    photograph = read_photograph(saved(tmp_path / "a.png", gradient(40, 60)), 30)
    with pytest.raises(ValueError, match=r"mask small.png has 30 x 20 pixels, the photograph a.png 60 x 40"):
        read_mask(saved(tmp_path / "small.png", np.zeros((20, 30), np.uint8)), photograph)
    with pytest.raises(ValueError, match=r"white.png is empty: a pixel takes part where the mask is black"):
        read_mask(saved(tmp_path / "white.png", np.full((40, 60), 255, np.uint8)), photograph)
