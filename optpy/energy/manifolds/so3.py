"""Rotations in space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from numpy.typing import NDArray

from optpy import ir
from optpy.energy.language.expression import Expression, Operand
from optpy.energy.language.functions import cross, dot, matrix, normalize, vector, where
from optpy.energy.language.manifold import Element, Floats, Manifold, vector_of, zeros
from optpy.energy.manifolds.quaternions import Logarithm, conjugate, exponential, logarithm, product, rotate
from optpy.energy.manifolds.stored import check_rotations, matrices_of, quaternions_of, unit


@final
class SO3(Element):
    """A rotation in space, in a formula; as the third argument of a declaration: the group of all of them.

    ``R = op.Unknown("R", (V,), op.SO3)`` is read as ``R[v]``; ``op.SO3(q)`` makes one from an expression. A solve moves
    an unknown rotation by ``R <- Exp(delta) R``: delta is a rotation vector in the fixed frame, in radians, and the
    three numbers with respect to which derivatives are taken. In the data and the results an unknown or an array of
    rotations is (*dims, 4): unit quaternions (x, y, z, w), the scalar last, as SciPy's ``Rotation.as_quat``; or
    (*dims, 3, 3): matrices.

    Args:
        q: (4,), a quaternion (x, y, z, w) of any length but 0; it is divided by its length.
    """

    # R = Exp(left) R(q) Exp(right), to first order in left and right, whose values are 0. On two sides, so that the
    # inverse costs nothing, and in A^-1 B the two steps meet in the middle before they are rotated.
    __slots__ = ("_left", "_q", "_right")
    manifold: ClassVar[Manifold]
    size = 3

    def __init__(self, q: Operand) -> None:
        self._q = normalize(vector_of("op.SO3: q", q, 4))
        self._left = self._right = zeros(3)

    @classmethod
    def _of(cls, q: Expression, left: Expression, right: Expression) -> SO3:
        element = cls.__new__(cls)
        element._q, element._left, element._right = q, left, right
        return element

    @classmethod
    def exp(cls, r: Operand) -> SO3:
        """The rotation by a rotation vector (3,): around the axis ``r / |r|`` by ``|r|`` radians; smooth at 0."""
        return cls._of(exponential(vector_of("op.SO3.exp: r", r, 3)), zeros(3), zeros(3))

    def log(self) -> Expression:
        """The rotation vector (3,), no longer than pi: the inverse of ``exp``. Derivatives are finite everywhere.

        At a turn by pi the vector jumps to its opposite.
        """
        return self._logarithm().vector

    def _logarithm(self) -> Logarithm:
        return logarithm(self._q, self._left, self._right)

    def inverse(self) -> SO3:
        """The inverse rotation; also written ``.T``."""
        return SO3._of(conjugate(self._q), -self._right, -self._left)

    @property
    def T(self) -> SO3:  # noqa: N802 (NumPy's name)
        """The inverse rotation."""
        return self.inverse()

    @property
    def quaternion(self) -> Expression:
        """(x, y, z, w); the opposite quaternion is the same rotation."""
        left, right = (vector(*e, 0) / 2 for e in (self._left, self._right))
        return self._q + product(left, self._q) + product(self._q, right)

    def matrix(self) -> Expression:
        """(3, 3)"""
        return matrix([self @ [1, 0, 0], self @ [0, 1, 0], self @ [0, 0, 1]]).T

    def _compose(self, other: SO3) -> SO3:
        left = self._left + rotate(self._q, self._right + other._left)
        return SO3._of(product(self._q, other._q), left, other._right)

    def _act(self, v: Expression) -> Expression:
        turned = rotate(self._q, v + cross(self._right, v))
        return turned + cross(self._left, turned)


def turned(q: Expression, delta: Expression) -> Expression:
    """``Exp(delta) q``, of unit length whatever the rounding; q itself where delta is 0."""
    return where(dot(delta, delta) == 0, q, normalize(product(exponential(delta), q)))


@final
@dataclass(frozen=True)
class _SO3Manifold(Manifold):
    matrix_size = 3
    scipy = True
    layout = "unit quaternions (x, y, z, w)"

    def read(self, stored: Expression, delta: Expression) -> SO3:
        return SO3._of(stored, delta, zeros(3))

    def retract(self, stored: Expression, delta: Expression) -> Expression:
        return turned(stored, delta)

    def checked(self, field: ir.Field, array: Floats, precision: float, xp: Any) -> Floats:
        return unit(field, array, precision, xp, "the quaternion")

    def from_matrices(self, field: ir.Field, matrices: Floats, xp: Any) -> Floats:
        check_rotations(field, matrices, xp)
        return quaternions_of(matrices, xp)

    def to_matrices(self, array: NDArray[Any], xp: Any) -> NDArray[Any]:
        return matrices_of(array, xp)


SO3.manifold = _SO3Manifold("SO3", 4, 3)
