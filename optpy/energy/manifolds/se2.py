"""Rigid motions of the plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from numpy.typing import NDArray

from optpy import ir
from optpy.energy.language.expression import Expression, Operand
from optpy.energy.language.functions import sin, vector, where
from optpy.energy.language.manifold import Floats, Manifold, vector_of, zeros
from optpy.energy.language.rotations import sine_series
from optpy.energy.manifolds import so2
from optpy.energy.manifolds.pose import Pose
from optpy.energy.manifolds.quaternions import half_cotangent
from optpy.energy.manifolds.so2 import SO2
from optpy.energy.manifolds.stored import (
    check_last_rows,
    check_rotations,
    homogeneous,
    plane_matrices_of,
    plane_rotations_of,
    unit,
)


@final
class SE2(Pose[SO2]):
    """A pose in the plane, ``x -> R x + t``, in a formula; in a declaration: the group of all of them.

    ``T = op.Unknown("T", (V,), op.SE2)`` is read as ``T[v]``; ``op.SE2(R, t)`` makes one from expressions. A solve
    moves an unknown pose by delta = (angle, x, y): the angle is added to that of R, in radians, (x, y) to t.
    Derivatives are taken with respect to these three numbers. In the data and the results an unknown or an array of
    poses is (*dims, 4): the cosine and the sine of the angle, then t; or (*dims, 3, 3): homogeneous matrices.

    Args:
        rotation: an ``op.SO2``, or its cosine and sine (2,).
        translation: t, (2,).
    """

    __slots__ = ()
    manifold: ClassVar[Manifold]
    size = 2

    def __init__(self, rotation: SO2 | Operand, translation: Operand) -> None:
        self._rotation = rotation if isinstance(rotation, SO2) else SO2(rotation)
        self._before, self._after = zeros(2), vector_of("op.SE2: translation", translation, 2)

    @classmethod
    def exp(cls, xi: Operand) -> SE2:
        """The pose of a twist (angle, x, y): reached by moving at that constant velocity for one unit of time."""
        e = vector_of("op.SE2.exp: xi", xi, 3)
        angle, v = e[0], e[1:]
        squared = angle * angle
        near = squared < 0.25
        half = sin(angle / 2)
        along = where(near, sine_series(squared, 1), sin(angle) / angle)
        across = where(near, angle * sine_series(squared, 2), 2 * half * half / angle)
        t = vector(along * v[0] - across * v[1], across * v[0] + along * v[1])
        return cls._of(SO2.exp(angle), zeros(2), t)

    def log(self) -> Expression:
        """The twist (angle, x, y), the angle in (-pi, pi]: the inverse of ``exp``."""
        angle, t = self._rotation.log(), self.translation
        a, b = half_cotangent(angle), angle / 2
        return vector(angle, a * t[0] + b * t[1], a * t[1] - b * t[0])


@final
@dataclass(frozen=True)
class _SE2Manifold(Manifold):
    matrix_size = 3
    translation = 2
    layout = "(cosine, sine, x, y)"

    def read(self, stored: Expression, delta: Expression) -> SE2:
        return SE2._of(SO2._of(stored[:2], delta[0]), zeros(2), stored[2:] + delta[1:])

    def retract(self, stored: Expression, delta: Expression) -> Expression:
        return vector(*so2.turned(stored[:2], delta[0]), *(stored[2:] + delta[1:]))

    def checked(self, field: ir.Field, array: Floats, precision: float, xp: Any) -> Floats:
        return unit(field, array, precision, xp, "(cosine, sine) =", slice(2))

    def from_matrices(self, field: ir.Field, matrices: Floats, xp: Any) -> Floats:
        check_last_rows(field, matrices, xp)
        check_rotations(field, matrices[..., :2, :2], xp)
        found: Floats = xp.concatenate([plane_rotations_of(matrices[..., :2, :2], xp), matrices[..., :2, 2]], axis=-1)
        return found

    def to_matrices(self, array: NDArray[Any], xp: Any) -> NDArray[Any]:
        return homogeneous(plane_matrices_of(array[..., :2], xp), array[..., 2:], xp)


SE2.manifold = _SE2Manifold("SE2", 4, 3)
