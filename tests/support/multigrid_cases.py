"""Energies that multigrid serves, with their data. Each is made once: what is compiled stays with it."""

from __future__ import annotations

import functools
from itertools import product
from typing import Any

import numpy as np

import optpy as op
from optpy.api.problem import CompiledProblem
from tests.support.bound_problem import bound_problem

D_, H, W, K = op.dims("D H W K")


@functools.cache
def chain() -> op.Energy:
    """One dim, reach 1."""
    i = op.indices(W)
    X, A = op.Unknown("X", (W,)), op.Array("A", (W,))
    return op.Energy(fit=0.05 * (X[i] - A[i]), smooth=X[i] - X[i + 1])


@functools.cache
def bending() -> op.Energy:
    """Two unknowns, reach 2 along rows and 3 along columns, some points fixed, a weight that varies."""
    i, j = op.indices(H, W)
    X, Y = op.Unknown("X", (H, W)), op.Unknown("Y", (H, W), 2)
    A = op.Array("A", (H, W))
    M = op.Array("M", (H, W), dtype=np.uint8)
    return op.Energy(
        fit=0.1 * (X[i, j] - A[i, j]),
        bend=(1 + A[i, j] ** 2) * (X[i, j - 1] - 2 * X[i, j] + X[i, j + 1]),
        skip=Y[i, j] - Y[i + 3, j],
        slope=op.vector(Y[i, j][0] - X[i, j] + X[i + 1, j], op.sin(Y[i, j][1]) - Y[i, j + 1][1]),
        fixed={X: M[i, j] == 1, Y: M[i, j] == 2},
    )


@functools.cache
def volume() -> op.Energy:
    """Three dims."""
    i, j, k = op.indices(D_, H, W)
    X, A = op.Unknown("X", (D_, H, W)), op.Array("A", (D_, H, W))
    steps = [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
    smooth = [X[i, j, k] - X[i + a, j + b, k + c] for a, b, c in steps]
    return op.Energy(fit=0.1 * (X[i, j, k] - A[i, j, k]), smooth=smooth)


@functools.cache
def quads() -> op.Energy:
    """Points between the pixels, by the four around each and one beyond; reach 2 along rows."""
    (i, j), k = op.indices(H, W), op.indices(K)
    X, Y, A = op.Unknown("X", (H, W), 2), op.Unknown("Y", (H, W)), op.Array("A", (K,))
    a, b, c, d = op.Graph("quad", K, ((H, W),) * 4)[k]
    beyond = (d[0], d[1] + 1)
    return op.Energy(
        smooth=[X[i, j] - X[i + 1, j], X[i, j] - X[i, j + 2]],
        link=op.vector(Y[i, j] - Y[i + 1, j] + 0.3 * X[i, j + 1][0], 0.1 * Y[i, j]),
        fit=4 * op.sin(A[k] * X[a] + X[b] - X[c]) + Y[beyond] - Y[a],
    )


def values_of(energy: op.Energy, sizes: tuple[int, ...], edges: int = 12) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    grid = energy.problem.unknowns[0].dims
    size_of = dict(zip(grid, sizes, strict=True))
    values: dict[str, Any] = {}
    for f in energy.fields:
        shape = tuple(size_of.get(d, edges) for d in f.dims) + (f.channels,) * f.channel_axis
        values[f.name] = rng.integers(0, 9, shape).astype(np.uint8) if f.dtype == "uint8" else rng.normal(size=shape)
    for g in energy.graphs:
        at = rng.integers(0, np.array(sizes) - 1, (edges, len(sizes)))
        corners = product((0, 1), repeat=len(sizes))
        values[g.name] = np.concatenate([at + corner for _, corner in zip(g.slots, corners, strict=False)], axis=1)
    return values


def poisson(n: int) -> tuple[op.Energy, dict[str, Any]]:
    """The differences of a picture, inside a frame that keeps its values."""
    i, j = op.indices(H, W)
    X, B = op.Unknown("X", (H, W)), op.Array("B", (H, W))
    inside = (op.value(i) > 0) & (op.value(j) > 0) & op.in_bounds(i + 1, j) & op.in_bounds(i, j + 1)
    steps = [(0, 1), (1, 0)]
    rules = [(X[i, j] - X[i + a, j + b]) - (B[i, j] - B[i + a, j + b]) for a, b in steps]
    rng = np.random.default_rng(0)
    picture = np.cumsum(np.cumsum(rng.normal(size=(n, n)), axis=0), axis=1) / n
    start = picture.copy()
    start[1:-1, 1:-1] = 0
    return op.Energy(same=rules, fixed={X: ~inside}), dict(X=start, B=picture)


def compiled(energy: op.Energy, values: dict[str, Any], threads: int = 1, dtype: Any = np.float64) -> CompiledProblem:
    return bound_problem(op.compile(energy, "cpu", dtype), values, dtype, threads)
