from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from problems.forward_warp import forward_warp

RNG = np.random.default_rng(3)


def places(height: int, width: int) -> NDArray[np.float64]:
    rows, columns = np.mgrid[:height, :width]
    return np.stack([columns, rows], axis=-1).astype(np.float64)


def everywhere(height: int, width: int) -> NDArray[np.bool_]:
    return np.ones((height, width), dtype=bool)


def test_identity_draws_the_picture_itself() -> None:
    picture = RNG.random((9, 12, 3))
    drawn = forward_warp(picture, places(9, 12), everywhere(9, 12), samples=1)
    np.testing.assert_allclose(drawn, picture, atol=1e-12)


def test_identity_covers_every_pixel_up_to_its_border() -> None:
    drawn = forward_warp(np.zeros((7, 5, 3)), places(7, 5), everywhere(7, 5), background=1.0, samples=3)
    np.testing.assert_allclose(drawn, 0, atol=1e-12)


def test_a_shift_by_whole_pixels_moves_the_picture() -> None:
    picture = RNG.random((8, 10, 3))
    drawn = forward_warp(picture, places(8, 10) + [3, 1], everywhere(8, 10), background=0.5, samples=1)
    np.testing.assert_allclose(drawn[1:, 3:], picture[:-1, :-3], atol=1e-12)
    np.testing.assert_allclose(drawn[0], 0.5)
    np.testing.assert_allclose(drawn[:, :2], 0.5)


def test_a_stretched_picture_has_no_holes() -> None:
    drawn = forward_warp(np.zeros((6, 6, 3)), places(6, 6) * 2.7 - 4.0, everywhere(6, 6), background=1.0)
    np.testing.assert_allclose(drawn, 0, atol=1e-12)


def test_a_rotation_keeps_the_area() -> None:
    height = width = 60
    centred = places(height, width) - 29.5
    turned = centred @ np.array([[0.8, 0.6], [-0.6, 0.8]]) + 29.5
    active = np.hypot(centred[..., 0], centred[..., 1]) < 20
    drawn = forward_warp(np.ones((height, width, 1)), turned, active, background=0.0, samples=4)
    still = forward_warp(np.ones((height, width, 1)), places(height, width), active, background=0.0, samples=4)
    assert drawn.sum() == pytest.approx(still.sum(), rel=0.01)


def test_inactive_pixels_show_the_background() -> None:
    active = everywhere(6, 6)
    active[:, 3:] = False
    behind = np.broadcast_to([0.1, 0.2, 0.3], (6, 6, 3))
    drawn = forward_warp(np.ones((6, 6, 3)), places(6, 6), active, background=behind)
    np.testing.assert_allclose(drawn[:, 4:], behind[:, 4:])
    np.testing.assert_allclose(drawn[:, :2], 1)


def test_the_part_that_moved_farther_hides_the_other() -> None:
    picture = np.zeros((6, 12, 1))
    picture[:, 6:] = 1.0
    position = places(6, 12)
    position[:, 6:, 0] -= 6
    active = everywhere(6, 12)
    drawn = forward_warp(picture, position, active, background=0.5, samples=1)
    np.testing.assert_allclose(drawn[:, :5], 1.0, atol=1e-12)


def test_the_part_that_was_turned_over_is_hidden() -> None:
    # The right half is folded to the left about column 5.5: seen from its back, it lies behind.
    picture = np.zeros((6, 12, 1))
    picture[:, 6:] = 1.0
    position = places(6, 12)
    position[:, 6:, 0] = 11.0 - position[:, 6:, 0]
    drawn = forward_warp(picture, position, everywhere(6, 12), background=0.5, samples=1)
    np.testing.assert_allclose(drawn[:, 1:5], 0.0, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1)])
def test_tiny_pictures(shape: tuple[int, int]) -> None:
    picture = np.full((*shape, 3), 0.25)
    drawn = forward_warp(picture, places(*shape), everywhere(*shape))
    assert drawn.shape == picture.shape
    assert np.isfinite(drawn).all()


def test_places_outside_the_canvas_are_no_error() -> None:
    drawn = forward_warp(np.zeros((4, 4, 3)), places(4, 4) + 1e6, everywhere(4, 4), background=1.0)
    np.testing.assert_allclose(drawn, 1.0)
