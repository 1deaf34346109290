"""Energies of a size that is asked for: what compilers take for them should grow as the size does, and no faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Final, final

import optpy as op


@final
@dataclass(frozen=True, slots=True)
class Family:
    """Energies alike but for their size.

    Attributes:
        what: is as many as its size says.
        sizes: that are measured.
        energy: of a size.
    """

    what: str
    sizes: tuple[int, ...]
    energy: Callable[[int], op.Energy]


def blur(k: int) -> op.Energy:
    """K x K reads of an unknown under a blur that is written out, and a term that smooths."""
    H, W = op.dims("H W")
    i, j = op.indices(H, W)
    X, B, K = op.Unknown("X", (H, W)), op.Array("B", (H, W)), op.Array("K", (), k * k)
    half = range(-(k // 2), k // 2 + 1)
    total = sum(K[()][(a + k // 2) * k + b + k // 2] * X[i + a, j + b] for a in half for b in half)
    w = op.params("w")
    return op.Energy(fit=total - B[i, j], smooth=[w * (X[i, j] - X[i + 1, j]), w * (X[i, j] - X[i, j + 1])])


def sines(n: int) -> op.Energy:
    """A function of a function of a function."""
    N = op.dims("N")
    i = op.indices(N)
    X, B = op.Unknown("X", (N,)), op.Array("B", (N,))
    e = X[i]
    for _ in range(n):
        e = op.sin(e)
    return op.Energy(fit=e - B[i])


def sines_in_funcs(n: int) -> op.Energy:
    """As ``sines``, through an intermediate that is read at two places."""
    N = op.dims("N")
    i = op.indices(N)
    X, B, F = op.Unknown("X", (N,)), op.Array("B", (N,)), op.Func("F", (N,))
    e = X[i]
    for _ in range(n):
        e = op.sin(e)
    F[i] = e
    return op.Energy(fit=F[i] + F[i + 1] - B[i])


def mixed_functions(n: int) -> op.Energy:
    """Sines, exponentials, roots, quotients and products, each of the last and of a neighbour."""
    N = op.dims("N")
    i = op.indices(N)
    X, B = op.Unknown("X", (N,)), op.Array("B", (N,))
    e = X[i]
    for step in range(n):
        match step % 5:
            case 0:
                e = op.sin(e + B[i])
            case 1:
                e = op.exp(-e * e) * X[i]
            case 2:
                e = op.sqrt(1 + e * e)
            case 3:
                e = e / (2 + X[i + 1] ** 2)
            case _:
                e = e * B[i] + X[i]
    return op.Energy(fit=e - B[i])


def _reads(n: int) -> tuple[list[op.Expression], op.Expression]:
    N = op.dims("N")
    i = op.indices(N)
    X, B = op.Unknown("X", (N,)), op.Array("B", (N,))
    return [X[i + d] for d in range(n)], B[i]


def products_of_pairs(n: int) -> op.Energy:
    """``X[i] X[i + 1] + X[i + 1] X[i + 2] + ...``"""
    reads, b = _reads(n)
    return op.Energy(fit=sum(p * q for p, q in pairwise(reads)) - b)


def polynomial(n: int) -> op.Energy:
    """Powers of each read, and products of three."""
    reads, b = _reads(n)
    cubes = sum((k % 4 + 1) * x ** (k % 3 + 1) for k, x in enumerate(reads))
    triples = sum(p * q * r for p, q, r in zip(reads, reads[1:], reads[2:], strict=False))
    return op.Energy(fit=cubes + triples - b)


def length(n: int) -> op.Energy:
    """The root of a sum of squares."""
    reads, b = _reads(n)
    return op.Energy(fit=op.sqrt(sum(x * x for x in reads) + 1) - b)


def power_of_sum(n: int) -> op.Energy:
    """The square of a sum."""
    reads, b = _reads(n)
    return op.Energy(fit=sum((k % 7 + 1) * x for k, x in enumerate(reads)) ** 2 - b)


def terms(n: int) -> op.Energy:
    """Many residuals."""
    N = op.dims("N")
    i = op.indices(N)
    X, B = op.Unknown("X", (N,)), op.Array("B", (N,))
    return op.Energy(fit=[op.sin(X[i] + k * X[i + k % 7]) - B[i] for k in range(1, n + 1)])


def coupled_channels(n: int) -> op.Energy:
    """A vector all pairs of whose channels are multiplied."""
    N = op.dims("N")
    i = op.indices(N)
    X, B = op.Unknown("X", (N,), n), op.Array("B", (N,))
    pairs = sum(X[i][a] * X[i][b] for a, b in combinations(range(n), 2))
    return op.Energy(fit=pairs - B[i], keep=X[i] - X[i + 1])


def conditions(n: int) -> op.Energy:
    """``where`` inside ``where``, of values and of conditions that depend on the unknown."""
    N = op.dims("N")
    i = op.indices(N)
    X, B = op.Unknown("X", (N,)), op.Array("B", (N,))
    e = X[i]
    for k in range(n):
        e = op.where(B[i] > k, e * X[i + 1] + k, e + X[i])
    return op.Energy(fit=e - B[i])


def edges(n: int) -> op.Energy:
    """Hyper-edges of many vertices, all of which are in one residual."""
    V, E = op.dims("V E")
    e = op.indices(E)
    X, B = op.Unknown("X", (V,)), op.Array("B", (E,))
    slots = op.Graph("G", E, (V,) * n)[e]
    reads = [X[s] for s in slots]
    return op.Energy(fit=sum(p * q for p, q in pairwise(reads)) - B[e])


FAMILIES: Final = {
    "blur": Family("K, reads are K x K", (3, 5, 7, 9, 13, 17), blur),
    "sines": Family("nested sines", (50, 100, 200, 500, 1000, 2000), sines),
    "sines_in_funcs": Family("nested sines in a Func", (50, 100, 200, 500, 1000, 2000), sines_in_funcs),
    "mixed_functions": Family("nested functions", (50, 100, 200, 500, 1000, 2000), mixed_functions),
    "products_of_pairs": Family("reads", (30, 60, 125, 250, 500, 1000), products_of_pairs),
    "polynomial": Family("reads", (30, 60, 125, 250, 500, 1000), polynomial),
    "length": Family("reads", (30, 60, 125, 250, 500, 1000), length),
    "power_of_sum": Family("reads", (30, 60, 125, 250, 500, 1000), power_of_sum),
    "terms": Family("residuals", (10, 30, 100, 300, 1000), terms),
    "coupled_channels": Family("channels", (3, 6, 12, 24, 48), coupled_channels),
    "conditions": Family("nested conditions", (10, 20, 50, 100, 200, 500), conditions),
    "edges": Family("vertices of an edge", (10, 30, 60, 125, 250), edges),
}
