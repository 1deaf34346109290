"""The quick drawing of pictures whose pixels have moved, beside the exact one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from problems.demos.quick_warp import QuickWarp
from problems.forward_warp import forward_warp
from problems.image_warping import pixel_places

HEIGHT, WIDTH = 48, 60
NOISE = gaussian_filter(np.random.default_rng(3).random((HEIGHT, WIDTH, 3)), (2, 2, 0))
PICTURE = (NOISE - NOISE.min()) / np.ptp(NOISE)
ALL = np.ones((HEIGHT, WIDTH), np.bool_)
PLACES = pixel_places(HEIGHT, WIDTH)


def turned(degrees: float, scale: float) -> NDArray[np.float32]:
    middle = np.array([(WIDTH - 1) / 2, (HEIGHT - 1) / 2], np.float32)
    c, s = scale * np.cos(np.radians(degrees)), scale * np.sin(np.radians(degrees))
    return ((PLACES - middle) @ np.array([[c, s], [-s, c]], np.float32) + middle).astype(np.float32)


def test_a_picture_that_has_not_moved_is_drawn_as_it_is() -> None:
    warp = QuickWarp(PICTURE, ALL, margin=5)
    canvas = warp.drawn(PLACES)
    assert canvas.shape == (HEIGHT + 10, WIDTH + 10, 3)
    np.testing.assert_allclose(canvas[5:-5, 5:-5] / 255, PICTURE, atol=0.01)
    canvas[5:-5, 5:-5] = 255
    assert (canvas == 255).all()  # the margin is background
    np.testing.assert_allclose(np.moveaxis(warp.source, 0, -1)[5:-5, 5:-5], PLACES, atol=1e-5)
    assert np.isnan(warp.source[:, :5]).all()


@pytest.mark.parametrize(("degrees", "scale"), [(0, 0.5), (25, 1.0), (170, 1.0), (90, 0.7), (-40, 1.9), (10, 5.0)])
def test_it_draws_what_the_exact_one_draws(degrees: float, scale: float) -> None:
    warp, position = QuickWarp(PICTURE, ALL, margin=0), turned(degrees, scale)
    quick = warp.drawn(position) / 255
    exact = forward_warp(PICTURE, position, ALL, samples=3)
    away = np.abs(quick - exact).max(axis=-1)
    drawn = (exact < 1 - 1e-9).any(axis=-1)
    assert np.quantile(away, 0.95) < 0.05  # all but edges, which the exact one smooths
    assert np.isnan(warp.source[0])[drawn].mean() < 0.02


def test_the_source_is_the_inverse_map() -> None:
    warp, position = QuickWarp(PICTURE, ALL, margin=8), turned(30, 0.8)
    warp.drawn(position)
    row, column = 20, 33
    x, y = np.rint(position[row, column]).astype(int) + 8
    np.testing.assert_allclose(warp.source[:, y, x], [column, row], atol=0.9)


def test_pixels_that_take_no_part_are_background_wherever_they_stand() -> None:
    active = ALL.copy()
    active[:, 30:] = False
    position = turned(0, 1.0)
    position[:, 30:] = -100.0
    canvas = QuickWarp(PICTURE, active, margin=0, background=0.5).drawn(position)
    assert (canvas[:, 31:] == 128).all()
    np.testing.assert_allclose(canvas[:, :29] / 255, PICTURE[:, :29], atol=0.01)


def test_of_what_folds_the_part_that_moved_farther_is_in_front() -> None:
    picture = np.zeros((HEIGHT, WIDTH, 3))
    picture[:, WIDTH // 2 :] = 1.0
    position = PLACES.copy()
    position[:, WIDTH // 2 :, 0] -= WIDTH // 2  # the white half lies on the black one
    canvas = QuickWarp(picture, ALL, margin=0, background=0.5).drawn(position)
    assert (canvas[:, 2 : WIDTH // 2 - 2] == 255).all()
    assert (canvas[:, WIDTH // 2 + 2 :] == 128).all()


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (2, 3)])
def test_tiny_pictures(shape: tuple[int, int]) -> None:
    warp = QuickWarp(np.zeros((*shape, 3)), np.ones(shape, np.bool_), margin=1)
    canvas = warp.drawn(pixel_places(*shape))
    assert (canvas[1:-1, 1:-1] == 0).all()
    assert (canvas[0] == 255).all()


def test_places_far_away_and_pixels_in_one_place_are_no_error() -> None:
    warp = QuickWarp(PICTURE, ALL, margin=4)
    assert (warp.drawn(PLACES + np.float32(1e7)) == 255).all()
    assert (warp.drawn(np.full_like(PLACES, 20.0)) < 255).any(axis=-1).sum() <= 9
    nothing = QuickWarp(PICTURE, ~ALL, margin=4)
    assert (nothing.drawn(PLACES) == 255).all()
