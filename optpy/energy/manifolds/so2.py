"""Rotations in the plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from numpy.typing import NDArray

from optpy import ir
from optpy.energy.language.expression import Expression, Operand, as_expression
from optpy.energy.language.functions import atan2, cos, matrix, normalize, sin, vector, where
from optpy.energy.language.manifold import Element, Floats, Manifold, vector_of
from optpy.energy.manifolds.stored import check_rotations, plane_matrices_of, plane_rotations_of, unit


@final
class SO2(Element):
    """A rotation in the plane, in a formula; as the third argument of a declaration: the group of all of them.

    ``R = op.Unknown("R", (V,), op.SO2)`` is read as ``R[v]``; ``op.SO2(cs)`` makes one from an expression. A solve
    moves an unknown rotation by adding delta to its angle, in radians: the one number with respect to which derivatives
    are taken. In the data and the results an unknown or an array of rotations is (*dims, 2): the cosine and the sine of
    the angle, so that no angle ever wraps around; or (*dims, 2, 2): matrices.

    Args:
        cs: (2,), cosine and sine times any number above 0; it is divided by its length.
    """

    # R = R(cs) Exp(delta), to first order in delta, whose value is 0.
    __slots__ = ("_cs", "_delta")
    manifold: ClassVar[Manifold]
    size = 2

    def __init__(self, cs: Operand) -> None:
        self._cs = normalize(vector_of("op.SO2: cs", cs, 2))
        self._delta = as_expression(0)

    @classmethod
    def _of(cls, cs: Expression, delta: Expression) -> SO2:
        element = cls.__new__(cls)
        element._cs, element._delta = cs, delta
        return element

    @classmethod
    def exp(cls, angle: Operand) -> SO2:
        """The rotation by an angle in radians, counter-clockwise where x points right and y up."""
        return cls._of(vector(cos(angle), sin(angle)), as_expression(0))

    def log(self) -> Expression:
        """The angle in (-pi, pi]: the inverse of ``exp``."""
        return atan2(self._cs[1], self._cs[0]) + self._delta

    def inverse(self) -> SO2:
        """The inverse rotation; also written ``.T``."""
        return SO2._of(vector(self._cs[0], -self._cs[1]), -self._delta)

    @property
    def T(self) -> SO2:  # noqa: N802 (NumPy's name)
        """The inverse rotation."""
        return self.inverse()

    def matrix(self) -> Expression:
        """(2, 2)"""
        return matrix([self @ [1, 0], self @ [0, 1]]).T

    def _compose(self, other: SO2) -> SO2:
        return SO2._of(_times(self._cs, other._cs), self._delta + other._delta)

    def _act(self, v: Expression) -> Expression:
        x, y = _times(self._cs, v)
        return vector(x - self._delta * y, y + self._delta * x)


def _times(a: Expression, b: Expression) -> Expression:
    """The product of complex numbers."""
    return vector(a[0] * b[0] - a[1] * b[1], a[1] * b[0] + a[0] * b[1])


def turned(cs: Expression, delta: Expression) -> Expression:
    """Cosine and sine of the angle plus delta, of unit length whatever the rounding; cs itself where delta is 0."""
    return where(delta == 0, cs, normalize(_times(vector(cos(delta), sin(delta)), cs)))


@final
@dataclass(frozen=True)
class _SO2Manifold(Manifold):
    matrix_size = 2
    layout = "(cosine, sine)"

    def read(self, stored: Expression, delta: Expression) -> SO2:
        return SO2._of(stored, delta[0])

    def retract(self, stored: Expression, delta: Expression) -> Expression:
        return turned(stored, delta[0])

    def checked(self, field: ir.Field, array: Floats, precision: float, xp: Any) -> Floats:
        return unit(field, array, precision, xp, "(cosine, sine) =")

    def from_matrices(self, field: ir.Field, matrices: Floats, xp: Any) -> Floats:
        check_rotations(field, matrices, xp)
        return plane_rotations_of(matrices, xp)

    def to_matrices(self, array: NDArray[Any], xp: Any) -> NDArray[Any]:
        return plane_matrices_of(array, xp)


SO2.manifold = _SO2Manifold("SO2", 2, 1)
