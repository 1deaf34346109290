"""Patterns of symmetric sparse matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pattern = NDArray[np.bool_]


def csr(pattern: Pattern) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    rows = np.concatenate([[0], np.cumsum(pattern.sum(axis=1))]).astype(np.int64)
    return rows, np.nonzero(pattern)[1].astype(np.int32)


def pattern_of(n: int, edges: Any) -> Pattern:
    pattern = np.eye(n, dtype=bool)
    for a, b in edges:
        pattern[a, b] = pattern[b, a] = True
    return pattern


def grid(height: int, width: int) -> Pattern:
    at = np.arange(height * width).reshape(height, width)
    across, down = zip(at[:, :-1].flat, at[:, 1:].flat, strict=True), zip(at[:-1].flat, at[1:].flat, strict=True)
    return pattern_of(at.size, [*across, *down])


def random_pattern(n: int, edges: int) -> Pattern:
    return pattern_of(n, np.random.default_rng(n).integers(0, n, (edges, 2)))


PATTERNS: dict[str, Callable[[], Pattern]] = {
    "nothing": lambda: pattern_of(0, []),
    "one": lambda: pattern_of(1, []),
    "unconnected": lambda: pattern_of(7, []),
    "chain": lambda: pattern_of(40, [(k, k + 1) for k in range(39)]),
    "ring": lambda: pattern_of(25, [(k, (k + 1) % 25) for k in range(25)]),
    "star": lambda: pattern_of(90, [(33, k) for k in range(90)]),
    "two hubs": lambda: pattern_of(120, [(h, k) for h in (5, 80) for k in range(0, 120, h % 3 + 1)]),
    "full": lambda: np.ones((45, 45), bool),
    "grid": lambda: grid(11, 9),
    "sparse": lambda: random_pattern(100, 90),
    "dense": lambda: random_pattern(60, 400),
    "three grids": lambda: np.kron(np.eye(3, dtype=bool), grid(4, 6)),
}
