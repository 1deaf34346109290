"""Handles: vertices of a mesh that are moved and turned as one rigid piece."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.transform import Rotation

Vector3 = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]

UNTURNED: Quaternion = (1.0, 0.0, 0.0, 0.0)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Handle:
    """Vertices that move as one rigid piece.

    Attributes:
        vertices: (K,), their numbers.
        shape: (K, 3), where they lie around `position`, as the piece was taken.
        position: of the piece.
        wxyz: the quaternion that has turned it since.
        held: it is a pin, which nobody drags.
    """

    vertices: NDArray[np.int64]
    shape: NDArray[np.float64]
    position: Vector3
    wxyz: Quaternion = UNTURNED
    held: bool = False

    @property
    def targets(self) -> NDArray[np.float64]:
        """(K, 3): where its vertices shall be."""
        turned = Rotation.from_quat(np.roll(np.asarray(self.wxyz, np.float64), -1)).apply(self.shape)
        places: NDArray[np.float64] = turned + self.position
        return places

    def moved(self, position: ArrayLike, wxyz: ArrayLike | None = None) -> Handle:
        """The same vertices elsewhere; None: turned as it is."""
        turned = self.wxyz if wxyz is None else _numbers(wxyz)
        return replace(self, position=_numbers(position), wxyz=turned)


def handle(places: NDArray[np.floating], vertices: ArrayLike, *, held: bool = False) -> Handle:
    """Takes vertices as one piece, where they are now.

    Args:
        places: (V, 3), of all vertices.
        vertices: numbers of some, at least one.
        held: see `Handle`.

    Raises:
        ValueError: no vertex, or one that the mesh does not have.
    """
    chosen = np.atleast_1d(np.asarray(vertices, np.int64))
    if not chosen.size:
        raise ValueError("a handle needs a vertex: none was given")
    wrong = chosen[(chosen < 0) | (chosen >= len(places))]
    if wrong.size:
        raise ValueError(f"the mesh has no vertex {wrong[0]}: it has {len(places)}, counted from 0")
    taken = np.asarray(places, np.float64)[chosen]
    middle = taken.mean(axis=0)
    return Handle(chosen, taken - middle, _numbers(middle), held=held)


def around(places: NDArray[np.floating], vertex: int, radius: float) -> NDArray[np.int64]:
    """The vertices no farther than `radius` from one of them, which is always among them."""
    away = np.linalg.norm(np.asarray(places) - places[vertex], axis=1)
    return np.flatnonzero(away <= max(radius, 0.0))


def in_rectangle(
    places: NDArray[np.floating], camera: Any, low: tuple[float, float], high: tuple[float, float]
) -> NDArray[np.int64]:
    """The vertices that a camera sees inside a rectangle, those behind others too.

    Args:
        places: (V, 3).
        camera: has a `position`, a quaternion `wxyz` by which it looks along z with y downwards, a vertical opening
            `fov` in radians, and an `aspect`, of width by height.
        low, high: corners in the picture, whose upper left is (0, 0) and whose lower right is (1, 1).
    """
    turn = Rotation.from_quat(np.roll(np.asarray(camera.wxyz, np.float64), -1))
    x, y, z = turn.inv().apply(np.asarray(places, np.float64) - np.asarray(camera.position)).T
    half = np.where(z > 0, z, np.nan) * np.tan(camera.fov / 2)
    right, down = 0.5 + 0.5 * x / (half * camera.aspect), 0.5 + 0.5 * y / half
    return np.flatnonzero((right >= low[0]) & (right <= high[0]) & (down >= low[1]) & (down <= high[1]))


def _numbers(values: ArrayLike) -> Any:
    return tuple(map(float, np.asarray(values, np.float64)))
