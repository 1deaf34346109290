"""Rigid motions of space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from numpy.typing import NDArray

from optpy import ir
from optpy.energy.language.expression import Expression, Operand
from optpy.energy.language.functions import vector
from optpy.energy.language.manifold import Floats, Manifold, vector_of, zeros
from optpy.energy.manifolds import so3
from optpy.energy.manifolds.pose import Pose
from optpy.energy.manifolds.quaternions import left_jacobian
from optpy.energy.manifolds.so3 import SO3
from optpy.energy.manifolds.stored import (
    check_last_rows,
    check_rotations,
    homogeneous,
    matrices_of,
    quaternions_of,
    unit,
)


@final
class SE3(Pose[SO3]):
    """A pose in space, ``x -> R x + t``, in a formula; in a declaration: the group of all of them.

    ``T = op.Unknown("T", (V,), op.SE3)`` is read as ``T[v]``; ``op.SE3(R, t)`` makes one from expressions. A solve
    moves an unknown pose by delta = (omega, v), three numbers each: ``R <- Exp(omega) R`` as in ``op.SO3``, and
    ``t <- t + v``; so no step depends on where the origin lies. Derivatives are taken with respect to these six
    numbers. In the data and the results an unknown or an array of poses is (*dims, 7): the unit quaternion (x, y, z, w)
    of R, the scalar last, then t; or (*dims, 4, 4): homogeneous matrices.

    Args:
        rotation: an ``op.SO3``, or its quaternion (4,).
        translation: t, (3,).
    """

    __slots__ = ()
    manifold: ClassVar[Manifold]
    size = 3

    def __init__(self, rotation: SO3 | Operand, translation: Operand) -> None:
        self._rotation = rotation if isinstance(rotation, SO3) else SO3(rotation)
        self._before, self._after = zeros(3), vector_of("op.SE3: translation", translation, 3)

    @classmethod
    def exp(cls, xi: Operand) -> SE3:
        """The pose of a twist (6,), rotation first: reached by moving at that velocity for one unit of time."""
        e = vector_of("op.SE3.exp: xi", xi, 6)
        return cls._of(SO3.exp(e[:3]), zeros(3), left_jacobian(e[:3], e[3:]))

    def log(self) -> Expression:
        """The twist (6,), rotation first: the inverse of ``exp``. Derivatives are finite everywhere.

        The rotation is no longer than pi; at a turn by pi it jumps to its opposite.
        """
        rotation = self._rotation._logarithm()
        return vector(*rotation.vector, *rotation.inverse_left_jacobian(self.translation))


@final
@dataclass(frozen=True)
class _SE3Manifold(Manifold):
    matrix_size = 4
    translation = 3
    layout = "unit quaternions and translations (x, y, z, w, tx, ty, tz)"

    def read(self, stored: Expression, delta: Expression) -> SE3:
        return SE3._of(SO3._of(stored[:4], delta[:3], zeros(3)), zeros(3), stored[4:] + delta[3:])

    def retract(self, stored: Expression, delta: Expression) -> Expression:
        return vector(*so3.turned(stored[:4], delta[:3]), *(stored[4:] + delta[3:]))

    def checked(self, field: ir.Field, array: Floats, precision: float, xp: Any) -> Floats:
        return unit(field, array, precision, xp, "the quaternion", slice(4))

    def from_matrices(self, field: ir.Field, matrices: Floats, xp: Any) -> Floats:
        check_last_rows(field, matrices, xp)
        check_rotations(field, matrices[..., :3, :3], xp)
        found: Floats = xp.concatenate([quaternions_of(matrices[..., :3, :3], xp), matrices[..., :3, 3]], axis=-1)
        return found

    def to_matrices(self, array: NDArray[Any], xp: Any) -> NDArray[Any]:
        return homogeneous(matrices_of(array[..., :4], xp), array[..., 4:], xp)


SE3.manifold = _SE3Manifold("SE3", 7, 6)
