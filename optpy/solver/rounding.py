"""How much of a gradient is rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]

_PROBES: Final = 8
"""So many roundings of x are tried: by the largest of them hardly an entry is thought far more exact than it is."""


def relative_gradient(g: Real, c: Real, x: Real, step: Real, cost: float, apply: Callable[[Real], Real]) -> float:
    """The larger of max_i |g_i| / n_i and |g.step| / ||n step||, where rounding changes g_i by about precision n_i:

        n_i = max_s |J^T J (s x)|_i + sqrt(c_i) ||F|| / sqrt(n)        s: a few vectors of random signs

    With s the signs of its errors, x rounded is x + precision s x. That changes F by ``precision J (s x)``, and so the
    gradient by ``precision J^T J (s x)``. The second summand is for the rounding of F and of its products with J.
    Where F is nothing but rounding, as where J is singular and F = 0 can be reached, the ratio is of the order of the
    precision, too.

    The entries alone say little where J^T J is ill-conditioned: each may be below the rounding of stiff residuals, and
    all together have a slope along a direction in which those do not change; the step is such a direction.

    Args:
        g, c: the gradient and the diagonal of J^T J, (n,). Where c is 0, nothing depends on the unknown.
        x: the magnitude of the unknown along each coordinate, (n,).
        step: (n,); it may be 0.
        cost: 1/2 ||F||^2.
        apply: from p to J^T J p, both (n,).

    Returns:
        The ratio; not finite where something overflows.
    """
    free = c > 0
    if not free.any():
        return 0.0
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        n = np.zeros_like(g)
        for _ in range(_PROBES):
            n = np.maximum(n, np.abs(apply(np.where(free, rng.choice([-1.0, 1.0], len(x)) * x, 0))))
        n = n + np.sqrt(c) * math.sqrt(2 * cost / np.count_nonzero(free))
        entries = np.max(np.abs(g[free]) / n[free]) if g.any() else 0.0
        slope = abs(g @ step) / np.linalg.norm(n * step) if (g * step).any() else 0.0
    return float(np.maximum(entries, slope))
