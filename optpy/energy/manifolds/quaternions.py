"""Unit quaternions (x, y, z, w), the scalar last, in formulas; and the functions of an angle that logarithms need."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import final

from ...ir import Access, Role
from ...symbolic.traverse import variables
from ..expression import Expression, as_expression
from ..functions import atan2, cos, cross, dot, matrix, sin, sqrt, vector, where
from ..rotations import sine_series


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
    """The rotation vector phi of a rotation, |phi| <= pi, and what the derivative of the logarithm needs.

    With s = |phi|^2, the inverse of the left Jacobian of SO(3) is ``1 - [phi]/2 + c(s) [phi]^2``, or
    ``g(s) - [phi]/2 + c(s) phi phi^T``, with ``g = sqrt(s)/2 cot(sqrt(s)/2)`` and ``c = (1 - g) / s``.

    Reference: J. Sola, J. Deray, D. Atchuthan, "A micro Lie theory for state estimation in robotics", 2018, eq. 146.
    """

    phi: Expression
    c: Expression
    g: Expression

    def inverse_left_jacobian(self, v: Expression) -> Expression:
        """``J_l(phi)^-1 v``"""
        return self.g * v - cross(self.phi, v) / 2 + (self.c * self.phi) * dot(self.phi, v)

    def moved(self, slope: Expression, left: Expression, right: Expression) -> Logarithm:
        """That of ``Exp(left) R Exp(right)``, to first order.

        ``d phi = J_l(phi)^-1 left + J_r(phi)^-1 right`` with ``J_r(phi) = J_l(-phi)``, so that phi . d phi is
        phi . (left + right).

        Args:
            slope: dc/ds.
            left, right: (3,), of value 0.
        """
        both = left + right
        along = dot(self.phi, both)
        phi = self.phi + self.g * both - cross(self.phi, left - right) / 2 + (self.c * self.phi) * along
        s = dot(self.phi, self.phi)
        return Logarithm(phi, self.c + slope * (2 * along), self.g - (self.c + s * slope) * (2 * along))


def logarithm(q: Expression, left: Expression, right: Expression) -> Logarithm:
    """Of ``Exp(left) R(q) Exp(right)``, for a unit quaternion q = (u, w); left and right, (3,), have the value 0.

    ``phi = 2 atan2(|u|, w) u / |u|`` with w >= 0: q and -q are the same rotation. Near 0 all functions are their Taylor
    series. Where the angle is pi phi jumps from one end to the other, and its derivatives are those of one side.
    """
    sign = where(q[3] < 0, -1, 1)
    u, w = sign * q[:3], sign * q[3]
    n2 = dot(q[:3], q[:3])
    n = sqrt(n2)
    k = where(n2 < 0.01, 2 * _polynomial(n2, _ASIN), 2 * atan2(n, w) / n)
    s = k * k * n2
    half = k * n / 2
    near = n2 < 0.0625
    c = where(near, _polynomial(s, COTANGENT), (1 - k * w / 2) / s)
    slope = where(near, _polynomial(s, _COTANGENT_SLOPE), -((w - half / n) / (8 * half * n) + c) / s)
    return Logarithm(k * u, c, k * w / 2).moved(slope, left, right)


def half_cotangent(angle: Expression) -> Expression:
    """``a/2 cot(a/2)`` for an angle in [-pi, pi]; 1 at 0, 0 at pi."""
    squared = angle * angle
    half = angle / 2
    return where(squared < 0.25, 1 - squared * _polynomial(squared, COTANGENT), half * cos(half) / sin(half))


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
        total = c + x * total
    return total


def _asin_coefficients(count: int) -> tuple[Fraction, ...]:
    """Of asin(x) / x in x^2."""
    found, binomial = [], Fraction(1)
    for n in range(count):
        found.append(binomial / (2 * n + 1))
        binomial *= Fraction(2 * n + 1, 2 * n + 2)
    return tuple(found)


_ASIN = _asin_coefficients(8)
"""To 1e-17 below x^2 = 0.01."""

COTANGENT = (
    Fraction(1, 12), Fraction(1, 720), Fraction(1, 30240), Fraction(1, 1209600), Fraction(1, 47900160),
    Fraction(691, 1307674368000), Fraction(1, 74724249600), Fraction(3617, 10670622842880000),
)  # fmt: skip
"""Of (1 - a/2 cot(a/2)) / a^2 in a^2: |B_2n| / (2n)!; to 1e-18 below a^2 = 0.26."""

_COTANGENT_SLOPE = tuple(n * c for n, c in enumerate(COTANGENT))[1:]
