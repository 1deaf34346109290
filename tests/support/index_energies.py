"""Energies whose unknowns are read at indices beyond affine: a slot beside loop variables, quotients, remainders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import optpy as op
from tests.support.random_graphs import random_edges

V, T, E, H, W, N, K = op.dims("V T E H W N K")
Hc, Wc = op.dims("Hc Wc")
v, t, e, n, k = op.indices(V, T, E, N, K)
i, j = op.indices(H, W)
a, b = op.Graph("edges", E, (V, V))[e]
pixel, vertex = op.Graph("match", N, ((H, W), V))[n]

Sizes = dict[str, int]


def _sizes(**cycle: list[int]) -> list[Sizes]:
    return [dict(zip(cycle, values, strict=True)) for values in zip(*cycle.values(), strict=True)]


MESHES = _sizes(V=[1, 5, 40], T=[1, 4, 7], E=[1, 7, 90])
MATCHES = _sizes(V=[1, 4], H=[1, 3], W=[1, 5], N=[1, 9], T=[2, 3], E=[1, 3])
IMAGES = _sizes(H=[1, 5, 6, 23], W=[1, 6, 9, 40], Hc=[1, 3, 2, 12], Wc=[1, 3, 5, 19], K=[1, 2, 4, 3])


def frames() -> op.Energy:
    """A mesh in each frame, all of one connectivity, and neighbouring frames."""
    X, A = op.Unknown("X", (V, T), 2), op.Array("A", (V, T), 2)
    return op.Energy(
        fit=X[v, t] - A[v, t],
        smooth=op.sin(X[a, t] - X[b, t]),
        still=X[v, t] - X[v, t + 1],
        across=X[a, t + 1][0] * X[b, t][1] - X[a, 0][1],
        fixed={X: (op.value(v) == 2) & (op.value(t) != 1)},
    )


def turning_frames() -> op.Energy:
    """Rotations along the edges of a mesh, in each frame."""
    R, A = op.Unknown("R", (T, V), op.SO3), op.Array("A", (V,), 3)
    return op.Energy(r=R[t, a] @ (A[a] - A[b]) - A[b], s=(R[t + 1, b].inverse() @ R[t, a]).log())


def labels() -> op.Energy:
    """A slot on the last axis; one on a grid, around a loop variable or turned; one beside quotients and remainders."""
    Y, Z, X = op.Unknown("Y", (T, V)), op.Unknown("Z", (H, T, W)), op.Unknown("X", (V, T), 2)
    U = op.Unknown("U", (W, H))
    return op.Energy(
        match=Y[t, vertex] * Z[pixel[0], t, pixel[1]],
        near=Z[pixel[0] + 1, 2 * t, pixel[1] - 1] - op.cos(Y[0, vertex]),
        turned=U[pixel[1], pixel[0]] * U[pixel[1], pixel[0] + 1] - Y[0, vertex],
        halves=op.sin(X[a, t // 2] * X[b, t % 2]),
    )


def func_at_ends() -> op.Energy:
    """An intermediate that is read at the ends of edges in every frame, and one over the edges of every frame."""
    X = op.Unknown("X", (V, T), 2)
    length, stretch = op.Func("length", (V, T)), op.Func("stretch", (E, T))
    length[v, t] = op.sqrt(1 + op.dot(X[v, t], X[v, t + 1]) ** 2)
    stretch[e, t] = op.exp(-op.dot(X[a, t], X[b, t])) + length[a, t]
    return op.Energy(r=stretch[e, t] - length[b, t], s=stretch[e, t] * stretch[e, t + 1] - stretch[e + 1, t])


def summed() -> op.Energy:
    """Sums over edges and frames, and over the pixels of tiles."""
    X, P, A = op.Unknown("X", (V, T), 2), op.Unknown("P", (Hc, Wc)), op.Array("A", (Hc, K))
    k, l = op.indices(Hc, K)  # noqa: E741
    return op.Energy(
        total=op.sum(X[a, t][0] * X[b, t][1], over=e) - 0.5,
        tile=op.sum(P[k, l // 2] * A[k, l], over=l) ** 2 - 1,
        fit=0.5 * X[v, t] - 1,
    )


def enlarged() -> op.Energy:
    """An image of twice the size by interpolation of a coarse one, and the coarse one itself."""
    P, A = op.Unknown("P", (Hc, Wc)), op.Array("A", (H, W))
    up = (P[i // 2, j // 2] + P[(i + 1) // 2, j // 2] + P[i // 2, (j + 1) // 2] + P[(i + 1) // 2, (j + 1) // 2]) / 4
    k, l = op.indices(Hc, Wc)  # noqa: E741
    return op.Energy(fit=op.sin(up) - A[i, j], smooth=P[k, l] - P[k, l + 1], fixed={P: op.value(k + l) == 3})


def two_levels() -> op.Energy:
    """A fine image, a coarse one, and one of 3 x 4 pixels each, all added up."""
    X, P, Q = op.Unknown("X", (H, W)), op.Unknown("P", (Hc, Wc), 2), op.Unknown("Q", (K, Wc))
    A, w = op.Array("A", (H, W)), op.params("w")
    total = X[i, j] + P[i // 2, j // 2][0] + op.exp(0.1 * Q[i // 3, j // 4] * P[i // 2, (j + 1) // 2][1])
    return op.Energy(fit=total - A[i, j], smooth=w * (X[i, j] - X[i + 1, j]))


def periodic() -> op.Energy:
    """Patterns that repeat, pixels of cells, and quotients of sums."""
    P, Y = op.Unknown("P", (Hc, Wc)), op.Unknown("Y", (K,), 2)
    A = op.Array("A", (H, W))
    return op.Energy(
        pattern=Y[i % 3] * A[i, j] - 1,
        cells=P[i // 2, i % 2] * P[(2 * i + 1) % 5, j // 2] - A[i, j],
        diagonal=op.where(op.value(i % 2) == 0, Y[(i + j) // 2][0] * P[(-j) // 3 + 2, 1 + (i - j) // 4], 0),
        asked=op.where(op.in_bounds(i // 3, j // 2, of=P), P[i // 3, j // 2] ** 2, op.value(j // 2) * Y[0][1]),
    )


def func_of_quotients() -> op.Energy:
    """Intermediates that are read at quotients, one within the other."""
    P, X, A = op.Unknown("P", (Hc, Wc)), op.Unknown("X", (H, W)), op.Array("A", (H, W))
    k, l = op.indices(Hc, Wc)  # noqa: E741
    coarse, fine = op.Func("coarse", (Hc, Wc)), op.Func("fine", (H, W))
    coarse[k, l] = op.sin(P[k, l]) * P[k, l + 1] + X[2 * k, 2 * l + 1]
    fine[i, j] = coarse[i // 2, j // 2] + coarse[i // 2, (j + 1) // 2]
    return op.Energy(r=fine[i, j] * fine[i, j + 1] - A[i, j], s=fine[i // 2, j // 3] * X[i, j])


@dataclass(frozen=True)
class IndexEnergy:
    """How an energy is made, and sizes at which it is looked at."""

    make: Callable[[], op.Energy]
    sizes: list[Sizes]


CASES = {
    "frames": IndexEnergy(frames, [*MESHES, dict(V=3, T=2, E=0)]),
    "turning frames": IndexEnergy(turning_frames, MESHES[:2]),
    "labels": IndexEnergy(labels, MATCHES),
    "Funcs at ends": IndexEnergy(func_at_ends, MESHES[:2]),
    "sums": IndexEnergy(summed, [m | s for m, s in zip(MESHES, IMAGES, strict=False)][:2]),
    "enlarged": IndexEnergy(enlarged, IMAGES),
    "two levels": IndexEnergy(two_levels, IMAGES),
    "periodic": IndexEnergy(periodic, IMAGES),
    "Funcs of quotients": IndexEnergy(func_of_quotients, IMAGES[1:]),
}
WITH_GRAPHS = ("frames", "turning frames", "labels", "Funcs at ends")
"""Of the cases, those whose edges may gather and scatter."""


def data_of(energy: op.Energy, sizes: Sizes, seed: int = 0) -> dict[str, Any]:
    """Random data; elements of manifolds are made by themselves."""
    rng = np.random.default_rng(seed)
    values: dict[str, Any] = {}
    for f in energy.fields:
        shape = [sizes[d.name] for d in f.dims] + [f.channels] * f.channel_axis
        values[f.name] = rng.uniform(0.2, 1.5, shape) * rng.choice([-1, 1], shape)
        if f.manifold is not None:
            values[f.name] /= np.linalg.norm(values[f.name], axis=-1, keepdims=True)
    for g in energy.graphs:
        values[g.name] = random_edges(rng, g, sizes)
    return values | {p.name: float(rng.uniform(0.5, 1.5)) for p in energy.params}
