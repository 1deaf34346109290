"""A mesh as a picture: its triangles from back to front, each in one colour that its slope gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from trimesh import Trimesh

from .pictures import Picture

Colours = NDArray[np.float64]
"""(F, 3): red, green and blue of each face, 0 to 1."""

Window = tuple[float, float, float, float]
"""Left, right, low and high of what is seen, in the camera's frame."""

PLAIN = (0.80, 0.78, 0.74)
CAMERA = Rotation.from_euler("yx", [-30.0, 20.0], degrees=True)
"""Looks along -z at y upwards, a little from the right and from above."""
LIGHT = np.array([-0.3, 0.5, 0.8]) / np.linalg.norm([-0.3, 0.5, 0.8])
"""Towards the light, as the camera sees it."""
AMBIENT = 0.4


def draw(meshes: Sequence[Trimesh], colours: Sequence[Colours] | None = None, size: int = 480) -> list[Picture]:
    """Each mesh as a picture of `size` x `size`, all in the same parallel projection and to the same scale."""
    window = window_of([np.asarray(mesh.vertices) for mesh in meshes])
    chosen = [np.tile(PLAIN, (len(mesh.faces), 1)) for mesh in meshes] if colours is None else colours
    return [draw_one(mesh, colour, window, size) for mesh, colour in zip(meshes, chosen, strict=True)]


def window_of(places: Sequence[NDArray[np.float64]]) -> Window:
    """The square in which all of some meshes are seen, by their vertices, (V, 3) each."""
    seen = [CAMERA.apply(vertices)[:, :2] for vertices in places]
    low, high = np.min([s.min(axis=0) for s in seen], axis=0), np.max([s.max(axis=0) for s in seen], axis=0)
    half = max(0.53 * float((high - low).max()), 1e-9)
    middle = (low + high) / 2
    return (middle[0] - half, middle[0] + half, middle[1] - half, middle[1] + half)


def draw_one(mesh: Trimesh, colours: Colours, window: Window, size: int) -> Picture:
    """One mesh as a picture of `size` x `size`."""
    return _draw(CAMERA.apply(np.asarray(mesh.vertices))[np.asarray(mesh.faces)], colours, window, size)


def _draw(triangles: NDArray[np.float64], colours: Colours, window: Window, size: int) -> Picture:
    """One picture of triangles (F, 3, 3) in the camera's frame."""
    order = np.argsort(triangles[:, :, 2].mean(axis=1), kind="stable")
    normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)
    normals *= np.where(normals[:, 2:] < 0, -1.0, 1.0)  # both sides of a face are lit
    light = AMBIENT + (1 - AMBIENT) * np.clip(normals @ LIGHT, 0.0, 1.0)
    shaded = (colours * light[:, None])[order]
    figure = Figure(figsize=(1, 1), dpi=size)
    canvas: Any = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    # A thin line in the colour of its face hides the seams between neighbours.
    flat = list(triangles[order, :, :2])
    axes.add_collection(PolyCollection(flat, facecolors=shaded, edgecolors=shaded, linewidths=0.05))
    axes.set_xlim(window[0], window[1])
    axes.set_ylim(window[2], window[3])
    canvas.draw()
    return np.asarray(canvas.buffer_rgba(), dtype=np.float64)[..., :3] / 255.0
