"""Pictures of places in the plane: points and the segments between them, by Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from .pictures import Picture

Places = NDArray[np.float64]

_FINE = 3  # drawn so many times larger, then made smaller: smooth edges


@dataclass(frozen=True, slots=True)
class Layer:
    """What is drawn in one colour.

    Args:
        points: (N, 2), x to the right and y upwards.
        colour: red, green, blue, 0 to 255.
        segments: (M, 2), rows of `points` that are joined by lines.
        radius: of the points, in pixels; 0: they are not drawn.
    """

    points: Places
    colour: tuple[int, int, int]
    segments: NDArray[np.int64] | None = None
    radius: float = 0.0


@dataclass(frozen=True, slots=True)
class View:
    """The part of the plane that a picture shows: a square."""

    centre: tuple[float, float]
    side: float

    @classmethod
    def of(cls, points: Places, quantile: float = 0.0) -> View:
        """Around points, without the outermost fraction on each side; a little more than they need."""
        low, high = np.quantile(points, [quantile, 1 - quantile], axis=0)
        side = 1.1 * float((high - low).max())
        x, y = ((low + high) / 2).tolist()
        return cls((x, y), side or 1.0)


def draw(view: View, layers: Sequence[Layer], size: int = 512) -> Picture:
    """The layers over one another, on white: (size, size, 3)."""
    image = Image.new("RGB", (_FINE * size, _FINE * size), "white")
    canvas = ImageDraw.Draw(image)
    for layer in layers:
        # Far outside is as good as outside, and does not overflow.
        at = (layer.points - np.array(view.centre)) / view.side * [1, -1] + 0.5
        places = np.clip(_FINE * size * at, -1e4, 2e4)
        for a, b in [] if layer.segments is None else layer.segments.tolist():
            canvas.line([*places[a], *places[b]], fill=layer.colour, width=_FINE)
        r = _FINE * layer.radius
        for x, y in places.tolist() if r else []:
            canvas.ellipse([x - r, y - r, x + r, y + r], fill=layer.colour)
    small = image.resize((size, size), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float64) / 255.0


def principal_plane(points: Places) -> tuple[Places, Places]:
    """The mean, (3,), and the two directions, (3, 2), in which points (N, 3) spread most.

    Each direction points towards its larger component, so that a small change of the points does not mirror a picture.
    """
    mean = points.mean(axis=0)
    _, _, directions = np.linalg.svd(points - mean, full_matrices=False)
    pair = directions[:2]
    largest = np.take_along_axis(pair, np.abs(pair).argmax(axis=1)[:, None], axis=1)
    return mean, (pair * np.where(largest < 0, -1, 1)).T
