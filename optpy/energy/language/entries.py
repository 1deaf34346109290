"""The entries of scalars, vectors and matrices, in C order: constants, broadcasting and products, by NumPy's rules."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from optpy.energy.language.index import describe
from optpy.errors import EnergyError, Location
from optpy.symbolic import expr as sym
from optpy.symbolic.expr import Expr
from optpy.symbolic.number import nearest_float

Shape = tuple[int, ...]

_SMALL = 2**31
"""Whole numbers below it need no check."""


def constant(value: object) -> Expr:
    """The node of a real number.

    Raises:
        EnergyError: it is none, or not finite.
    """
    if type(value) is int and -_SMALL < value < _SMALL:  # by far the most frequent
        return sym.const(value)
    if not isinstance(value, numbers.Real | np.bool_):
        raise EnergyError(f"{describe(value)} is no real number", Location.of_caller())
    number = value if isinstance(value, int | Fraction) else nearest_float(value)
    if not np.isfinite(nearest_float(number)):
        reason = "does not fit into float64" if isinstance(number, int | Fraction) else "is not finite"
        raise EnergyError(f"a constant in a formula is {describe(number)}, which {reason}", Location.of_caller())
    return sym.const(number)


def common_shape(what: str, shapes: Sequence[Shape]) -> Shape:
    """The shape that all broadcast to.

    Raises:
        EnergyError: there is none; ``what`` is the operation, for the message.
    """
    if all(s == shapes[0] for s in shapes):
        return shapes[0]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        texts = " and ".join(map(str, shapes))
        raise EnergyError(
            f"{what}: shapes {texts} do not fit together (the number of channels must be the same)",
            Location.of_caller(),
        ) from None


def broadcast(entries: tuple[Expr, ...], shape: Shape, to: Shape) -> tuple[Expr, ...]:
    """The entries of the shape ``to`` of what has entries of another one."""
    if shape == to:
        return entries
    if len(entries) == 1:
        return entries * int(np.prod(to))
    order: NDArray[np.intp] = np.arange(len(entries)).reshape(shape)
    return tuple(entries[n] for n in np.broadcast_to(order, to).ravel().tolist())


def product(a: tuple[Expr, ...], inner: int, b: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The entries of ``a @ b``, where a has ``inner`` columns and b as many rows."""
    n, m = len(a) // inner, len(b) // inner
    return tuple(
        sym.add(*(sym.mul(a[r * inner + k], b[k * m + c]) for k in range(inner))) for r in range(n) for c in range(m)
    )
