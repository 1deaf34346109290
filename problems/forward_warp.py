"""Draws a picture whose every pixel has been moved: the mesh of pixels, rasterised in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .pictures import Picture

Corners = NDArray[np.int64]
CHUNK = 1 << 18
"""Triangles rasterised at once: bounds the memory at any picture size."""


@dataclass(frozen=True, slots=True)
class _Canvas:
    """Colour and depth of the supersampled output; where nothing was drawn the depth is -inf."""

    colour: NDArray[np.float64]
    depth: NDArray[np.float64]


def forward_warp(
    picture: Picture,
    position: NDArray[np.floating],
    active: NDArray[np.bool_],
    background: Picture | float = 1.0,
    samples: int = 2,
) -> Picture:
    """Draws `picture` with the pixel at row i, column j moved to `position[i, j]`.

    Every square of four active neighbours is drawn as two triangles with the colours of its corners, so that
    stretched parts have no holes. Where the picture folds over itself, triangles that kept their orientation
    hide those that were turned over, and among them those that moved farther hide those that moved less.

    Args:
        picture: (H, W, C) colours, 0 to 1.
        position: (H, W, 2) new places of the pixels' centres, in pixels: (column, row), the "x, y" of images.
        active: (H, W), True where the pixel is drawn.
        background: what shows where nothing was drawn: a grey level or an (H, W, C) picture.
        samples: sub-pixels along each axis; edges are averaged over them.
    """
    height, width, channels = picture.shape
    canvas = _Canvas(
        np.zeros((height * samples, width * samples, channels)),
        np.full((height * samples, width * samples), -np.inf),
    )
    # The centre of sub-pixel s lies at (s + 1/2) / samples - 1/2 in pixels; this is its inverse.
    places = (_with_half_pixel_frame(position).reshape(-1, 2) + 0.5) * samples - 0.5
    colours = np.pad(picture, ((1, 1), (1, 1), (0, 0)), mode="edge").reshape(-1, channels)
    rank = np.pad(_distance_moved(position), 1, mode="edge").ravel()
    corners = _triangles(np.pad(active, 1, mode="edge"))
    for first in range(0, len(corners), CHUNK):
        _draw(canvas, corners[first : first + CHUNK], places, colours, rank)
    drawn = (canvas.depth > -np.inf)[..., None]
    behind = np.broadcast_to(np.asarray(background, dtype=np.float64), picture.shape)
    blocks = (height, samples, width, samples)
    coverage = drawn.reshape(*blocks, 1).mean(axis=(1, 3))
    ink = (canvas.colour * drawn).reshape(*blocks, channels).mean(axis=(1, 3))
    drawing: Picture = ink + (1.0 - coverage) * behind
    return drawing


def _with_half_pixel_frame(position: NDArray[np.floating]) -> NDArray[np.float64]:
    """Continues the places (H, W, 2) by half a pixel on every side: (H + 2, W + 2, 2).

    The mesh of the pixels' centres alone would end half a pixel inside the picture.
    """
    framed = position.astype(np.float64)
    for axis in (0, 1):
        first, last = np.take(framed, [0], axis), np.take(framed, [-1], axis)
        inner = [min(1, framed.shape[axis] - 1)], [max(framed.shape[axis] - 2, 0)]
        second, before_last = np.take(framed, inner[0], axis), np.take(framed, inner[1], axis)
        before, after = first - (second - first) / 2, last + (last - before_last) / 2
        framed = np.concatenate([before, framed, after], axis=axis)
    return framed


def _distance_moved(position: NDArray[np.floating]) -> NDArray[np.float64]:
    """How far each pixel moved, from 0 to 1: the depth order among triangles that kept their orientation."""
    height, width = position.shape[:2]
    rows, columns = np.mgrid[:height, :width]
    moved = np.hypot(position[..., 0] - columns, position[..., 1] - rows).astype(np.float64)
    share: NDArray[np.float64] = moved / max(float(moved.max()), 1e-12)
    return share


def _triangles(active: NDArray[np.bool_]) -> Corners:
    """The two triangles of every square of four active pixels: (n, 3) vertex numbers, clockwise on screen."""
    number = np.arange(active.size).reshape(active.shape)
    square = active[:-1, :-1] & active[:-1, 1:] & active[1:, :-1] & active[1:, 1:]
    a, b = number[:-1, :-1][square], number[:-1, 1:][square]
    c, d = number[1:, :-1][square], number[1:, 1:][square]
    return np.concatenate([np.stack([a, b, c], axis=1), np.stack([b, d, c], axis=1)])


def _draw(
    canvas: _Canvas,
    corners: Corners,
    places: NDArray[np.float64],
    colours: NDArray[np.float64],
    rank: NDArray[np.float64],
) -> None:
    """Rasterises triangles: visits the offsets inside their bounding boxes, all triangles at once."""
    triangle = places[corners]
    area = _cross(triangle[:, 1] - triangle[:, 0], triangle[:, 2] - triangle[:, 0])
    depth = np.where(area > 0, 1.0, -1.0) + rank[corners].mean(axis=1)
    low = np.maximum(np.ceil(triangle.min(axis=1)), 0).astype(np.int64)
    limit = np.array([canvas.depth.shape[1], canvas.depth.shape[0]]) - 1
    high = np.minimum(np.floor(triangle.max(axis=1)), limit).astype(np.int64)
    for which, column, row in _bounding_box_pixels(low, high, np.abs(area) > 1e-9):
        weight = _barycentric(triangle[which], area[which], column, row)
        # A sub-pixel exactly on a shared edge must not fall between the two triangles.
        inside = weight.min(axis=1) >= -1e-9
        which, column, row, weight = which[inside], column[inside], row[inside], weight[inside]
        order = np.argsort(depth[which], kind="stable")
        which, column, row, weight = which[order], column[order], row[order], weight[order]
        nearer = depth[which] > canvas.depth[row, column]
        which, column, row, weight = which[nearer], column[nearer], row[nearer], weight[nearer]
        # Where one sub-pixel comes twice, NumPy keeps the last value: the nearest, thanks to the sort.
        canvas.depth[row, column] = depth[which]
        canvas.colour[row, column] = np.einsum("nk,nkc->nc", weight, colours[corners[which]])


def _bounding_box_pixels(
    low: Corners, high: Corners, proper: NDArray[np.bool_]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Numbers of the triangles, columns and rows of one pixel of each bounding box, until all are visited."""
    extent = high - low + 1
    which = np.flatnonzero(proper & (extent > 0).all(axis=1))
    for visit in range(int(extent[which].prod(axis=1).max(initial=0))):
        which = which[extent[which].prod(axis=1) > visit]
        dy, dx = np.divmod(visit, extent[which, 0])
        yield which, low[which, 0] + dx, low[which, 1] + dy


def _barycentric(
    triangle: NDArray[np.float64],
    area: NDArray[np.float64],
    column: NDArray[np.int64],
    row: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Weights (n, 3) of the corners at a point: areas of the opposite triangles over the whole area."""
    point = np.stack([column, row], axis=1).astype(np.float64)
    a, b, c = triangle[:, 0], triangle[:, 1], triangle[:, 2]
    opposite = [_cross(b - point, c - point), _cross(c - point, a - point), _cross(a - point, b - point)]
    return np.stack(opposite, axis=1) / area[:, None]


def _cross(u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.float64]:
    return u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]
