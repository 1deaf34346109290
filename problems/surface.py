"""The points of a mesh that are nearest to given points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import trimesh
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from trimesh import Trimesh

_CLOSEST_POINT: Any = trimesh.triangles.closest_point  # has no types


@dataclass(frozen=True, slots=True)
class Nearest:
    """For each of N points the nearest one of a surface."""

    points: NDArray[np.float64]
    """(N, 3)."""
    normals: NDArray[np.float64]
    """(N, 3), of length 1 and outwards; 0 on a triangle without an area."""
    distances: NDArray[np.float64]
    """(N,)."""


@final
class Surface:
    """A mesh that is asked for its nearest points.

    Only the triangles at the nearest vertex are looked at: where a triangle is much longer than its neighbours, the
    point found may be a little farther away than the nearest.
    """

    def __init__(self, mesh: Trimesh) -> None:
        self.mesh = mesh
        self._tree = cKDTree(np.asarray(mesh.vertices))
        self._triangles = np.asarray(mesh.triangles, np.float64)
        self._normals = face_normals(mesh, np.asarray(mesh.vertices))
        self._around = np.asarray(mesh.vertex_faces)

    def nearest(self, points: NDArray[Any]) -> Nearest:
        """The nearest points to `points`, (N, 3)."""
        wanted = np.asarray(points, np.float64)
        around = self._around[self._tree.query(wanted)[1]]  # (N, most triangles at a vertex), filled up with -1
        faces = np.where(around < 0, around[:, :1], around)
        ends = np.repeat(wanted[:, None], faces.shape[1], axis=1)
        found = _CLOSEST_POINT(self._triangles[faces.ravel()], ends.reshape(-1, 3)).reshape(ends.shape)
        away = np.linalg.norm(found - ends, axis=2)
        best = away.argmin(axis=1)
        row = np.arange(len(wanted))
        return Nearest(found[row, best], self._normals[faces[row, best]], away[row, best])


def face_normals(mesh: Trimesh, vertices: NDArray[Any]) -> NDArray[np.float64]:
    """(F, 3): the unit normals of the mesh's faces over other vertices, (V, 3); 0 for triangles without an area."""
    return _normalised(_areas(mesh, vertices))


def vertex_normals(mesh: Trimesh, vertices: NDArray[Any]) -> NDArray[np.float64]:
    """(V, 3): the mean of the normals around each vertex, weighted by area, of length 1 or 0."""
    crossed = _areas(mesh, vertices)
    summed = np.zeros((len(vertices), 3))
    for corner in range(3):
        np.add.at(summed, np.asarray(mesh.faces)[:, corner], crossed)
    return _normalised(summed)


def _areas(mesh: Trimesh, vertices: NDArray[Any]) -> NDArray[np.float64]:
    """(F, 3): the normals of the faces, twice as long as their areas."""
    corners = np.asarray(vertices, np.float64)[np.asarray(mesh.faces)]
    crossed: NDArray[np.float64] = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    return crossed


def _normalised(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    unit: NDArray[np.float64] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)
    return unit
