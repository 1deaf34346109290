"""Robust losses: rho(z) and its slope as symbolic expressions that stay finite where r, s and rho are.

With r a residual (a number, or a block of them) and s its scale, z = (|r| / s)^2. The cost is 1/2 s^2 rho(z). For
large r the square z overflows in float32 long before the cost does, so z itself is never formed: with the largest
entry M = max(s, |r_1|, ..., |r_n|) drawn out,

    b_k = r_k / M,   q = sum_k b_k^2,   k = s / M <= 1,   z = q / k^2,   sqrt(1 + z) = g / k with g = sqrt(k^2 + q).

References: SciPy, ``scipy.optimize.least_squares``, argument ``loss``; Agarwal et al., Ceres Solver, loss_function.h
(Tukey); S. Geman, D. McClure, "Statistical methods for tomographic image reconstruction", 1987.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, final

from ..symbolic.expr import ONE, ZERO, Expr, add, call, const, linear, mul, power, where
from ..symbolic.operations import OPERATIONS, absolute, equal, less_equal, sqrt, stop_gradient

_HALF: Final = Fraction(1, 2)
_THIRD: Final = Fraction(1, 3)

_SMALL: Final = const(1e-8)
"""Up to this z, a series of one or two terms is exact in double precision."""


def _whole(e: Expr) -> Expr:
    """e as one node: products would be multiplied out and overflow. Nothing of it is ever differentiated."""
    return stop_gradient(e)


@final
@dataclass(frozen=True, slots=True)
class Norm:
    """``|r| / s`` in parts that do not overflow."""

    b: tuple[Expr, ...]
    """r_k / M: from -1 to 1."""
    k: Expr
    """s / M: up to 1, which it is wherever |r| <= s."""

    @classmethod
    def of(cls, scale: Expr, r: Sequence[Expr]) -> Norm:
        largest = scale
        for e in r:
            largest = call(OPERATIONS["maximum"], largest, absolute(e))
        return cls(tuple(_whole(_quotient(e, largest)) for e in r), _whole(_quotient(scale, largest)))

    @property
    def q(self) -> Expr:
        """The sum of the squares of the b_k: from 0 to their number."""
        return add(*(power(b, 2) for b in self.b))

    @property
    def g(self) -> Expr:
        """sqrt(k^2 + q) = k sqrt(1 + z)."""
        return sqrt(add(power(self.k, 2), self.q))

    @property
    def a(self) -> Expr:
        """|r| / s = sqrt(z)."""
        return _quotient(sqrt(self.q), self.k)


@final
@dataclass(frozen=True, slots=True)
class Loss:
    """A robust loss.

    Attributes:
        root: ``sqrt(rho(z) / q)``, finite and exact down to z = 0. With it, the vector ``s root b`` has the direction
            of r, and the sum of its squares is ``s^2 rho(z)``.
        slope: ``rho'(z)``, which is 1 at 0.
    """

    root: Callable[[Norm], Expr]
    slope: Callable[[Norm], Expr]


def _quotient(a: Expr, b: Expr) -> Expr:
    return mul(a, power(b, -1))


def _inside(n: Norm) -> Expr:
    return less_equal(n.a, ONE)


def _by_series(n: Norm, series: Expr, rho: Expr) -> Expr:
    """The root where z = q is so small that rho / q would lose its digits (or be 0 / 0), and elsewhere."""
    return where(less_equal(n.q, _SMALL), series, sqrt(_quotient(rho, n.q)))


def _cauchy_root(n: Norm) -> Expr:
    # log(1 + z) = 2 asinh(sinh(log(h))) with h = sqrt(1 + z) = g / k and sinh(log(h)) = (h - 1/h) / 2 = z / (2 h):
    # without the rounding of 1 + z.
    logarithm = call(OPERATIONS["asinh"], mul(const(_HALF), _quotient(n.q, mul(n.k, n.g))))
    return _by_series(n, linear(1, [(-Fraction(1, 4), n.q)]), linear(0, [(2, logarithm)]))


def _tukey_root(n: Norm) -> Expr:
    inside = sqrt(linear(1, [(-1, n.q), (_THIRD, power(n.q, 2))]))
    return where(_inside(n), inside, power(linear(0, [(3, n.q)]), -_HALF))


LOSSES: Final[dict[str, Loss]] = {
    "linear": Loss(root=lambda n: power(n.k, -1), slope=lambda n: ONE),  # z
    # z up to 1, then 2 sqrt(z) - 1
    "huber": Loss(
        root=lambda n: where(_inside(n), ONE, sqrt(_quotient(linear(-1, [(2, n.a)]), n.q))),
        slope=lambda n: where(_inside(n), ONE, power(n.a, -1)),
    ),
    # 2 (sqrt(1 + z) - 1)
    "soft_l1": Loss(
        # = 2 z / (sqrt(1 + z) + 1)
        root=lambda n: sqrt(_quotient(const(2), mul(n.k, add(n.k, n.g)))),
        slope=lambda n: _quotient(n.k, n.g),
    ),
    # log(1 + z)
    "cauchy": Loss(root=_cauchy_root, slope=lambda n: power(_quotient(n.k, n.g), 2)),
    # atan(z)
    "arctan": Loss(
        root=lambda n: _by_series(n, ONE, call(OPERATIONS["atan"], power(n.a, 2))),
        slope=lambda n: _quotient(power(n.k, 4), add(power(n.k, 4), power(n.q, 2))),
    ),
    # (1 - (1 - z)^3) / 3 up to 1, then 1/3
    "tukey": Loss(
        root=_tukey_root,
        slope=lambda n: where(_inside(n), power(linear(1, [(-1, n.q)]), 2), ZERO),
    ),
    # z / (1 + z)
    "geman_mcclure": Loss(root=lambda n: power(n.g, -1), slope=lambda n: power(_quotient(n.k, n.g), 4)),
}


def summed(loss: str, scale: Expr, r: Sequence[Expr]) -> tuple[Expr, ...]:
    """What the cost sums the squares of: ``s sqrt(rho(z)) r / |r|``, 0 where r is 0; not finite where s is 0."""
    n = Norm.of(scale, r)
    root = LOSSES[loss].root(n)
    # Infinite where the scale is 0: for the bounded losses it would hide all residuals.
    factor = add(scale, mul(equal(scale, ZERO), power(scale, -1)))
    return tuple(mul(factor, b, root) for b in n.b)


def linearised(loss: str, scale: Expr, r: Sequence[Expr]) -> tuple[Expr, ...]:
    """What is differentiated: ``sqrt(rho'(z)) r``, its weight held constant."""
    weight = sqrt(stop_gradient(LOSSES[loss].slope(Norm.of(scale, r))))
    return tuple(mul(weight, e) for e in r)
