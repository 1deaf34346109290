"""Rotations of vectors in two and three dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from optpy.energy.language.expression import Expression, Operand, as_expression
from optpy.energy.language.functions import cos, cross, dot, sin, sqrt, vector, where
from optpy.errors import EnergyError, Location


def rotate2d(angle: Operand, v: Operand) -> Expression:
    """Turn a vector of 2 by an angle: ``(c x - s y, s x + c y)``.

    Args:
        angle: scalar, in radians, counter-clockwise where x points right and y up.
        v: (2,).
    """
    a, u = _checked("rotate2d", ("angle", angle, ()), ("v", v, (2,)))
    c, s = cos(a), sin(a)
    return vector(c * u[0] - s * u[1], s * u[0] + c * u[1])


def rotate3d(euler_xyz: Operand, v: Operand) -> Expression:
    """Turn a vector of 3 by Euler angles: ``R v`` with ``R = Rz(c) Ry(b) Rx(a)``.

    First by a around the x axis, then by b around y, then by c around z, all fixed axes, as Opt's ``Rotate3D`` and as
    SciPy's ``Rotation.from_euler("xyz", [a, b, c])``.

    Args:
        euler_xyz: (3,), the angles (a, b, c) in radians.
        v: (3,).
    """
    angles, u = _checked("rotate3d", ("euler_xyz", euler_xyz, (3,)), ("v", v, (3,)))
    (ca, cb, cc), (sa, sb, sc) = cos(angles), sin(angles)
    # One axis after the other: what turns about the last ones is turned by as few operations in the derivatives, too.
    y, z = ca * u[1] - sa * u[2], sa * u[1] + ca * u[2]
    x, z = cb * u[0] + sb * z, cb * z - sb * u[0]
    return vector(cc * x - sc * y, sc * x + cc * y, z)


def rotate_axis_angle(r: Operand, v: Operand) -> Expression:
    """Turn a vector of 3 by a rotation vector: around the axis ``r / |r|`` by the angle ``|r|``.

    Rodrigues' formula, ``v + A (r x v) + B (r x (r x v))`` with ``A = sin(t)/t``, ``B = (1 - cos(t))/t^2``, t = |r|.
    For t < 1/2 A and B are their Taylor series in t^2 (to better than 1e-16), so that value and derivatives are smooth
    at r = 0. As SciPy's ``Rotation.from_rotvec(r)``.

    Args:
        r: (3,), in radians.
        v: (3,).
    """
    axis, u = _checked("rotate_axis_angle", ("r", r, (3,)), ("v", v, (3,)))
    squared = dot(axis, axis)
    near = squared < 0.25
    angle = sqrt(squared)
    half = sin(angle / 2) / angle  # B = 2 (sin(t/2) / t)^2 loses no digits, 1 - cos(t) does
    a = where(near, sine_series(squared, 1), sin(angle) / angle)
    b = where(near, sine_series(squared, 2), 2 * half * half)
    first = cross(axis, u)
    return u + a * first + b * cross(axis, first)


def sine_series(squared: Expression, first: int) -> Expression:
    """``sum_n (-squared)^n / (2n + first)!`` by Horner's rule: cos(x), sin(x)/x, (1 - cos(x))/x^2, ... of x^2."""
    total = as_expression(0)
    for n in reversed(range(7)):
        total = Fraction((-1) ** n, math.factorial(2 * n + first)) + squared * total
    return total


def rotate_quaternion(q: Operand, v: Operand) -> Expression:
    """Turn a vector of 3 by a quaternion of any length but 0: ``v + 2 (w (u x v) + u x (u x v)) / |q|^2``.

    The length of q does not matter (its derivative along q is 0), so q may be an unknown without a constraint.

    Args:
        q: (4,), (x, y, z, w) = (u, w) with the scalar last, as SciPy's ``Rotation.from_quat``.
        v: (3,).
    """
    quaternion, start = _checked("rotate_quaternion", ("q", q, (4,)), ("v", v, (3,)))
    u, w = quaternion[:3], quaternion[3]
    first = cross(u, start)
    return start + 2 / dot(quaternion, quaternion) * (w * first + cross(u, first))


def _checked(function: str, *arguments: tuple[str, Operand, tuple[int, ...]]) -> Sequence[Expression]:
    found = [as_expression(value) for _, value, _ in arguments]
    for (name, _, shape), e in zip(arguments, found, strict=True):
        if e.shape != shape:
            kinds = {0: "a scalar", 1: f"a vector of {shape[0] if shape else 0}"}
            raise EnergyError(
                f"op.{function}: {name} must be {kinds[len(shape)]}, got shape {e.shape}", Location.of_caller()
            )
    return found
