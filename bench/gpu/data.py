"""The data of the cases at any size, made where it is used: on the device, in the time that writing it takes.

The same energies with every pixel taking part, as in the cases themselves; but photographs are waves, and handles are
squares. A mesh is the torus of bench/torus.py: rings of vertices with six neighbours each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.case import Case, Data

_HANDLES = (
    (0.44, 0.20, -0.07, 0.04),
    (0.83, 0.46, -0.10, -0.03),
    (0.76, 0.88, 0.01, -0.08),
    (0.32, 0.74, -0.03, -0.05),
)
"""x, y of a square's centre, and how far it moves; the picture's side is 1. The squares' side is 0.12."""


def made(case: Case, size: int, xp: Any) -> Data:
    """Data of `size` x `size` pixels or vertices, of the module `xp` where the case has a maker here, else NumPy's."""
    maker = MAKERS.get(case.name)
    return case.data(size) if maker is None else maker(size, xp)


def image_warping(size: int, xp: Any) -> Data:
    """The border stays, and four squares are moved."""
    places = xp.empty((size, size, 2), np.float32)
    line = xp.arange(size, dtype=np.float32)
    places[..., 0], places[..., 1] = line[None, :], line[:, None]
    constraints = xp.full_like(places, -1.0)
    for border in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        constraints[border] = places[border]
    for x, y, dx, dy in _HANDLES:
        rows, columns = (slice(int((c - 0.06) * size), int((c + 0.06) * size)) for c in (y, x))
        constraints[rows, columns] = places[rows, columns] + size * xp.asarray([dx, dy], dtype=np.float32)
    mask, angle = xp.zeros((size, size), np.uint8), xp.zeros((size, size), np.float32)
    return dict(
        Offset=places, Angle=angle, UrShape=places, Constraints=constraints, Mask=mask, w_fit=10.0, w_reg=0.1
    )  # fmt: skip


def poisson(size: int, xp: Any) -> Data:
    """The differences of one picture, with the border of its mirror image."""
    source = xp.stack([_waves(size, 3.0 + c, xp) for c in range(3)], axis=-1)
    mask = xp.full((size, size), 255, np.uint8)
    mask[1:-1, 1:-1] = 0
    return dict(X=xp.ascontiguousarray(source[:, ::-1]), Source=source, Mask=mask)


def laplacian(size: int, xp: Any) -> Data:
    """Waves too short to stay, over long ones."""
    noisy = _waves(size, 2.0, xp) + 0.2 * _waves(size, 0.37 * size, xp)
    return dict(X=noisy, A=noisy, w_fit=1.0, w_reg=1.5)


def mesh_deformation(size: int, xp: Any) -> Data:
    """Three angles at each vertex."""
    return dict(
        _held_and_lifted(size, xp, "Offset"), Angle=xp.zeros((size * size, 3), np.float32), w_fit=10.0, w_reg=1.0
    )


def embedded_deformation(size: int, xp: Any) -> Data:
    """A matrix at each vertex."""
    common = _held_and_lifted(size, xp, "Translation")
    common["Translation"] = xp.zeros_like(common["UrShape"])
    matrix = xp.tile(xp.eye(3, dtype=np.float32).reshape(1, 9), (size * size, 1))
    return dict(common, Matrix=matrix, w_rot=1.0, w_reg=math.sqrt(10.0), w_con=10.0)


def _held_and_lifted(size: int, xp: Any, place: str) -> Data:
    """A torus of `size` x `size` vertices: two rings of vertices are held, and two on the other side are lifted."""
    vertices, edges = torus(size, xp)
    target, handle = vertices.copy(), xp.zeros(size * size, bool)
    lifted = slice(size // 2 * size, (size // 2 + 2) * size)
    handle[: 2 * size] = handle[lifted] = True
    target[lifted, 2] += 0.5
    return {place: vertices, "UrShape": vertices, "Constraints": target, "Handle": handle, "edges": edges}


def torus(size: int, xp: Any) -> tuple[Any, Any]:
    """Vertices (V, 3), and edges (E, 2) from each vertex to its six neighbours, sorted by the vertex they begin at."""
    turn = 2 * math.pi / size * xp.arange(size, dtype=np.float64)
    around, across = turn[:, None], turn[None, :]
    radius = 1.0 + 0.4 * xp.cos(across)
    height = xp.broadcast_to(0.4 * xp.sin(across), (size, size))
    places = (radius * xp.cos(around), radius * xp.sin(around), height)
    vertices = xp.stack(places, axis=-1).reshape(-1, 3).astype(np.float32)
    row, column = xp.divmod(xp.arange(size * size, dtype=np.int32), np.int32(size))
    ends = [(row + i) % size * size + (column + j) % size for i, j in NEIGHBOURS]
    to = xp.stack(ends, axis=-1).reshape(-1).astype(np.int32)
    begin = xp.repeat(xp.arange(size * size, dtype=np.int32), len(NEIGHBOURS))
    return vertices, xp.stack([begin, to], axis=-1)


NEIGHBOURS = ((-1, -1), (-1, 0), (0, -1), (0, 1), (1, 0), (1, 1))
"""Of a vertex of the torus: steps along and across."""

MAKERS: dict[str, Callable[[int, Any], Data]] = {
    "image_warping": image_warping,
    "poisson": poisson,
    "laplacian": laplacian,
    "mesh_deformation": mesh_deformation,
    "embedded_deformation": embedded_deformation,
}


def _waves(size: int, number: float, xp: Any) -> Any:
    """A grey picture between 0 and 1 with so many waves along its side."""
    angle = 2 * math.pi * number / size * xp.arange(size, dtype=np.float32)
    return (0.5 + 0.25 * (xp.sin(angle)[:, None] + xp.cos(1.3 * angle)[None, :])).astype(np.float32)
