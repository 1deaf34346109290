"""Robust losses: rho(z) and its slope as symbolic expressions that stay finite where r, s and rho are.

With r a residual (a number, or a block of them) and s its scale, z = (|r| / s)^2. The cost is 1/2 s^2 rho(z). For
large r the square z overflows in float32 long before the cost does, and so does s^2 for a large s, so neither is ever
formed: with the largest entry M = max(s, |r_1|, ..., |r_n|) drawn out,

    b_k = r_k / M,   q = sum_k b_k^2,   k = s / M <= 1,   z = q / k^2,   sqrt(1 + z) = g / k with g = sqrt(k^2 + q),

and s b_k = k r_k is no larger than s or r_k.

References: SciPy, ``scipy.optimize.least_squares``, argument ``loss``; Agarwal et al., Ceres Solver, loss_function.h
(Tukey); S. Geman, D. McClure, "Statistical methods for tomographic image reconstruction", 1987.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, final

from optpy.symbolic.expr import ONE, ZERO, Const, Expr, add, call, const, linear, mul, power, where
from optpy.symbolic.operations import OPERATIONS, absolute, equal, less_equal, sqrt, stop_gradient, whole

_HALF: Final = Fraction(1, 2)
_THIRD: Final = Fraction(1, 3)


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
        """The norm of the vector r over a positive scale, with M the largest of the scale and all |r_k|."""
        largest = scale
        for e in r:
            largest = call(OPERATIONS["maximum"], largest, absolute(e))
        return cls(tuple(whole(_quotient(e, largest)) for e in r), whole(_quotient(scale, largest)))

    @property
    def q(self) -> Expr:
        """The sum of the squares of the b_k: from 0 to their number."""
        return add(*(power(b, 2) for b in self.b))

    @property
    def g(self) -> Expr:
        """sqrt(k^2 + q) = k sqrt(1 + z)."""
        return sqrt(add(power(self.k, 2), self.q))

    @property
    def length(self) -> Expr:
        """|r| / M = k sqrt(z)."""
        return sqrt(self.q)

    @property
    def inside(self) -> Expr:
        """1 where |r| <= s, and so z = q <= 1."""
        return less_equal(self.length, self.k)

    @property
    def larger(self) -> Expr:
        """max(s, |r|) / M: 1 for a number, up to sqrt(n) for a vector."""
        return ONE if len(self.b) == 1 else call(OPERATIONS["maximum"], self.k, self.length)


@final
@dataclass(frozen=True, slots=True)
class Loss:
    """A robust loss.

    Attributes:
        root: ``sqrt(rho(z) / q)``, finite and exact down to z = 0. With it, the vector ``root k r`` has the direction
            of r, and the sum of its squares is ``s^2 rho(z)``.
        slope: ``rho'(z)``, which is 1 at 0.
    """

    root: Callable[[Norm], Expr]
    slope: Callable[[Norm], Expr]


def _quotient(a: Expr, b: Expr) -> Expr:
    return mul(a, power(b, -1))


def _huber_root(n: Norm) -> Expr:
    # 2 sqrt(z) - 1 = (2 length - k) / k
    outside = sqrt(_quotient(linear(0, [(2, n.length), (-1, n.k)]), mul(n.k, n.q)))
    return where(n.inside, ONE, outside)


def _cauchy_root(n: Norm) -> Expr:
    # Near 0, where z = q, not from the logarithm of the rounded 1 + z: log(1 + z) = 2 atanh(y) with y = z / (2 + z).
    near = less_equal(n.q, const(Fraction(1, 4)))  # |y| <= 1/9
    y_squared = power(_quotient(n.q, linear(2, [(1, n.q)])), 2)
    series: Expr = const(Fraction(1, 17))  # of atanh(y) / y; what is left out is below 1e-17 / (1 - y^2)
    for degree in range(15, 0, -2):
        series = linear(Fraction(1, degree), [(1, mul(y_squared, series))])
    far = sqrt(_quotient(linear(0, [(2, call(OPERATIONS["log"], _quotient(n.g, n.k)))]), n.q))
    return where(near, sqrt(_quotient(linear(0, [(2, series)]), linear(2, [(1, n.q)]))), far)


def _arctan_root(n: Norm) -> Expr:
    # z^2 / 3 is below the precision of doubles near 0, where rho / q would be 0 / 0.
    near = less_equal(n.q, const(1e-8))
    return where(near, ONE, sqrt(_quotient(call(OPERATIONS["atan"], _quotient(n.q, power(n.k, 2))), n.q)))


def _tukey_root(n: Norm) -> Expr:
    inside = sqrt(linear(1, [(-1, n.q), (_THIRD, power(n.q, 2))]))
    return where(n.inside, inside, power(linear(0, [(3, n.q)]), -_HALF))


LOSSES: Final[dict[str, Loss]] = {
    "linear": Loss(root=lambda n: power(n.k, -1), slope=lambda n: ONE),  # z
    # z up to 1, then 2 sqrt(z) - 1
    "huber": Loss(root=_huber_root, slope=lambda n: _quotient(n.k, n.larger)),
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
        root=_arctan_root,
        slope=lambda n: _quotient(power(n.k, 4), add(power(n.k, 4), power(n.q, 2))),
    ),
    # (1 - (1 - z)^3) / 3 up to 1, then 1/3
    "tukey": Loss(
        root=_tukey_root,
        slope=lambda n: where(n.inside, power(linear(1, [(-1, n.q)]), 2), ZERO),
    ),
    # z / (1 + z)
    "geman_mcclure": Loss(root=lambda n: power(n.g, -1), slope=lambda n: power(_quotient(n.k, n.g), 4)),
}


def summed(loss: str, scale: Expr, r: Sequence[Expr]) -> tuple[Expr, ...]:
    """Components whose squares the cost sums: ``s sqrt(rho(z)) r / |r|``, 0 where r is 0; not finite where s^2 is 0."""
    if loss == "linear":
        shrunk = tuple(r)  # whatever the scale is
    else:
        n = Norm.of(scale, r)
        root = LOSSES[loss].root(n)
        shrunk = tuple(mul(whole(mul(n.k, whole(e))), root) for e in r)
    # Infinite where the square of the scale is 0: for the bounded losses it would hide all residuals.
    square = whole(power(scale, 2)) if not isinstance(scale, Const) else ONE
    factor = add(ONE, mul(equal(square, ZERO), power(square, -1)))
    return tuple(mul(factor, e) for e in shrunk)


def linearised(loss: str, scale: Expr, r: Sequence[Expr]) -> tuple[Expr, ...]:
    """The residual to differentiate: ``sqrt(rho'(z)) r``, its weight held constant."""
    weight = sqrt(stop_gradient(LOSSES[loss].slope(Norm.of(scale, r))))
    return tuple(mul(weight, e) for e in r)
