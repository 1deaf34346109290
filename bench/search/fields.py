"""Families of many unknowns, on grids and on graphs: splines, pictures, springs, rounds of poses."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

import optpy as op
from bench.search.family import Array, Data, Drawn, Family, between, noise_level
from problems import pose_graph

N, H, W, V, E = op.dims("N H W V E")
n, i, j, v, e = op.indices(N, H, W, V, E)
w = op.params("w")


# -- splines ---------------------------------------------------------------------------------------------------------


def _spline() -> op.Energy:
    X, Y, K = op.Unknown("X", (N,)), op.Array("Y", (N,)), op.Array("K", (N,))
    return op.Energy(fit=K[n] * (X[n] - Y[n]), bend=w * (X[n - 1] - 2 * X[n] + X[n + 1]))


def _draw_spline(rng: Generator, u: float) -> Drawn:
    """Weights up to 1e6; some places have no data."""
    size = int(rng.integers(6, 80))
    y = np.sin(np.linspace(0, 2 * np.pi, size)) + 0.1 * rng.normal(size=size)
    known = np.where(rng.random(size) < 0.8, 1.0, 0.0)
    known[[0, -1]] = 1
    data = {"X": np.zeros(size), "Y": y, "K": known, "w": between(rng, 1, 1e6)}
    return Drawn(data, {"X": y})


def _fitted_spline() -> op.Energy:
    X, Y, B = op.Unknown("X", (V,)), op.Array("Y", (E,)), op.Array("B", (E,), 4)
    knots = op.Graph("knots", E, (V, V, V, V))[e]
    value = sum(B[e][k] * X[knots[k]] for k in range(4))
    return op.Energy(fit=value - Y[e], bend=w * (X[v - 1] - 2 * X[v] + X[v + 1]))


def _draw_fitted_spline(rng: Generator, u: float) -> Drawn:
    """A cubic B-spline through scattered points."""
    knots, points = int(rng.integers(6, 40)), int(rng.integers(40, 120))
    t = rng.uniform(0, knots - 3, points)
    first = np.minimum(np.floor(t).astype(int), knots - 4)
    s = t - first
    B = np.stack([(1 - s) ** 3, 3 * s**3 - 6 * s**2 + 4, -3 * s**3 + 3 * s**2 + 3 * s + 1, s**3], axis=1) / 6
    y = np.sin(t) + noise_level(rng) * rng.normal(size=points)
    data = {"X": np.zeros(knots), "Y": y, "B": B, "knots": first[:, None] + np.arange(4)}
    return Drawn({**data, "w": between(rng, 1e-3, 1e6)}, {"X": np.zeros(knots)})


# -- pictures --------------------------------------------------------------------------------------------------------

X2, A2 = op.Unknown("X", (H, W)), op.Array("A", (H, W))
SIDES = (X2[i, j] - X2[i + 1, j], X2[i, j] - X2[i, j + 1])


def _smooth() -> op.Energy:
    return op.Energy(fit=X2[i, j] - A2[i, j], reg=[w * side for side in SIDES])


def _picture(rng: Generator) -> Array:
    height, width = rng.integers(3, 13, 2)
    return np.asarray(rng.normal(size=(height, width)))


def _draw_smooth(rng: Generator, u: float) -> Drawn:
    A = _picture(rng)
    return Drawn({"X": rng.normal(size=A.shape), "A": A, "w": between(rng, 1e-2, 1e3)}, {"X": A})


def _poisson() -> op.Energy:
    mask = op.Array("Mask", (H, W), dtype=bool)
    down, right = A2[i, j] - A2[i + 1, j], A2[i, j] - A2[i, j + 1]
    return op.Energy(paste=[SIDES[0] - down, SIDES[1] - right], fixed={X2: mask[i, j]})


def _draw_poisson(rng: Generator, u: float) -> Drawn:
    """The border is held, and in half of the problems does not fit the gradients."""
    A = between(rng, 1e-2, 1e2) * _picture(rng)
    mask = np.ones(A.shape, dtype=bool)
    mask[1:-1, 1:-1] = rng.random(np.array(A.shape) - 2) < 0.1
    border = A + (np.std(A) * rng.normal(size=A.shape) if rng.random() < 0.5 else 0)
    start = np.where(mask, border, 0)
    return Drawn({"X": start, "A": A, "Mask": mask}, {"X": np.where(mask, border, A)})


def _blur() -> op.Energy:
    """A stencil on the inside of the grid; what stands around it is zero."""

    def along(center: Any, before: Any, after: Any) -> Any:
        return (before + w * center + after) / (w + 2)

    rows = [along(X2[i + di, j], X2[i + di, j - 1], X2[i + di, j + 1]) for di in (-1, 0, 1)]
    return op.Energy(blur=along(rows[1], rows[0], rows[2]) - A2[i, j], edge=X2[i, j] * op.where(_inside(), 0, 1))


def _inside() -> Any:
    return op.in_bounds(i - 1, j) & op.in_bounds(i + 1, j) & op.in_bounds(i, j - 1) & op.in_bounds(i, j + 1)


def _draw_blur(rng: Generator, u: float) -> Drawn:
    """The data fit exactly; the nearer to 2 the middle's weight is, the worse is the condition."""
    X = between(rng, 1e-2, 1e2) * _picture(rng)
    X[[0, -1]] = X[:, [0, -1]] = 0
    middle = 2 + between(rng, 1e-3, 10)
    A = np.zeros_like(X)
    for rows in (-1, 0, 1):
        for columns in (-1, 0, 1):
            weight = (middle if rows == 0 else 1) * (middle if columns == 0 else 1) / (middle + 2) ** 2
            A += weight * np.roll(X, (rows, columns), axis=(0, 1))
    A[[0, -1]] = A[:, [0, -1]] = 0
    return Drawn({"X": np.zeros_like(X), "A": A, "w": middle}, {"X": X})


