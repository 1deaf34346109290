"""What a deformation is asked for: the foot of a mesh, or of a lattice, is held, and its top is moved and turned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.transform import Rotation
from trimesh import Trimesh

from .mesh_picture import PLAIN, Colours

HELD_COLOUR = (0.35, 0.50, 0.75)
MOVED_COLOUR = (0.90, 0.55, 0.25)


@dataclass(frozen=True, slots=True)
class Handles:
    """Which vertices or other points are pulled, and where to; (V,) and (V, 3)."""

    held: NDArray[np.bool_]
    moved: NDArray[np.bool_]
    target: NDArray[np.float64]
    """Where each handle shall be; elsewhere the point as it is."""

    @property
    def pulled(self) -> NDArray[np.bool_]:
        """All handles, held and moved."""
        return self.held | self.moved

    def colours(self, mesh: Trimesh) -> Colours:
        """Faces whose corners are all held, or all moved, stand out."""
        colours = np.tile(PLAIN, (len(mesh.faces), 1))
        for chosen, colour in ((self.held, HELD_COLOUR), (self.moved, MOVED_COLOUR)):
            colours[chosen[np.asarray(mesh.faces)].all(axis=1)] = colour
        return colours


def top_and_foot(
    points: ArrayLike,
    fraction: float = 0.02,
    turn: tuple[float, float, float] = (0.0, 45.0, -50.0),
    shift: tuple[float, float, float] = (0.3, -0.1, 0.0),
) -> Handles:
    """The lowest points stay; the highest move as one piece. Up is y.

    Args:
        points: (V, 3): the vertices of a mesh, or others.
        fraction: of all points, for each of the two; points at the same height go together.
        turn: degrees about x, then y, then z, around the middle of the moved points.
        shift: in heights of all.
    """
    vertices = np.asarray(points, np.float64)
    height = vertices[:, 1]
    held = height <= np.quantile(height, fraction, method="lower")
    top = (height >= np.quantile(height, 1 - fraction, method="higher")) & ~held
    target = vertices.copy()
    if top.any():
        middle = vertices[top].mean(axis=0)
        rotation = Rotation.from_euler("xyz", turn, degrees=True)
        target[top] = rotation.apply(vertices[top] - middle) + middle + np.ptp(height) * np.array(shift)
    return Handles(held, top, target)
