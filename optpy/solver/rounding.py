"""How much of a gradient, and of a cost, is rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from optpy.solver.protocol import Damping, LinearLimits, Rounding

Real = NDArray[np.float64]

WIDE: Final = 0.1
"""A trust region of so many units of 1 / precision damps by less than rounding changes the diagonal of J^T J."""
CAREFUL: Final = LinearLimits(max_iterations=200, r_tolerance=0.1, residual_reset_period=50)
"""How a linear solve is made that shall say what is left: what it has found when it ends is a lower bound."""
_PROBES: Final = 8
"""So many roundings of x are tried: by the largest of them hardly an entry is thought far more exact than it is."""


def nearly_undamped(precision: float) -> Damping:
    """D of a step without notable damping, which is finite where J^T J is singular."""
    return Damping(WIDE / precision, 1e-6, 1e32, jacobi_scaling=True)


def rounding(
    g: Real, c: Real, x: Real, step: Real, cost: float, apply: Callable[[Real], Real], xp: Any = np
) -> Rounding:
    """What rounding x does to the gradient and to the cost.

    The relative gradient is the larger of max_i |g_i| / n_i and |g.step| / ||n step||, where rounding changes g_i by
    about precision n_i:

        n_i = max_s |J^T J (s x)|_i + sqrt(c_i) ||F|| / sqrt(n)        s: a few vectors of random signs

    With s the signs of its errors, x rounded is x + precision s x. That changes F by ``precision J (s x)``, and so the
    gradient by ``precision J^T J (s x)``. The second summand is for the rounding of F and of its products with J.
    Where F is nothing but rounding, as where J is singular and F = 0 can be reached, the ratio is of the order of the
    precision, too.

    The entries alone say little where J^T J is ill-conditioned: each may be below the rounding of stiff residuals, and
    all together have a slope along a direction in which those do not change; the step is such a direction.

    The cost of rounding is the largest 1/2 ||J (s x)||^2 = 1/2 (s x).J^T J (s x).

    Args:
        g, c: the gradient and the diagonal of J^T J, (n,). Where c is 0, nothing depends on the unknown.
        x: the magnitude of the unknown along each coordinate, (n,).
        step: (n,); it may be 0.
        cost: 1/2 ||F||^2.
        apply: from p to J^T J p, both (n,).
        xp: the module of the arrays: NumPy, or one with its names for arrays on a GPU, which stay there.

    Returns:
        Both in units of the precision, and of its square; not finite where something overflows.
    """
    n_free = int((c > 0).sum())
    if n_free == 0:
        return Rounding(0.0, 0.0)
    with np.errstate(all="ignore"):
        n, of_cost = _of_gradient(c, x, cost, apply, xp)
        # Without products of vectors, which would take a library of linear algebra on a GPU.
        entries = xp.where((c > 0) & (g != 0), xp.abs(g) / n, 0.0).max()
        slope = (g * step).sum()
        length = xp.sqrt(((n * step) ** 2).sum())
        along = abs(float(slope)) / float(length) if bool((g * step).any()) else 0.0
    return Rounding(float(np.maximum(float(entries), along)), of_cost)


def rounded_gradient(c: Real, x: Real, cost: float, apply: Callable[[Real], Real], xp: Any = np) -> tuple[Real, float]:
    """What rounding may make of a gradient that is 0, in units of the precision: the n_i of `rounding`, with signs.

    And of a cost that is 0, in units of its square: the cost of rounding.
    """
    with np.errstate(all="ignore"):
        n, of_cost = _of_gradient(c, x, cost, apply, xp)
    return xp.where(c > 0, random_signs(len(c), _PROBES, xp) * n, 0.0), of_cost


def hidden_in_few(noise: Real, apply: Callable[[Real], Real], damping: Damping) -> float:
    """1/2 e.J^T J e with (J^T J + D) e = noise, by a dense factorisation: for a few unknowns, of whatever units."""
    A = np.stack([apply(unit) for unit in np.eye(len(noise))])
    D = damping.diagonal(np.diag(A))
    scale = 1 / np.sqrt(np.where(np.diag(A) + D > 0, np.diag(A) + D, 1.0))
    e = scale * np.linalg.lstsq(scale[:, None] * (A + np.diag(D)) * scale, scale * noise, rcond=None)[0]
    return 0.5 * float(e @ A @ e)


def _of_gradient(c: Real, x: Real, cost: float, apply: Callable[[Real], Real], xp: Any) -> tuple[Real, float]:
    """The n_i of `rounding`, and the cost of rounding."""
    free = c > 0
    n, of_cost = xp.zeros_like(c), 0.0
    for probe in range(_PROBES):
        rounded = xp.where(free, random_signs(len(x), probe, xp) * x, 0.0)
        changed = apply(rounded)
        n = xp.maximum(n, xp.abs(changed))
        of_cost = float(np.maximum(of_cost, float((rounded * changed).sum()) / 2))
    return n + xp.sqrt(c) * math.sqrt(2 * cost / max(int(free.sum()), 1)), of_cost


def cosine(g: Real, c: Real, cost: float, xp: Any = np) -> float:
    """max_i |g_i| / (||J_i|| ||F||): how far the residuals are from orthogonal to the columns of J. 0 where g is.

    Args:
        g, c: the gradient and the diagonal of J^T J, (n,).
        cost: 1/2 ||F||^2.

    Reference: J. J. Moré, The Levenberg-Marquardt algorithm: implementation and theory, 1978; MINPACK's ``gtol``.
    """
    with np.errstate(all="ignore"):
        cosines = xp.where((g != 0) & (c > 0), xp.abs(g) / xp.sqrt(c * (2 * cost)), 0.0)
    return float(cosines.max()) if len(g) else 0.0


def random_signs(n: int, seed: int, xp: Any = np) -> Real:
    """(n,) numbers of 1 and -1: the top bits of splitmix64 (Steele, Lea, Flood 2014)."""

    def word(value: int) -> Any:
        return xp.full(1, np.uint64(value), dtype=np.uint64)

    z = xp.multiply(xp.arange(1, n + 1, dtype=np.uint64) + word(seed << 40), word(0x9E3779B97F4A7C15))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = xp.multiply(xp.bitwise_xor(z, xp.right_shift(z, word(shift))), word(factor))
    signs: Real = xp.right_shift(z, word(63)).astype(np.float64) * 2 - 1
    return signs
