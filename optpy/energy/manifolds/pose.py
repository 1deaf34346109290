"""Rigid motions, of the plane and of space alike: a rotation and a translation."""

from __future__ import annotations

from typing import Generic, Self, TypeVar

from optpy.energy.language.expression import Expression
from optpy.energy.language.functions import matrix
from optpy.energy.language.manifold import Element, zeros
from optpy.energy.manifolds.so2 import SO2
from optpy.energy.manifolds.so3 import SO3

_Rotation = TypeVar("_Rotation", SO2, SO3)


class Pose(Element, Generic[_Rotation]):
    """A pose in a formula: ``x -> R x + t``."""

    # x -> R (x + before) + after: on two sides, so that the inverse costs nothing, and in A^-1 B the translations meet
    # in the middle before they are rotated.
    __slots__ = ("_after", "_before", "_rotation")
    _rotation: _Rotation
    _before: Expression
    _after: Expression

    @classmethod
    def _of(cls, rotation: _Rotation, before: Expression, after: Expression) -> Self:
        element = cls.__new__(cls)
        element._rotation, element._before, element._after = rotation, before, after
        return element

    def inverse(self) -> Self:
        """The inverse pose: ``x -> R^T (x - t)``."""
        return self._of(self._rotation.inverse(), -self._after, -self._before)

    @property
    def rotation(self) -> _Rotation:
        """R"""
        return self._rotation

    @property
    def translation(self) -> Expression:
        """t, (n,): where the origin goes."""
        return self._act(zeros(self.size))

    def matrix(self) -> Expression:
        """(n + 1, n + 1), homogeneous, of a pose in n dims."""
        r: Expression = self._rotation.matrix()
        t: Expression = self.translation
        return matrix([*([*r[k], t[k]] for k in range(self.size)), [*[0] * self.size, 1]])

    def _compose(self, other: Self) -> Self:
        return self._of(self._rotation._compose(other._rotation), other._before, self._act(other._after))

    def _act(self, v: Expression) -> Expression:
        return self._rotation._act(v + self._before) + self._after
