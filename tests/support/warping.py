"""A small as-rigid-as-possible warp, written as in the documentation, with data of any size."""

from __future__ import annotations

from typing import Any

import numpy as np

import optpy as op


def arap_energy() -> op.Energy:
    H, W = op.dims("H W")
    i, j = op.indices(H, W)
    Offset = op.Unknown("Offset", (H, W), 2)
    Angle = op.Unknown("Angle", (H, W))
    UrShape = op.Array("UrShape", (H, W), 2)
    Constraints = op.Array("Constraints", (H, W), 2)
    Mask = op.Array("Mask", (H, W), dtype=np.uint8)
    w_fit, w_reg = op.params("w_fit w_reg")
    active = Mask[i, j] == 0
    pinned = (Constraints[i, j] >= 0).all()

    def arap(di: int, dj: int) -> op.Expression:
        n = (i + di, j + dj)
        r = (Offset[i, j] - Offset[n]) - op.rotate2d(Angle[i, j], UrShape[i, j] - UrShape[n])
        return op.where(op.in_bounds(*n) & active & (Mask[n] == 0), w_reg * r, 0)

    return op.Energy(
        fit=op.where(pinned & active, w_fit * (Offset[i, j] - Constraints[i, j]), 0),
        reg=[arap(0, 1), arap(0, -1), arap(1, 0), arap(-1, 0)],
        fixed={Offset: ~active, Angle: ~active},
    )


def arap_data(height: int, width: int, seed: int = 0) -> dict[str, Any]:
    """Handles in the corners, one of them moved; about a fifth of the points is masked out."""
    rng = np.random.default_rng(seed)
    column, row = np.meshgrid(np.arange(width), np.arange(height))
    shape = np.stack([column, row], axis=-1).astype(float)
    constraints = np.full((height, width, 2), -1.0)
    mask = (rng.random((height, width)) < 0.2).astype(np.uint8)
    for y, x in [(0, 0), (0, width - 1), (height - 1, 0), (height - 1, width - 1)]:
        constraints[y, x] = shape[y, x]
        mask[y, x] = 0
    constraints[0, 0] += (width / 4, height / 3)
    return dict(
        Offset=shape, Angle=np.zeros((height, width)), UrShape=shape, Constraints=constraints, Mask=mask,
        w_fit=3.0, w_reg=0.5,
    )  # fmt: skip
