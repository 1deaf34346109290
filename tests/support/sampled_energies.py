"""Energies that read arrays at real coordinates, in every way, with data; and what such reads are, by NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import optpy as op
from tests.support.func_energies import Made, distinct

Real = NDArray[np.float64]

D, H, W, V, E = op.dims("D H W V E")


def flow() -> Made:
    """An image at coordinates of its own pixels, moved by unknowns; linear; by a robust loss."""
    i, j = op.indices(H, W)
    U, w = op.Unknown("U", (H, W), 2), op.params("w")
    first, second = op.Array("first", (H, W)), op.Array("second", (H, W), dtype=np.uint8)
    sampled = op.Sampled(second)
    u = U[i, j]
    energy = op.Energy(
        fit=op.robust(sampled(op.value(i) + u[0], op.value(j) + u[1]) - first[i, j], "soft_l1", scale=0.8),
        smooth=[w * (u - U[i + 1, j]), w * (u - U[i, j + 1])],
    )

    def data(rng: np.random.Generator, n: int) -> dict[str, Any]:
        shape = n, n + 2
        images = dict(first=rng.normal(size=shape), second=rng.integers(0, 5, shape, dtype=np.uint8))
        return images | dict(U=2 * rng.normal(size=(*shape, 2)), w=0.4)

    return energy, data


def turned() -> Made:
    """Colours seen by a camera of three unknowns; cubic, and a constant beyond; through an intermediate."""
    i, j = op.indices(H, W)
    pose, colour = op.Unknown("pose", (), 3), op.Array("colour", (D, E), 3)
    seen, gain = op.Array("seen", (H, W), 3), op.Unknown("gain", (H,))
    at = op.Func("at", (H, W), 2)
    at[i, j] = op.rotate2d(pose[()][0], op.vector(op.value(i), op.value(j))) + pose[()][1:]
    sampled = op.Sampled(colour, method="cubic", boundary="constant", value=0.5)
    energy = op.Energy(fit=gain[i] * sampled(*at[i, j]) - seen[i, j], gain=gain[i] - 1)

    def data(rng: np.random.Generator, n: int) -> dict[str, Any]:
        colours = dict(colour=rng.normal(size=(n + 1, 4, 3)), seen=rng.normal(size=(n, n, 3)))
        return colours | dict(pose=[0.3, 0.2, -0.4], gain=rng.normal(size=n))

    return energy, data


def volume() -> Made:
    """A volume at vertices of a mesh, mirrored; another one again and again, at what data and an edge say."""
    v, e = op.indices(V, E)
    a, b = op.Graph("edges", E, (V, V))[e]
    X, Field, A = op.Unknown("X", (V,), 3), op.Array("Field", (D, H, W)), op.Array("A", (V,))
    inside, around = op.Sampled(Field, boundary="mirror"), op.Sampled(Field, boundary="wrap")
    energy = op.Energy(
        fit=inside(*X[v]) - A[v],
        edge=around(X[a][0], A[a] + 0.5 * X[b][1], 0.3 * op.value(e)) * (X[a] - X[b]),
    )

    def data(rng: np.random.Generator, n: int) -> dict[str, Any]:
        X_ = 4 * rng.normal(size=(2 * n, 3))
        edges = distinct(rng, 2 * n, 3 * n, 2)
        return dict(X=X_, Field=rng.normal(size=(n, 1, n + 1)), A=rng.normal(size=2 * n), edges=edges)

    return energy, data


def far_away() -> Made:
    """A curve at coordinates far beyond its ends, and with slopes that are given."""
    v = op.indices(V)
    X, curve, slope = op.Unknown("X", (V,)), op.Array("curve", (W,)), op.Array("slope", (W,))
    far = op.Array("far", (V,))
    x = X[v] * far[v]
    energy = op.Energy(
        fit=X[v] - 1,
        nearest=op.Sampled(curve)(x),
        constant=op.Sampled(curve, boundary="constant", value=2)(x),
        given=op.sin(op.Sampled(curve, gradient=[slope])(X[v])),
    )

    def data(rng: np.random.Generator, n: int) -> dict[str, Any]:
        far_ = np.resize([1e9, 1.0, -1e9, 1e3], 2 * n)
        curves = dict(curve=rng.normal(size=n), slope=rng.normal(size=n))
        return curves | dict(X=rng.uniform(0.5, 1.5, 2 * n), far=far_)

    return energy, data


def patches() -> Made:
    """Sums over patches around moved points, and an intermediate that is read at neighbours."""
    i, j = op.indices(H, W)
    k = op.indices(D)
    U, image, window = op.Unknown("U", (H, W), 2), op.Array("image", (H, W)), op.Array("window", (D,))
    sampled = op.Sampled(image, boundary="mirror")
    y, x = op.value(i) + U[i, j][0], op.value(j) + U[i, j][1]
    bright = op.Func("bright", (H, W), 2)
    bright[i, j] = op.vector(sampled(y, x), op.sin(sampled(x, y)))
    energy = op.Energy(
        patch=op.sum(sampled(y + op.value(k), 0.5 * x) * window[k], over=k) - image[i, j],
        edge=bright[i, j] - bright[i, j + 1] * bright[i - 1, j],
        small=0.1 * U[i, j],
    )

    def data(rng: np.random.Generator, n: int) -> dict[str, Any]:
        arrays = dict(image=rng.normal(size=(n, n + 1)), window=rng.normal(size=3))
        return arrays | dict(U=2 * rng.normal(size=(n, n + 1, 2)))

    return energy, data


def stack() -> Made:
    """Pictures of a stack, chosen by the slots of an edge and by a loop variable, beyond its end, too; cubic along one
    axis only; given slopes along the axes that have some."""
    e, k, i, j = op.indices(E, D, H, W)
    a, b = op.Graph("pairs", E, (D, D))[e]
    pose, Stack = op.Unknown("pose", (D,), 2), op.Array("Stack", (D, H, W), 2)
    Across = op.Array("Across", (D, H, W), 2)
    linear, cubic = op.Sampled(Stack), op.Sampled(Stack, method="cubic", boundary="constant", value=0.3)
    given = op.Sampled(Stack, gradient=(None, None, Across))
    there = pose[b] - pose[a]
    energy = op.Energy(
        pair=linear(b, op.value(j) + there[0], there[1]) - Stack[a, 0, j],
        beside=cubic(k + 1, op.value(k) - 1, pose[k][0]),
        given=given(k, i, pose[k][1]),
    )

    def data(rng: np.random.Generator, n: int) -> dict[str, Any]:
        shape = 4, n + 4, n
        arrays = dict(Stack=rng.normal(size=(*shape, 2)), Across=rng.normal(size=(*shape, 2)))
        return arrays | dict(pose=2 * rng.normal(size=(4, 2)), pairs=distinct(rng, 4, n, 2))

    return energy, data


def blurred() -> Made:
    """A Func of data: a sum, of what another one samples; with slopes that are Funcs, too; one is read elsewhere."""
    i, j, k, v = op.indices(H, W, D, V)
    X, image, window = op.Unknown("X", (V,), 2), op.Array("image", (H, W)), op.Array("window", (D,))
    gain = op.params("gain")
    half, blur = op.Func("half", (H, W)), op.Func("blur", (H, W), 2)
    down, across = op.Func("down", (H, W), 2), op.Func("across", (H, W), 2)
    half[i, j] = op.Sampled(image)(0.5 * op.value(i), 0.7 * op.value(j))
    blur[i, j] = op.vector(gain * op.sum(window[k] * half[i + k, j], over=k), half[i, j] > 0)
    down[i, j] = op.where(op.in_bounds(i + 1, j), blur[i + 1, j] - blur[i, j], 0)
    across[i, j] = op.vector(1, op.value(i))
    energy = op.Energy(
        plain=op.Sampled(blur, method="cubic", boundary="mirror")(*X[v]),
        given=op.Sampled(blur, gradient=(down, across))(X[v][1], X[v][0]),
        near=0.1 * X[v] * blur[1, 0],
    )

    def data(rng: np.random.Generator, n: int) -> dict[str, Any]:
        arrays = dict(image=rng.normal(size=(n, n + 1)), window=rng.normal(size=2))
        return arrays | dict(X=2 * rng.normal(size=(2 * n, 2)), gain=0.7)

    return energy, data


ENERGIES = {make.__name__: make for make in (flow, turned, volume, far_away, patches, stack, blurred)}
INEXACT_BLOCKS = ("patches",)
"""Those whose sums read an element of an unknown several times in a residual."""


# ---- the oracle ------------------------------------------------------------------------------------------------------


def keys(x: Real) -> Real:
    """The kernel of cubic convolution, a = -1/2 (Keys 1981, equation 15)."""
    x = np.abs(x)
    near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    weight: Real = np.where(x <= 1, near, np.where(x < 2, far, 0.0))
    return weight


def hat(x: Real) -> Real:
    """The kernel of linear interpolation."""
    weight: Real = np.maximum(1 - np.abs(x), 0)
    return weight


def convolved(array: Real, coordinates: Sequence[Real], method: str, boundary: str, value: float = 0.0) -> Real:
    """An array at coordinates, a convolution: each element around, times a kernel of its distance along each axis."""
    kernel = keys if method == "cubic" else hat
    at = [np.asarray(c, float) for c in coordinates]
    total = np.zeros(np.broadcast_shapes(*(c.shape for c in at)))
    mode = {"nearest": "edge", "constant": "constant", "mirror": "reflect", "wrap": "wrap"}[boundary]
    width = 2 + int(max(np.abs(c).max() for c in at))
    options: dict[str, Any] = {"constant_values": value} if mode == "constant" else {}
    padded = np.pad(array, width, mode, **options)  # type: ignore[call-overload]
    for taps in product(range(-1, 3), repeat=len(at)):
        index = [np.floor(c).astype(int) + t for c, t in zip(at, taps, strict=True)]
        weight = np.prod([kernel(c - k) for c, k in zip(at, index, strict=True)], axis=0)
        total += weight * padded[tuple(k + width for k in index)]
    return total
