"""Pictures as planes in space: x to the right, y downward, seen from the front, where z is negative."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import viser
from numpy.typing import ArrayLike, NDArray

Vector3 = tuple[float, float, float]


@final
class PicturePlane:
    """A picture that stands in the plane z = 0, sent as JPEG whenever it changes.

    Args:
        server: of the page.
        name: of its node.
        picture: (H, W, 3), of 8 bits; later ones may have other sizes, and are stretched to this one's.
        unit: length of a pixel.
        middle: of the plane, (x, y).

    Attributes:
        image: its node.
    """

    def __init__(
        self,
        server: viser.ViserServer,
        name: str,
        picture: NDArray[np.uint8],
        unit: float,
        middle: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self._server = server
        self._unit = unit
        self._shape = height, width = picture.shape[:2]
        self._first = np.array(middle) - unit * (np.array([width, height]) - 1) / 2  # the first pixel's centre
        self.image: Any = server.scene.add_image(
            name,
            picture,
            render_width=unit * width,
            render_height=unit * height,
            format="jpeg",
            jpeg_quality=85,
            cast_shadow=False,
            receive_shadow=False,
            position=(*middle, 0.0),
        )

    def show(self, picture: NDArray[np.uint8]) -> None:
        """Show another picture."""
        self.image.image = picture

    def on_canvas(self, place: ArrayLike) -> NDArray[np.float64]:
        """The (column, row) of a place in the plane: whole numbers at the centres of pixels."""
        return np.asarray((np.asarray(place, np.float64)[:2] - self._first) / self._unit)

    def in_space(self, places: NDArray[np.floating], in_front: float = 0.0) -> NDArray[np.float64]:
        """The places (..., 3) in space of (column, row), (..., 2), somewhat in front of the plane."""
        flat = self._first + self._unit * places.astype(np.float64)
        return np.concatenate([flat, np.full((*flat.shape[:-1], 1), -in_front)], axis=-1)


def look_from_front(server: viser.ViserServer, width: float, height: float) -> None:
    """Set the cameras of new tabs so that they see all of a plane around the origin, upright, left of the panel."""
    longer = max(width, height)
    server.scene.set_up_direction("-y")
    server.initial_camera.look_at = np.array([0.15 * longer, 0.0, 0.0])
    server.initial_camera.position = np.array([0.15 * longer, 0.0, -0.85 * longer])


def on_plane(eye: ArrayLike, through: ArrayLike) -> Vector3:
    """Where the line from the eye through a point meets the plane z = 0; the point itself where it does not."""
    start, point = np.asarray(eye, np.float64), np.asarray(through, np.float64)
    depth = start[2] - point[2]
    met = point if abs(depth) < 1e-9 else start + (point - start) * (start[2] / depth)
    x, y, z = met.tolist()
    return x, y, z
