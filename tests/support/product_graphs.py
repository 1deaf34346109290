"""Energies over graphs whose edges are counted by several dims, with data."""

from __future__ import annotations

from typing import Any

import numpy as np

import optpy as op
from tests.support.func_energies import Made

V, K, H, W, F = op.dims("V K H W F")


def nearest() -> Made:
    """The K nearest of each vertex, with weights, from both ends; a slot beside a loop variable."""
    v, k, f = op.indices(V, K, F)
    X, Y, share = op.Unknown("X", (V,), 2), op.Unknown("Y", (F, V)), op.Array("share", (V, K))
    (n,) = op.Graph("near", (V, K), (V,))[v, k]
    energy = op.Energy(
        pull=share[v, k] * (X[v] - op.sin(X[n])),
        beside=op.value(k) * Y[f, n] * X[v][0] - share[v, k],
        hold=0.3 * (Y[f, v] - 1),
        fixed={X: op.value(v) == 1},
    )

    def data(rng: np.random.Generator, count: int) -> dict[str, Any]:
        near = rng.integers(0, count, (count, 3, 1))
        arrays = dict(X=rng.normal(size=(count, 2)), Y=rng.normal(size=(2, count)), share=rng.normal(size=(count, 3)))
        return arrays | dict(near=near)

    return energy, data


def labels() -> Made:
    """Each pixel points at a colour and at another pixel; an unknown for each edge; Funcs of both, read beside."""
    i, j = op.indices(H, W)
    Colour, Image, Gain = op.Unknown("Colour", (V,), 2), op.Unknown("Image", (H, W)), op.Array("Gain", (H, W))
    label, other = op.Graph("label", (H, W), (V, (H, W)))[i, j]
    seen = op.Func("seen", (H, W), 2)
    seen[i, j] = Colour[label] * op.exp(0.1 * Image[i, j])
    energy = op.Energy(
        fit=seen[i, j] - Gain[i, j] * seen[i, j + 1],
        same=Image[i, j] * Image[i + 1, j] - 0.5 * Image[other],
        far=Colour[label][1] * Gain[other],
        small=0.1 * op.vector(Image[i, j], Image[i, j]),
    )

    def data(rng: np.random.Generator, n: int) -> dict[str, Any]:
        shape = n, n + 1
        pointed = [rng.integers(0, size, shape) for size in (3, *shape)]
        arrays = dict(Image=rng.normal(size=shape), Gain=rng.normal(size=shape), Colour=rng.normal(size=(3, 2)))
        return arrays | dict(label=np.stack(pointed, axis=-1))

    return energy, data


def cells() -> Made:
    """Edges of a graph over three dims, beside those of a plain graph into its grid."""
    f, i, j, k = op.indices(F, H, W, K)
    X, D = op.Unknown("X", (V,)), op.Unknown("D", (F, H, W))
    a, b = op.Graph("cells", (F, H, W), (V, V))[f, i, j]
    (at,) = op.Graph("at", K, ((F, H, W),))[k]
    energy = op.Energy(cell=X[a] * X[b] - D[f, i, j] ** 2, held=D[at] - op.value(k), pull=X[a] - 1)

    def data(rng: np.random.Generator, n: int) -> dict[str, Any]:
        shape = 2, n, 3
        pointed = np.stack([rng.integers(0, size, 4) for size in shape], axis=-1)
        return dict(X=rng.normal(size=4), D=rng.normal(size=shape), cells=rng.integers(0, 4, (*shape, 2)), at=pointed)

    return energy, data


ENERGIES = {make.__name__: make for make in (nearest, labels, cells)}
