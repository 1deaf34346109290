"""The mesh of the cases on meshes."""

from __future__ import annotations

import trimesh
from trimesh import Trimesh

from bench.case import Data


def torus(size: int) -> Trimesh:
    """`size` rings of `size` vertices: six neighbours at every vertex, and no border."""
    mesh: Trimesh = trimesh.creation.torus(major_radius=1.0, minor_radius=0.4, major_sections=size, minor_sections=size)
    return mesh


def vertices_and_edges(data: Data) -> tuple[int, int]:
    """The mesh's vertices, and its directed edges."""
    return len(data["UrShape"]), len(data["edges"])