def _unanchored() -> op.Energy:
    D = op.Array("D", (H, W), 2)
    return op.Energy(sides=[SIDES[0] - D[i, j][0], SIDES[1] - D[i, j][1]])


def _draw_unanchored(rng: Generator, u: float) -> Drawn:
    A = between(rng, 1e-2, 1e2) * _picture(rng)
    D = np.zeros((*A.shape, 2))
    D[:-1, :, 0], D[:, :-1, 1] = A[:-1] - A[1:], A[:, :-1] - A[:, 1:]
    D += noise_level(rng) * np.std(A) * rng.normal(size=D.shape)
    return Drawn({"X": np.std(A) * rng.normal(size=A.shape), "D": D}, {"X": A})


def _reweighted() -> op.Energy:
    flat = [w * side * op.stop_gradient((side**2 + op.params("small") ** 2) ** -0.25) for side in SIDES]
    return op.Energy(fit=X2[i, j] - A2[i, j], flat=flat)


def _variation(data: Data) -> float:
    """What the reweighting minimises."""
    X, small = data["X"], data["small"]
    sides = (np.sum(np.sqrt(np.diff(X, axis=axis) ** 2 + small**2)) for axis in (0, 1))
    return float(0.5 * np.sum((X - data["A"]) ** 2) + data["w"] ** 2 * sum(sides))


def _draw_reweighted(rng: Generator, u: float) -> Drawn:
    size = rng.integers(3, 13, 2)
    A = np.add.outer(np.arange(size[0]) > size[0] // 2, np.arange(size[1]) > size[1] // 2) + 0.1 * rng.normal(size=size)
    return Drawn({"X": A.copy(), "A": A, "w": between(rng, 0.03, 1), "small": between(rng, 1e-3, 0.1)}, {"X": A})


# -- graphs ----------------------------------------------------------------------------------------------------------

X1, D1 = op.Unknown("X", (V,)), op.Array("D", (E,))
a, b = op.Graph("edges", E, (V, V))[e]


def _differences() -> op.Energy:
    return op.Energy(measured=X1[a] - X1[b] - D1[e])


def _springs() -> op.Energy:
    K, A = op.Array("K", (E,)), op.Array("A", (V,))
    return op.Energy(fit=X1[v] - A[v], pull=K[e] * (X1[a] - X1[b] - D1[e]))


def _ring(rng: Generator, size: int) -> Any:
    """A cycle, and chords."""
    chords = rng.integers(0, size, (size // 2, 2))
    cycle = np.stack([np.arange(size), (np.arange(size) + 1) % size], axis=1)
    return np.concatenate([cycle, chords[chords[:, 0] != chords[:, 1]]])


def _draw_differences(rng: Generator, u: float) -> Drawn:
    """Nothing says where all of it is."""
    X = between(rng, 1e-2, 1e2) * rng.normal(size=int(rng.integers(3, 80)))
    edges = _ring(rng, len(X))
    D = X[edges[:, 0]] - X[edges[:, 1]] + noise_level(rng) * np.std(X) * rng.normal(size=len(edges))
    return Drawn({"X": np.std(X) * rng.normal(size=len(X)), "D": D, "edges": edges}, {"X": X})


def _draw_springs(rng: Generator, u: float) -> Drawn:
    """Weights from 1 to 1e6."""
    X = rng.normal(size=int(rng.integers(3, 80)))
    edges = _ring(rng, len(X))
    largest = between(rng, 1, 1e6)
    K = np.array([between(rng, 1, largest) for _ in edges])
    D = X[edges[:, 0]] - X[edges[:, 1]] + 0.1 * rng.normal(size=len(edges))
    return Drawn({"X": np.zeros(len(X)), "D": D, "edges": edges, "K": K, "A": X}, {"X": X})


def _draw_walk(rng: Generator, u: float, *, dimension: Literal[2, 3]) -> Drawn:
    walk = pose_graph.synthetic_walk(
        dimension, rounds=2, steps=int(rng.integers(6, 16)), noise=between(rng, 1e-2, 2), seed=int(rng.integers(2**31))
    )
    return Drawn(dict(walk.graph.data), {"Pose": walk.truth})


FAMILIES = (
    Family("spline", _spline, _draw_spline),
    Family("fitted-spline", _fitted_spline, _draw_fitted_spline),
    Family("smooth", _smooth, _draw_smooth),
    Family("poisson", _poisson, _draw_poisson),
    Family("blur", _blur, _draw_blur),
    Family("unanchored-grid", _unanchored, _draw_unanchored),
    Family("reweighted-grid", _reweighted, _draw_reweighted, _variation),
    Family("unanchored-graph", _differences, _draw_differences),
    Family("springs", _springs, _draw_springs),
    Family("walk-plane", lambda: pose_graph.plane, partial(_draw_walk, dimension=2)),
    Family("walk-space", lambda: pose_graph.space, partial(_draw_walk, dimension=3)),
)
