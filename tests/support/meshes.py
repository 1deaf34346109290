"""As-rigid-as-possible deformation of a mesh: its energy, and a mesh made on the spot."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import optpy as op


def mesh_arap_energy() -> op.Energy:
    """Sorkine & Alexa, "As-Rigid-As-Possible Surface Modeling", 2007, with Euler angles at every vertex."""
    V, E = op.dims("V E")
    v, e = op.indices(V, E)
    X, Angle = op.Unknown("X", (V,), 3), op.Unknown("Angle", (V,), 3)
    Rest, Target = op.Array("Rest", (V,), 3), op.Array("Target", (V,), 3)
    Handle = op.Array("Handle", (V,), dtype=bool)
    w_fit, w_reg = op.params("w_fit w_reg")
    a, b = op.Graph("edges", E, (V, V))[e]
    return op.Energy(
        fit=op.where(Handle[v], w_fit * (X[v] - Target[v]), 0),
        reg=w_reg * ((X[a] - X[b]) - op.rotate3d(Angle[a], Rest[a] - Rest[b])),
    )


def grid_mesh(rows: int, columns: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """A flat sheet of rows x columns vertices, and its edges in both directions."""
    y, x = np.mgrid[:rows, :columns]
    vertices = np.stack([x.ravel(), y.ravel(), np.zeros(rows * columns)], axis=1).astype(float)
    number = np.arange(rows * columns).reshape(rows, columns)
    pairs = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:]), (number[:-1, :-1], number[1:, 1:])]
    one_way = np.concatenate([np.stack([p.ravel(), q.ravel()], axis=1) for p, q in pairs])
    return vertices, np.concatenate([one_way, one_way[:, ::-1]])


def mesh_arap_data(rows: int = 8, columns: int = 10, turn: float = 0.9) -> dict[str, Any]:
    """A sheet whose left side is held and whose right side is turned out of its plane."""
    rest, edges = grid_mesh(rows, columns)
    handle = (rest[:, 0] == 0) | (rest[:, 0] == columns - 1)
    target = rest.copy()
    right = rest[:, 0] == columns - 1
    c, s = np.cos(turn), np.sin(turn)
    target[right] = np.stack([c * rest[right, 0], rest[right, 1], s * rest[right, 0]], axis=1)
    return dict(
        X=rest.copy(), Angle=np.zeros_like(rest), Rest=rest, Target=target, Handle=handle, edges=edges,
        w_fit=10.0, w_reg=1.0,
    )  # fmt: skip
