"""Energies that read intermediates, in every way, with data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import optpy as op

Made = tuple[op.Energy, Callable[[np.random.Generator, int], dict[str, Any]]]
"""An energy, and its data for a random generator and a size."""

H, W, V, E, T, K, M = op.dims("H W V E T K M")


def on_a_grid() -> Made:
    """Read by each other, at offsets, beyond the border; scalars and a vector; of data alone and of unknowns."""
    i, j = op.indices(H, W)
    X, A, w = op.Unknown("X", (H, W), 2), op.Array("A", (H, W)), op.params("w")
    B, C, D = op.Func("B", (H, W)), op.Func("C", (H, W)), op.Func("D", (H, W))
    B[i, j] = op.sin(X[i, j][0] * X[i, j - 1][1]) * w + A[i, j] * X[i - 1, j][0]
    C[i, j] = op.exp(0.1 * A[i, j]) + A[i + 1, j]
    D[i, j] = op.where(A[i, j] > 0, op.vector(B[i, j] + B[i + 1, j] ** 2, C[i, j] * X[i, j][1]), 0)
    energy = op.Energy(
        fit=X[i, j] - op.vector(A[i, j], C[i, j + 1]),
        b=[B[i, j] - B[i, j + 1] * C[i, j - 1], 0.1 * w * B[i, j]],
        d=op.cos(B[i, j]) * D[i, j] - D[i - 1, j],
        fixed={X: A[i, j] > 1.5},
    )
    return energy, lambda rng, n: dict(X=rng.normal(size=(n, n + 2, 2)), A=rng.normal(size=(n, n + 2)), w=0.7)


def conditions() -> Made:
    """Conditions as intermediates: of data, and of unknowns; a value that is infinite where it is not selected."""
    i, j = op.indices(H, W)
    X, A = op.Unknown("X", (H, W)), op.Array("A", (H, W))
    near, known, depth = op.Func("near", (H, W)), op.Func("known", (H, W)), op.Func("depth", (H, W))
    near[i, j] = abs(X[i, j] - X[i, j + 1]) < 0.7
    known[i, j] = (A[i, j] > -1) & op.in_bounds(i + 1, j)
    depth[i, j] = 1 / (A[i, j] + 1) + op.sqrt(A[i, j] + 1) * X[i, j]
    energy = op.Energy(
        fit=op.where(known[i, j], X[i, j] - depth[i, j], 0),
        smooth=op.where(near[i, j] & known[i, j + 1] & ~known[i + 1, j], depth[i, j] * X[i, j] - X[i, j + 1], X[i, j]),
    )

    def data(rng: np.random.Generator, n: int) -> dict[str, Any]:
        A_ = rng.normal(size=(n, n + 1))
        A_[0] = -1  # 1 / 0
        return dict(X=rng.normal(size=(n, n + 1)), A=A_)

    return energy, data


def on_a_mesh() -> Made:
    """Over vertices and over edges, read through slots; held in stop_gradient; robust."""
    v, e, t = op.indices(V, E, T)
    X, A = op.Unknown("X", (V,), 3), op.Array("A", (V,), 3)
    s = op.Unknown("s", ())
    edges, triangles = op.Graph("edges", E, (V, V)), op.Graph("triangles", T, (V, V, V))
    a, b = edges[e]
    p, q, r = triangles[t]
    length, shifted, area = op.Func("length", (E,)), op.Func("shifted", (V,)), op.Func("area", (T,))
    length[e] = op.norm(X[a] - X[b]) + 0.1
    shifted[v] = op.exp(0.2 * s[()]) * X[v] * X[v] + A[v]
    area[t] = op.norm(op.cross(X[q] - X[p], X[r] - X[p]))
    energy = op.Energy(
        fit=shifted[v] - A[v],
        stretch=op.robust(length[e] - op.norm(A[a] - A[b]), "huber", scale=0.3),
        bend=(shifted[a] - shifted[b]) / op.stop_gradient(length[e]),
        flat=op.sin(area[t]) * op.vector(shifted[p][0], shifted[q][1] * s[()], 1),
    )

    def data(rng: np.random.Generator, n: int) -> dict[str, Any]:
        vertices = n * n
        return dict(
            X=rng.normal(size=(vertices, 3)), A=rng.normal(size=(vertices, 3)), s=0.4,
            edges=distinct(rng, vertices, 3 * n, 2), triangles=distinct(rng, vertices, 2 * n, 3),
        )  # fmt: skip

    return energy, data


def distinct(rng: np.random.Generator, vertices: int, edges: int, slots: int) -> NDArray[np.int64]:
    """(edges, slots): random vertices, none twice in an edge."""
    return np.array([rng.choice(vertices, slots, replace=False) for _ in range(edges)])


def poses() -> Made:
    """Points moved by rotations: an intermediate of an unknown on a manifold, strided, and a single value."""
    i, k = op.indices(H, W)
    R, X, A = op.Unknown("R", (H,), op.SO3), op.Unknown("X", (W,), 3), op.Array("A", (H, W), 3)
    moved, mean = op.Func("moved", (H, W)), op.Func("mean", ())
    moved[i, k] = R[i] @ X[k]
    mean[()] = X[0] * X[0] + X[1]
    energy = op.Energy(seen=moved[i, k] - A[i, k], twice=moved[i, 2 * k] * moved[i, k], mid=X[k] * mean[()])

    def data(rng: np.random.Generator, n: int) -> dict[str, Any]:
        R_ = rng.normal(size=(n, 4))
        return dict(
            R=R_ / np.linalg.norm(R_, axis=1, keepdims=True), X=rng.normal(size=(n + 2, 3)),
            A=rng.normal(size=(n, n + 2, 3)),
        )  # fmt: skip

    return energy, data


ENERGIES = {make.__name__: make for make in (on_a_grid, conditions, on_a_mesh, poses)}


def deconvolved() -> Made:
    """A picture convolved with a window whose size the data gives; a sum of sums; a sum of data alone."""
    i, j = op.indices(H, W)
    k, m, n = op.indices(K, M, W)
    X, B, Window = op.Unknown("X", (H, W)), op.Array("B", (H, W)), op.Array("Window", (K, M))
    blurred = op.sum(X[i + k - 1, j + m - 1] * Window[k, m], over=(k, m))
    brightest = op.sum(B[i, n] ** 2, over=n)
    energy = op.Energy(
        fit=blurred - B[i, j],
        rows=0.1 * op.sum(op.sin(X[i, n]) * blurred_at(X, Window, i, n), over=n) - brightest,
        fixed={X: B[i, j] > 1.2},
    )

    def data(rng: np.random.Generator, n: int) -> dict[str, Any]:
        return dict(X=rng.normal(size=(n, n + 2)), B=rng.normal(size=(n, n + 2)), Window=rng.normal(size=(3, 2)))

    return energy, data


def blurred_at(X: op.Unknown, Window: op.Array, i: op.Index, n: op.Index) -> op.Expression:
    """A sum that another sum reads."""
    p = op.indices(K)
    return op.sum(X[i + p, n] * Window[p, 0], over=p)


def blendshapes() -> Made:
    """Vertices made of weighted shapes, moved by an unknown rotation: a vector summed over all shapes."""
    v, k = op.indices(V, K)
    w, R, Shapes, T = op.Unknown("w", (K,)), op.Unknown("R", ()), op.Array("Shapes", (V, K), 3), op.Array("T", (V,), 3)
    q = op.indices(K)
    face = op.Func("face", (V,))
    face[v] = op.sum(w[k] * Shapes[v, k], over=k)
    energy = op.Energy(
        fit=op.robust(op.rotate_axis_angle(op.vector(0, 0, R[()]), face[v]) - T[v], "huber", scale=2.0),
        small=0.1 * w[k],
        total=op.sum(w[k], over=k) - op.sum(op.value(q), over=q),
    )

    def data(rng: np.random.Generator, n: int) -> dict[str, Any]:
        return dict(w=rng.normal(size=n), R=0.3, Shapes=rng.normal(size=(3 * n, n, 3)), T=rng.normal(size=(3 * n, 3)))

    return energy, data


def over_edges() -> Made:
    """Sums over all edges, through slots, of a Func and of rotations; strided, and mirrored."""
    v, e, k = op.indices(V, E, K)
    X, R, A = op.Unknown("X", (V,), 3), op.Unknown("R", (V,), op.SO3), op.Array("A", (V,), 3)
    a, b = op.Graph("edges", E, (V, V))[e]
    length = op.Func("length", (E,))
    length[e] = op.dot(X[a] - X[b], A[a])
    w, Share = op.Unknown("w", (K,)), op.Array("Share", (V,))
    energy = op.Energy(
        total=op.sum(op.sin(length[e]) * X[b], over=e) - 1,
        turned=op.sum(R[a] @ A[b], over=e) - A[v] * X[v],
        strided=op.sum(w[2 * k] * w[K - 1 - k] + w[0], over=k) * Share[v] - X[v][0],
    )

    def data(rng: np.random.Generator, n: int) -> dict[str, Any]:
        vertices = n + 1
        R_ = rng.normal(size=(vertices, 4))
        return dict(
            X=rng.normal(size=(vertices, 3)), R=R_ / np.linalg.norm(R_, axis=1, keepdims=True),
            A=rng.normal(size=(vertices, 3)), edges=distinct(rng, vertices, 2 * n, 2), w=rng.normal(size=n + 2),
            Share=rng.normal(size=vertices),
        )  # fmt: skip

    return energy, data


EXACT_BLOCKS = ("blendshapes",)
"""Those of `SUMS` that read each element of an unknown once in a residual, at most."""

SUMS = {make.__name__: make for make in (deconvolved, blendshapes, over_edges)}
