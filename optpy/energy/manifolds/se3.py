"""Rigid motions of space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from numpy.typing import NDArray

from ... import ir
from ..expression import Expression, Operand
from ..functions import matrix, vector
from . import so3
from .kind import Element, Floats, Kind, vector_of, zeros
from .quaternions import left_jacobian
from .so3 import SO3
from .stored import check_last_rows, check_rotations, homogeneous, matrices_of, quaternions_of, unit


@final
class SE3(Element):
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

    # x -> R (x + before) + after: on two sides, so that the inverse costs nothing, and in A^-1 B the translations meet
    # in the middle before they are rotated.
    __slots__ = ("_after", "_before", "_rotation")
    kind: ClassVar[Kind]
    size = 3

    def __init__(self, rotation: SO3 | Operand, translation: Operand) -> None:
        self._rotation = rotation if isinstance(rotation, SO3) else SO3(rotation)
        self._before, self._after = zeros(3), vector_of("op.SE3: translation", translation, 3)

    @classmethod
    def _of(cls, rotation: SO3, before: Expression, after: Expression) -> SE3:
        element = cls.__new__(cls)
        element._rotation, element._before, element._after = rotation, before, after
        return element

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

    def inverse(self) -> SE3:
        """The inverse pose: ``x -> R^T (x - t)``."""
        return SE3._of(self._rotation.inverse(), -self._after, -self._before)

    @property
    def rotation(self) -> SO3:
        """R"""
        return self._rotation

    @property
    def translation(self) -> Expression:
        """t, (3,): where the origin goes."""
        return self._act(zeros(3))

    def matrix(self) -> Expression:
        """(4, 4), homogeneous."""
        r, t = self._rotation.matrix(), self.translation
        return matrix([*([*r[k], t[k]] for k in range(3)), [0, 0, 0, 1]])

    def _compose(self, other: SE3) -> SE3:
        after = self._act(other._after)
        return SE3._of(self._rotation._compose(other._rotation), other._before, after)

    def _act(self, v: Expression) -> Expression:
        return self._rotation._act(v + self._before) + self._after


@final
@dataclass(frozen=True)
class _Poses(Kind):
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
        return xp.concatenate([quaternions_of(matrices[..., :3, :3], xp), matrices[..., :3, 3]], axis=-1)

    def to_matrices(self, array: NDArray[Any], xp: Any) -> NDArray[Any]:
        return homogeneous(matrices_of(array[..., :4], xp), array[..., 4:], xp)


SE3.kind = _Poses("SE3", 7, 6)
