"""Flat vectors over all unknowns, and the smooth directions among them."""

from __future__ import annotations

import numpy as np

from optpy.api.flat import Smooth

SHAPES = [(3, 4, 2), (3,), (1, 1)]


def test_constants_of_each_channel() -> None:
    span = Smooth(SHAPES, np.ones(28, bool), np, linear=False)
    assert span.size == 2 + 3 + 1
    parts = np.split(span.vector(np.arange(1.0, 7.0)), [24, 27])
    np.testing.assert_array_equal(parts[0].reshape(3, 4, 2), np.broadcast_to([1.0, 2.0], (3, 4, 2)))
    np.testing.assert_array_equal(parts[1], [3, 4, 5])
    np.testing.assert_array_equal(parts[2], [6])


def test_coordinates_along_each_dim() -> None:
    span = Smooth(SHAPES, np.ones(28, bool), np, linear=True)
    assert span.size == 2 * 3 + 3 + 1 * 2
    image, vector, point = np.split(span.vector(np.arange(1.0, 12.0)), [24, 27])
    y, x = np.linspace(-1, 1, 3)[:, None], np.linspace(-1, 1, 4)
    np.testing.assert_allclose(image.reshape(3, 4, 2)[..., 0], 1 + 3 * y + 5 * x)
    np.testing.assert_allclose(image.reshape(3, 4, 2)[..., 1], 2 + 4 * y + 6 * x)
    np.testing.assert_array_equal(vector, [7, 8, 9])
    np.testing.assert_array_equal(point, [10])  # along a dim of one element there is no slope


def test_moments_are_products_with_the_directions_and_what_is_fixed_has_none() -> None:
    rng = np.random.default_rng(0)
    free, v = rng.random(28) < 0.7, rng.normal(size=28)
    span = Smooth(SHAPES, free, np, linear=True)
    directions = np.stack([span.vector(unit) for unit in np.eye(span.size)])
    assert not directions[:, ~free].any()
    np.testing.assert_allclose(span.moments(v), directions @ v)
    np.testing.assert_allclose(span.squares(np.abs(v)), directions**2 @ np.abs(v))
