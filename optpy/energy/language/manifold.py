"""Manifolds, and their elements in formulas: stored, read, moved and checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from optpy import ir
from optpy.energy.language.expression import Expression, as_expression
from optpy.energy.language.refusal import Refusal, Symbol, missing_attribute
from optpy.errors import EnergyError, InternalError, Location

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Manifold(ir.ManifoldShape, ABC):
    """A manifold that unknowns and arrays may live on."""

    matrix_size: ClassVar[int | None] = None
    """Elements may be given as matrices of this size, too."""
    translation: ClassVar[int] = 0
    """So many channels at the end, and coordinates of the tangent, are a translation."""
    scipy: ClassVar[bool] = False
    """Elements may be given as SciPy's ``Rotation``, too."""
    layout: ClassVar[str]
    """A description of the stored channels, for messages."""

    @abstractmethod
    def read(self, stored: Expression, delta: Expression) -> Any:
        """The value of an element in formulas: its retraction by delta, to first order.

        Args:
            stored: (channels,), its value.
            delta: (dimension,), in the tangent space at that value; its own value is 0.
        """

    @abstractmethod
    def retract(self, stored: Expression, delta: Expression) -> Expression:
        """The element moved by delta: (channels,), exactly ``stored`` where delta is 0."""

    @abstractmethod
    def checked(self, field: ir.Field, array: Floats, precision: float, xp: Any) -> Floats:
        """Data of shape (*grid, channels), an array of ``xp``, normalised where it is further off than ``precision``.

        Raises:
            DataError: an element is no element of the manifold, by more than the tolerance.
        """

    def magnitudes(self, stored: Any, xp: Any) -> Any:
        """The magnitudes of elements along each coordinate of the tangent space: (*grid, dimension), 1 along turns."""
        found = xp.ones((*stored.shape[:-1], self.dimension))
        if self.translation:
            found[..., -self.translation :] = xp.abs(stored[..., -self.translation :])
        return found

    def from_matrices(self, field: ir.Field, matrices: Floats, xp: Any) -> Floats:
        """Data of shape (*grid, n, n), an array of ``xp``, as it is stored.

        Raises:
            DataError: an element is no element of the manifold, by more than the tolerance.
        """
        raise InternalError(f"elements of {self} are no matrices")

    def to_matrices(self, array: NDArray[Any], xp: Any) -> NDArray[Any]:
        """Stored elements, an array of ``xp``, as matrices, (*grid, n, n)."""
        raise InternalError(f"elements of {self} are no matrices")


class Element(Symbol):
    """A rotation or a pose in a formula: no number, but it acts on vectors, and composes, by ``@``."""

    __slots__ = ()
    manifold: ClassVar[Manifold]
    size: ClassVar[int]
    """Of the vectors that it acts on."""
    _compose: Callable[[Any], Any]
    """This after another of the same kind."""
    _act: Callable[[Expression], Expression]
    """The image of a vector of ``size``."""

    def __matmul__(self, other: Any) -> Any:
        """The composition with an element of the same kind, or the vector that it takes a vector to."""
        if isinstance(other, Element):
            if type(other) is not type(self):
                raise EnergyError(f"@: {self} and {other} do not compose", Location.of_caller())
            return self._compose(other)
        v = as_expression(other)
        if v.shape != (self.size,):
            raise EnergyError(
                f"@: {self} acts on vectors of {self.size}, got shape {v.shape}; write .matrix() for products of "
                "matrices",
                Location.of_caller(),
            )
        return self._act(v)

    @property
    def number_message(self) -> str:
        """The message where it is used like a number."""
        return (
            f"{self} is no number and no vector: write x @ y for compositions, R @ v for what it does to a vector, "
            ".inverse(), .log() or .matrix()"
        )

    if not TYPE_CHECKING:  # or every attribute would have a type

        def __getattr__(self, name: str) -> NoReturn:
            own = [a for a in dir(type(self)) if not a.startswith("_") and a not in _NOT_OF_FORMULAS]
            attributes = tuple(f".{a}()" if callable(getattr(type(self), a)) else f".{a}" for a in own)
            instead = {k: v for k, v in _OF_OTHER_LIBRARIES.items() if v in attributes or "@" in v}
            raise missing_attribute(str(self), name, instead, attributes)

    _no_number = Refusal("{0.number_message}")
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _no_number
    __pow__ = __rpow__ = __neg__ = __abs__ = __rmatmul__ = __lt__ = __le__ = __gt__ = __ge__ = _no_number
    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __invert__ = __eq__ = __ne__ = _no_number
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __int__ = __float__ = __bool__ = _no_number
    __getitem__ = __array__ = __array_ufunc__ = __array_function__ = _no_number
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"an element of {type(self).__name__}"


_NOT_OF_FORMULAS: Final = ("exp", "manifold", "number_message", "size")
"""Attributes of elements that nobody writes in a formula: ``exp`` is called on the class."""

_OF_OTHER_LIBRARIES: Final = {
    "inv": ".inverse()", "T": ".inverse()", "H": ".inverse()", "conj": ".inverse()", "conjugate": ".inverse()",
    "R": ".rotation", "rot": ".rotation", "so3": ".rotation", "so2": ".rotation", "t": ".translation",
    "trans": ".translation", "A": ".matrix()", "as_matrix": ".matrix()", "to_matrix": ".matrix()",
    "as_rotvec": ".log()", "as_quat": ".quaternion", "q": ".quaternion", "apply": "R @ v", "act": "R @ v",
    "compose": "x @ y", "dot": "x @ y",
}  # fmt: skip


def as_manifold(value: object) -> Manifold | None:
    """The manifold that ``op.SO3`` or ``op.UnitVector(3)`` in a declaration means; None if it is something else."""
    if isinstance(value, Manifold):
        return value
    return value.manifold if isinstance(value, type) and issubclass(value, Element) else None


def zeros(n: int) -> Expression:
    """A vector of zeros."""
    return as_expression([0] * n)


def vector_of(what: str, value: Any, n: int) -> Expression:
    """The value as a vector of n.

    Raises:
        EnergyError: it is none.
    """
    e = as_expression(value)
    if e.shape != (n,):
        raise EnergyError(f"{what} must be a vector of {n}, got shape {e.shape}", Location.of_caller())
    return e
