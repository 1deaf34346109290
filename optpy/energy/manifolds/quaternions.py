"""Unit quaternions (x, y, z, w), the scalar last, in formulas; and the functions of an angle that poses need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

from optpy.energy.language.expression import Expression, as_expression
from optpy.energy.language.functions import abs, atan2, cos, cross, dot, matrix, sin, sqrt, vector, where
from optpy.energy.language.rotations import sine_series
from optpy.ir import Access, Role
from optpy.symbolic.traverse import variables


def product(p: Expression, q: Expression) -> Expression:
    """Hamilton's product: the rotation by q, then by p."""
    u, a, v, b = p[:3], p[3], q[:3], q[3]
    return vector(*(a * v + b * u + cross(u, v)), a * b - dot(u, v))


def conjugate(q: Expression) -> Expression:
    """The inverse of a unit quaternion."""
    return vector(*-q[:3], q[3])


def rotate(q: Expression, v: Expression) -> Expression:
    """``R(q) v`` for a unit quaternion q = (u, w).

    A vector that is data is turned by ``v + 2 (w f + u x f)`` with f = u x v, in the fewest operations. One that is
    solved for by the matrix: its entries are the derivatives, and serve every vector that q turns.
    """
    if any(isinstance(e.key, Access) and e.key.field.role in _SOLVED_FOR for e in variables(v.components)):
        return rotation_matrix(q) @ v
    u, w = q[:3], q[3]
    f = cross(u, v)
    return v + 2 * (w * f + cross(u, f))


_SOLVED_FOR = (Role.UNKNOWN, Role.TANGENT)


