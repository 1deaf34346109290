"""Smoothing of a mesh with cotangent weights: the energy of problems/cotangent_smoothing.py."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from trimesh import Trimesh

from bench.case import Case, CeresProgram, Data, Famous
from bench.traffic import Operand, Traffic
from problems import cotangent_smoothing as problem
from problems import meshes

Indices = NDArray[np.int64]


def noisy_torus(size: int) -> Data:
    """A torus of `size` x `size` vertices, with noise."""
    return problem.with_noise(acute_torus(size), sigma=0.1).data


def acute_torus(size: int) -> Trimesh:
    """`size` rings of `size` vertices, each turned by half a step against the last one.

    Of right-angled triangles, the weights at the diagonals would lie at the bend where small ones are cut off.
    """
    ring, step = np.divmod(np.arange(size * size), size)
    around, across = 2 * np.pi * ring / size, 2 * np.pi * (step + ring / 2) / size
    radius = 1 + 0.4 * np.cos(across)
    vertices = np.stack([radius * np.cos(around), radius * np.sin(around), 0.4 * np.sin(across)], axis=1)

    def number(ring: Indices, step: Indices) -> Indices:
        return (
            ring % size * size + (step + ring // size * (size // 2)) % size
        )  # the last ring meets the first one turned

    corners = [number(ring + i, step + j) for i, j in ((0, 0), (1, 0), (0, 1), (1, 1))]
    faces = [np.stack([corners[n] for n in triangle], axis=1) for triangle in ((0, 1, 2), (1, 3, 2))]
    return Trimesh(vertices, np.concatenate(faces), process=False)


def spot() -> Data | None:
    """11,533 vertices, 34,593 edges, with noise; None without its file."""
    mesh = meshes.data_mesh("spot.obj")
    return None if mesh is None else problem.with_noise(mesh).data


def vertices_and_edges(data: Data) -> tuple[int, int]:
    """The mesh's vertices, and its edges."""
    return len(data["X"]), len(data["wedges"]) + len(data["border"])


CASE = Case(
    name="cotangent_smoothing",
    energy=problem.energy,
    data=noisy_torus,
    traffic=Traffic(unknown_channels=3, operands=(Operand("X", 3),), damped=True, edge_slots=4),
    method="lm",
    ceres=CeresProgram("ceres_cotangent_smoothing.cc", ("w_fit", "w_reg", "X", "A", "wedges", "border")),
    famous=Famous("spot", spot),
    elements=vertices_and_edges,
    unit="edge",
    largest=256,  # 1024 takes minutes
)
