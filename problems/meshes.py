"""The meshes that the problems start from, and the files of meshes that they read and leave: all through trimesh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from numpy.typing import NDArray
from trimesh import Trimesh

import optpy as op
from optpy.cli.output_file import whole_file

from . import pictures

FORMATS = (".obj", ".off", ".ply", ".stl")
"""Of the mesh files that are written."""


def read_mesh(path: Path) -> Trimesh:
    """Reads triangles (or polygons, cut into triangles) from a file of any format that trimesh knows.

    Corners at the same place become one vertex, whatever their texture or normal; otherwise the order of the file
    is kept. Vertices without a face are left out.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it has no faces or places that are no numbers, or cannot be read.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        mesh: Any = trimesh.load_mesh(path, process=False)
    except Exception as error:  # whatever its reader meets in a file that is broken, or no mesh
        raise op.DataError(f"{path} cannot be read as a mesh: {type(error).__name__}: {error}") from error
    if not isinstance(mesh, Trimesh) or not len(mesh.faces):
        raise op.DataError(f"{path} is no mesh: it has no faces")
    wrong = np.flatnonzero(~np.isfinite(np.asarray(mesh.vertices)).all(axis=1))
    if wrong.size:
        place = ", ".join(f"{x:g}" for x in mesh.vertices[wrong[0]])
        raise op.DataError(f"{path} is no mesh: its vertex {wrong[0]}, counted from 0, is at ({place})")
    mesh.merge_vertices(merge_tex=True, merge_norm=True)
    return Trimesh(mesh.vertices, mesh.faces, process=False)


def data_mesh(name: str) -> Trimesh | None:
    """The mesh `name` of the data folder; None where it is missing."""
    path = pictures.data_file(f"meshes/{name}")
    return None if path is None else read_mesh(path)


def pebble(subdivisions: int = 4) -> Trimesh:
    """A long ball with bumps that stands upright, about 1.5 high; 4 subdivisions give 2,562 vertices."""
    ball = trimesh.creation.icosphere(subdivisions=subdivisions, radius=0.4)
    places = np.asarray(ball.vertices)
    bumps = 1 + 0.12 * np.cos(10 * places).prod(axis=1, keepdims=True)
    return moved(ball, places * bumps * [1.0, 1.8, 1.0])


def moved(mesh: Trimesh, vertices: NDArray[Any]) -> Trimesh:
    """The same faces over other vertices, (V, 3)."""
    return Trimesh(np.asarray(vertices, np.float64), mesh.faces, process=False)


def directed_edges(mesh: Trimesh) -> NDArray[np.int64]:
    """Every edge from each of its ends: (2 times the edges, 2)."""
    edges = np.asarray(mesh.edges_unique, np.int64)
    return np.concatenate([edges, edges[:, ::-1]])


def write_mesh(path: Path, mesh: Trimesh) -> None:
    """Writes a mesh; the ending of the name, one of `FORMATS`, chooses the format."""
    content: Any = mesh.export(file_type=path.suffix.lower().removeprefix("."))
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