def rotation_matrix(q: Expression) -> Expression:
    """(3, 3), of a unit quaternion."""
    x, y, z, w = q
    return matrix(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def exponential(r: Expression) -> Expression:
    """The quaternion of a rotation vector: ``(sin(t/2) r/t, cos(t/2))`` with t = |r|, smooth at 0."""
    squared = dot(r, r)
    near = squared < 0.25
    angle = sqrt(squared)
    scale = where(near, sine_series(squared / 4, 1) / 2, sin(angle / 2) / angle)
    return vector(*(scale * r), where(near, sine_series(squared / 4, 0), cos(angle / 2)))


@final
@dataclass(frozen=True, slots=True)
class Logarithm:
    """The rotation vector ``phi = k u``, |phi| <= pi, of a rotation by the quaternion (u, w).

    The inverse of the left Jacobian of SO(3) there is ``g - k/2 [u] + e u u^T``.

    Reference: J. Sola, J. Deray, D. Atchuthan, "A micro Lie theory for state estimation in robotics", 2018, eq. 146.
    """

    u: Expression
    k: Expression
    g: Expression
    e: Expression

    @property
    def vector(self) -> Expression:
        """phi"""
        return self.k * self.u

    def inverse_left_jacobian(self, v: Expression) -> Expression:
        """``J_l(phi)^-1 v``"""
        return self.g * v - (self.k / 2) * cross(self.u, v) + (self.e * dot(self.u, v)) * self.u


def logarithm(q: Expression, left: Expression, right: Expression) -> Logarithm:
    """Of ``Exp(left) R(q) Exp(right)``, to first order in left and right, (3,), whose values are 0.

    For a unit quaternion (u, w) with w >= 0 and n = |u|, the sine of half the angle: ``k = 2 atan2(n, w) / n``,
    ``g = k w / 2``, ``e = (1 - g) / n^2``. The opposite quaternion is the same rotation: k changes its sign. Near 0
    they are their Taylor series in n^2. The quaternion moves by ``du = (w (left + right) + (left - right) x u) / 2``;
    with ``b = u . (left + right)`` follow ``dk = e b``, ``dg = (e w - k/2) b / 2``, ``de = f b``: finite everywhere.
    Where the angle is pi phi jumps from one end to the other, and its derivatives are those of one side.
    """
    u, w = q[:3], q[3]
    sign = where(w < 0, -1, 1)
    n2 = dot(u, u)
    near = n2 < 0.01
    n = sqrt(n2)
    k = where(near, _polynomial(n2, _K), 2 * atan2(n, abs(w)) / n)
    g = k * abs(w) / 2
    e = where(near, _polynomial(n2, _E), (1 - g) / n2)
    f = sign * where(near, _polynomial(n2, _F), (k - 6 * e * abs(w)) / (4 * n2))
    k = sign * k
    both = left + right
    b = dot(u, both)
    du = (w * both + cross(left - right, u)) / 2
    return Logarithm(u + du, k + e * b, g + (e * w - k / 2) * b / 2, e + f * b)


def half_cotangent(angle: Expression) -> Expression:
    """``a/2 cot(a/2)`` for an angle in [-pi, pi]; 1 at 0, 0 at pi."""
    squared = angle * angle
    half = angle / 2
    return where(squared < 0.25, 1 - squared * _polynomial(squared, _COTANGENT), half * cos(half) / sin(half))


def left_jacobian(phi: Expression, v: Expression) -> Expression:
    """``J_l(phi) v = v + B phi x v + C phi x (phi x v)``, B = (1 - cos t)/t^2, C = (t - sin t)/t^3, t = |phi|."""
    squared = dot(phi, phi)
    near = squared < 0.25
    angle = sqrt(squared)
    half = sin(angle / 2) / angle  # (1 - cos(t)) / t^2 = 2 (sin(t/2) / t)^2 loses no digits
    b = where(near, sine_series(squared, 2), 2 * half * half)
    c = where(near, sine_series(squared, 3), (1 - sin(angle) / angle) / squared)
    first = cross(phi, v)
    return v + b * first + c * cross(phi, first)


def _polynomial(x: Expression, coefficients: tuple[Fraction, ...]) -> Expression:
    total = as_expression(0)
    for c in reversed(coefficients):
        total = float(c) + x * total  # not fractions: a common denominator of all would be multiplied back in
    return total


def _series_of_logarithm(count: int) -> tuple[tuple[Fraction, ...], ...]:
    """Of k, e and f in n^2: ``k = 2 asin(n) / n``, ``e = (1 - k w / 2) / n^2``, ``f = (k - 6 e w) / (4 n^2)``, where
    ``w = sqrt(1 - n^2)``."""
    asin, root = [Fraction(1)], [Fraction(1)]  # of asin(n) / n and of w
    for m in range(count + 2):
        asin.append(asin[m] * Fraction((2 * m + 1) ** 2, (2 * m + 2) * (2 * m + 3)))
        root.append(root[m] * Fraction(2 * m - 1, 2 * m + 2))
    k = [2 * c for c in asin]
    g = _multiplied(asin, root)
    e = [-c for c in g[1:]]
    f = [(a - 6 * b) / 4 for a, b in zip(k, _multiplied(e, root), strict=False)][1:]
    return tuple(tuple(series[:count]) for series in (k, e, f))


def _multiplied(a: Sequence[Fraction], b: Sequence[Fraction]) -> list[Fraction]:
    """The product of two power series, as far as both are known."""
    return [sum((a[m] * b[n - m] for m in range(n + 1)), Fraction(0)) for n in range(min(len(a), len(b)))]


_K, _E, _F = _series_of_logarithm(8)
"""To 1e-16 below n^2 = 0.01."""

_COTANGENT = (
    Fraction(1, 12), Fraction(1, 720), Fraction(1, 30240), Fraction(1, 1209600), Fraction(1, 47900160),
    Fraction(691, 1307674368000), Fraction(1, 74724249600), Fraction(3617, 10670622842880000),
)  # fmt: skip
"""Of (1 - a/2 cot(a/2)) / a^2 in a^2: |B_2n| / (2n)!; to 1e-18 below a^2 = 0.26."""
