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
        source: (2, H + 2 margin, W + 2 margin): the place (x, y) in the picture that each pixel of the canvas shows
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
    _still: Floats = field(init=False)
    _canvas: Floats = field(init=False)
    _sides: tuple[tuple[Floats, Floats, Floats], ...] = field(init=False)

    def __post_init__(self) -> None:
        height, width = self.active.shape
        self._still = _grid(height, width)
        self._canvas = _grid(height + 2 * self.margin, width + 2 * self.margin)
        self.source = np.full_like(self._canvas, np.nan)
        self._fine = next(n for n in (_FINE, 3, 1) if n == 1 or n * n * self.active.size <= _LARGEST)
        ink = np.concatenate([self.picture, np.ones((height, width, 1))], axis=-1) * self.active[..., None]
        large = pictures.resize(ink, (self._fine * height, self._fine * width))
        self._colours = _packed(large[..., :3] + (1 - large[..., 3:]) * self.background).ravel()
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
        seeds = self._seeds(places, determinant)
        moves = np.concatenate([places.reshape(2, -1), inverse, self._still.reshape(2, -1)])
        x, y, near = self._found(np.maximum(seeds, 0).ravel(), moves)
        near &= seeds.ravel() >= 0
        source = np.stack([np.where(near, v, np.float32(np.nan)) for v in (x, y)]).reshape(self._canvas.shape)
        for _ in range(2):
            _fill_cracks(source)
        self.source = source
        paper = _packed(np.full((1, 1, 3), self.background)).item()
        canvas = np.where(np.isnan(source[0]), np.uint32(paper), self._coloured(source))
        return canvas.view(np.uint8).reshape(*canvas.shape, 4)[..., :3]

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
        height, width = self._canvas.shape[1:]
        x, y = (p.ravel()[self._numbers] for p in places)
        columns, rows = (p.ravel()[self._numbers] + self.margin for p in self._still)
        moved = np.hypot(x - columns, y - rows)
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

    def _found(self, pixel: Whole, moves: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Places (x, y) in the picture of the canvas's pixels, and whether they are in it."""
        height, width = self.active.shape
        across, down = self._canvas.reshape(2, -1)
        x, y, near = self._step(pixel, across, down, moves)
        (far,) = np.nonzero(~near)  # stretched: the pixel found is none of the nearest
        column, row = (np.rint(np.clip(v[far], 0, n - 1)).astype(np.intp) for v, n in ((x, width), (y, height)))
        seed, across, down = pixel[far], across[far], down[far]
        again = row * width + column
        again = np.where(self.active.ravel()[again], again, seed)
        right, below, close = self._step(again, across, down, moves)
        here = (np.abs(across - moves[0].take(seed)) <= 0.5) & (np.abs(down - moves[1].take(seed)) <= 0.5)
        squeezed = here & ~close  # where the map has a kink, too
        x[far], y[far] = (np.where(squeezed, moves[6 + k].take(seed), v) for k, v in enumerate((right, below)))
        near[far] = close | here
        near &= (x >= -0.5) & (y >= -0.5) & (x <= width - 0.5) & (y <= height - 0.5)
        return x, y, near

    def _step(
        self, pixel: Whole, across: Floats, down: Floats, moves: Floats
    ) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """By the linear map around pixels: the places in the picture, and whether they are as near as it holds."""
        x, y, a, b, c, d, column, row = (plane.take(pixel) for plane in moves)
        x, y = across - x, down - y
        right, below = a * x + b * y, c * x + d * y
        near = (np.abs(right) <= _REACH) & (np.abs(below) <= _REACH)
        return column + right, row + below, near

    def _coloured(self, source: Floats) -> NDArray[np.uint32]:
        height, width = self.active.shape
        places = np.nan_to_num(source)
        column, row = (
            np.clip((v + np.float32(0.5)) * self._fine, 0, self._fine * n - 1).astype(np.intp)
            for v, n in zip(places, (width, height), strict=True)
        )
        return np.asarray(self._colours.take(row * (self._fine * width) + column))


def _grid(height: int, width: int) -> Floats:
    """(2, H, W): the place (x, y) of every pixel."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([columns, rows]).astype(np.float32)


def _packed(picture: Picture) -> NDArray[np.uint32]:
    """(H, W): colours of 8 bits in one number each, which is read at once."""
    bytes = np.full((*picture.shape[:2], 4), 255, np.uint8)
    bytes[..., :3] = np.rint(255 * np.clip(picture, 0, 1))
    return np.asarray(bytes.view(np.uint32)[..., 0])


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
    empty = np.isnan(source[0])
    for axis in (0, 1):
        found = np.moveaxis(source, 1 + axis, 1)  # a view
        hole = np.moveaxis(empty, axis, 0)
        crack = hole[1:-1] & ~hole[:-2] & ~hole[2:]
        found[:, 1:-1][:, crack] = found[:, :-2][:, crack]
