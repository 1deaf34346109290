"""Draws a picture whose every pixel has been moved, many times a second: the inverse map, found by scattering.

`problems.forward_warp` draws the same with exact triangles and smooth edges, and takes much longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from .. import pictures
from ..pictures import Picture

_LEVELS: Final = 4
"""The scattering is repeated on cells of 2, 4, 8 and 16 pixels, for parts that are stretched as much."""

_REACH: Final = 0.75
"""Pixels of the picture by which a point of the canvas may lie beside the pixel that it is drawn from."""

_FINE: Final = 5
"""Colours are those of a picture so many times as large, at the nearest pixel; odd, so that centres are there, too."""

_LARGEST: Final = 1 << 24
"""Pixels that it has at most."""

Floats = NDArray[np.float32]
Whole = NDArray[np.intp]


@final
@dataclass(slots=True)
class QuickWarp:
    """Draws on a canvas that is larger than the picture by a margin on each side.

    Each pixel is scattered to the canvas; the inverse map is linear around the pixel found there. Where the picture
    folds, parts that kept their orientation hide those that were turned over, and of these the one that moved farther
    hides the other, as in `problems.forward_warp`.

    Args:
        picture: (H, W, 3), 0 to 1.
        active: (H, W): pixels that are drawn.
        margin: pixels.
        background: of the canvas, a grey level.

    Attributes:
        source: (H + 2 margin, W + 2 margin, 2): the place (x, y) in the picture that each pixel of the canvas shows
            since the last drawing, NaN where it shows the background.
    """

    picture: Picture
    active: NDArray[np.bool_]
    margin: int
    background: float = 1.0
    source: Floats = field(init=False)
    _fine: int = field(init=False)
    _colours: NDArray[np.uint32] = field(init=False)
    _numbers: Whole = field(init=False)
    _sides: tuple[tuple[Floats, Floats, Floats], ...] = field(init=False)

    def __post_init__(self) -> None:
        height, width = self.active.shape
        self.source = np.full((height + 2 * self.margin, width + 2 * self.margin, 2), np.nan, np.float32)
        self._fine = next(n for n in (_FINE, 3, 1) if n == 1 or n * n * self.active.size <= _LARGEST)
        ink = np.concatenate([self.picture, np.ones((height, width, 1))], axis=-1) * self.active[..., None]
        large = pictures.resize(ink, (self._fine * height, self._fine * width))
        on_background = large[..., :3] + (1 - large[..., 3:]) * self.background
        bytes = np.full((*large.shape[:2], 4), 255, np.uint8)
        bytes[..., :3] = np.rint(255 * np.clip(on_background, 0, 1))
        self._colours = bytes.view(np.uint32).ravel()  # one number a pixel: read at once
        self._numbers = np.flatnonzero(self.active)
        self._sides = tuple(_sides(self.active, axis) for axis in (1, 0))

    def drawn(self, position: NDArray[np.floating]) -> NDArray[np.uint8]:
        """The canvas, (H + 2 margin, W + 2 margin, 3).

        Args:
            position: (H, W, 2): where each pixel of the picture is, (x, y) in pixels of the picture.
        """
        places = np.ascontiguousarray(np.moveaxis(position.astype(np.float32), -1, 0))  # whole planes: faster
        determinant, inverse = self._slopes(places)
        places += self.margin
        moves = np.concatenate([places.reshape(2, -1), inverse])  # what `_step` needs of a pixel
        seeds = self._seeds(places, determinant).ravel()
        shown = np.flatnonzero(seeds >= 0)
        height, width = self.source.shape[:2]
        at = (shown % width).astype(np.float32), (shown // width).astype(np.float32)
        x, y, near = self._found(seeds[shown], at, moves)
        self.source = np.full((height, width, 2), np.nan, np.float32)
        self.source.reshape(-1, 2)[shown[near]] = np.stack([x[near], y[near]], axis=-1)
        for _ in range(2):
            _fill_cracks(self.source)
        canvas = np.full((height, width, 4), round(255 * self.background), np.uint8)
        drawn = ~np.isnan(self.source[..., 0])
        canvas.view(np.uint32)[drawn, 0] = self._coloured(*self.source[drawn].T)
        return canvas[..., :3]

    def _slopes(self, places: Floats) -> tuple[Floats, Floats]:
        """Determinants (H, W) and inverses (4, H W) of the map's derivative, by differences of active neighbours."""
        (a, c), (b, d) = (_derivative(places, axis, *self._sides[1 - axis]) for axis in (1, 0))
        determinant = a * d - b * c
        flat = np.abs(determinant) < 1e-3
        safe = np.where(flat, np.float32(1), determinant)
        inverse = np.stack([d / safe, -b / safe, -c / safe, a / safe])
        inverse[:, flat] = np.array([[1e6], [0], [0], [1e6]], np.float32)  # nothing beside the pixel itself is near
        return determinant, inverse.reshape(4, -1)

    def _seeds(self, places: Floats, determinant: Floats) -> Whole:
        """(canvas): a pixel of the picture that lies near, -1 where none does."""
        height, width = self.source.shape[:2]
        x, y = (p.ravel()[self._numbers] for p in places)
        rows, columns = np.divmod(self._numbers, self.active.shape[1])
        moved = np.hypot(x - (columns + self.margin), y - (rows + self.margin))
        rank = moved * (30_000 / max(float(moved.max(initial=0)), 1e-6))
        rank += 32_000 * (determinant.ravel()[self._numbers] > 0)
        order = np.argsort(rank.astype(np.uint16), kind="stable")
        x, y, ordered = x[order], y[order], self._numbers[order]
        inside = (x > -0.5) & (y > -0.5) & (x < width - 0.5) & (y < height - 0.5)
        x, y, ordered = x[inside], y[inside], ordered[inside]
        column, row = np.rint(x).astype(np.intp), np.rint(y).astype(np.intp)
        seeds: Any = None
        for level in reversed(range(_LEVELS + 1)):
            shape = ((height - 1 >> level) + 1, (width - 1 >> level) + 1)
            finer = np.full(shape, -1, np.intp)
            finer.ravel()[(row >> level) * shape[1] + (column >> level)] = ordered  # the last, in front, is kept
            if seeds is not None:
                coarser = np.repeat(np.repeat(seeds, 2, axis=0), 2, axis=1)[: shape[0], : shape[1]]
                finer = np.where(finer < 0, coarser, finer)
            seeds = finer
        return np.asarray(seeds)

    def _found(
        self, pixel: Whole, at: tuple[Floats, Floats], moves: Floats
    ) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Places (x, y) in the picture of points of the canvas, and whether they are in it."""
        height, width = self.active.shape
        x, y, near = self._step(pixel, at, moves)
        (far,) = np.nonzero(~near)  # stretched: the pixel found is none of the nearest
        column, row = (np.rint(np.clip(v[far], 0, n - 1)).astype(np.intp) for v, n in ((x, width), (y, height)))
        seed, canvas = pixel[far], (at[0][far], at[1][far])
        again = row * width + column
        again = np.where(self.active.ravel()[again], again, seed)
        right, down, close = self._step(again, canvas, moves)
        here = (np.abs(canvas[0] - moves[0].take(seed)) <= 0.5) & (np.abs(canvas[1] - moves[1].take(seed)) <= 0.5)
        squeezed = here & ~close  # where the map has a kink, too
        x[far], y[far] = np.where(squeezed, seed % width, right), np.where(squeezed, seed // width, down)
        near[far] = close | here
        near &= (x >= -0.5) & (y >= -0.5) & (x <= width - 0.5) & (y <= height - 0.5)
        return x, y, near

    def _step(self, pixel: Whole, at: tuple[Floats, Floats], moves: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """By the linear map around pixels: the places in the picture, and whether they are as near as it holds."""
        x, y, *inverse = (plane.take(pixel) for plane in moves)
        aside = at[0] - x, at[1] - y
        right = inverse[0] * aside[0] + inverse[1] * aside[1]
        down = inverse[2] * aside[0] + inverse[3] * aside[1]
        near = (np.abs(right) <= _REACH) & (np.abs(down) <= _REACH)
        rows, columns = np.divmod(pixel, self.active.shape[1])
        return columns + right, rows + down, near

    def _coloured(self, x: Floats, y: Floats) -> NDArray[np.uint32]:
        height, width = self.active.shape
        column, row = (
            np.clip((v + 0.5) * self._fine, 0, self._fine * n - 1).astype(np.intp) for v, n in ((x, width), (y, height))
        )
        return np.asarray(self._colours.take(row * (self._fine * width) + column))


def _sides(active: NDArray[np.bool_], axis: int) -> tuple[Floats, Floats, Floats]:
    """Weights of the differences before and after a pixel along an axis, and what is left of 1 where both fail."""
    lower, upper = (slice(None, -1), slice(1, None)) if axis == 0 else (np.s_[:, :-1], np.s_[:, 1:])
    both = active[lower] & active[upper]
    before, after = np.zeros(active.shape, np.float32), np.zeros(active.shape, np.float32)
    before[upper], after[lower] = both, both
    count = np.maximum(before + after, 1)
    before, after = before / count, after / count
    return before, after, 1 - before - after


def _derivative(places: Floats, axis: int, before: Floats, after: Floats, rest: Floats) -> Floats:
    """(2, H, W): the mean difference of (x, y) along an axis; that of the picture as it was where there is none."""
    lower, upper = (np.s_[:, :-1], np.s_[:, 1:]) if axis == 0 else (np.s_[:, :, :-1], np.s_[:, :, 1:])
    step = np.diff(places, axis=1 + axis)
    mean = np.zeros_like(places)
    mean[lower] = after[lower[1:]] * step
    mean[upper] += before[upper[1:]] * step
    mean[1 - axis] += rest
    return mean


def _fill_cracks(source: Floats) -> None:
    """Give single pixels between two that are drawn the source of one of them: the map has a kink there."""
    empty = np.isnan(source[..., 0])
    for axis in (0, 1):
        found = np.moveaxis(source, axis, 0)  # a view
        hole = np.moveaxis(empty, axis, 0)
        crack = hole[1:-1] & ~hole[:-2] & ~hole[2:]
        found[1:-1][crack] = found[:-2][crack]
