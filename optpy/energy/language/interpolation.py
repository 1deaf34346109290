"""Interpolation between the elements of an array: weights along each axis, and what stands beyond the array's ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, final

from optpy import ir
from optpy.symbolic.affine import Affine
from optpy.symbolic.elements import element
from optpy.symbolic.expr import ONE, ZERO, Expr, add, call, linear, logical_and, mul, subtract, var, where
from optpy.symbolic.number import Number
from optpy.symbolic.operations import OPERATIONS, absolute, less_equal, modulo

BOUNDARIES: Final = ("nearest", "constant", "mirror", "wrap")
"""Rules for places beyond the ends of an array: SciPy's names, but that its "wrap" is "grid-wrap"."""


@final
@dataclass(frozen=True, slots=True)
class Coordinate:
    """A place along an axis.

    Attributes:
        value: a number.
        whole: whether it is an index: nothing is interpolated along its axis.
    """

    value: Expr
    whole: bool


def interpolated(
    field: ir.Field, channel: int, coordinates: Sequence[Coordinate], method: str, boundary: str, beyond: Expr
) -> Expr:
    """The value of a channel at real coordinates.

    Args:
        field: of data.
        channel: of the field.
        coordinates: one for each axis.
        method: one of ``METHODS``.
        boundary: one of ``BOUNDARIES``.
        beyond: the value beyond the array, by the boundary "constant".
    """
    plane = var(ir.Plane(field, channel))
    sizes = [var(ir.IndexValue(Affine.of(d))) for d in field.dims]

    def read(index: tuple[Expr, ...]) -> Expr:
        if boundary != "constant":
            return element(plane, *(_INSIDE[boundary](k, n) for k, n in zip(index, sizes, strict=True)))
        bounds = (c for k, n in zip(index, sizes, strict=True) for c in _is_inside(k, n))
        return where(logical_and(*bounds), element(plane, *index), beyond)

    return _along(coordinates, (), METHODS[method], read)


def _along(
    coordinates: Sequence[Coordinate],
    index: tuple[Expr, ...],
    method: _Method,
    read: Callable[[tuple[Expr, ...]], Expr],
) -> Expr:
    """The value at coordinates along the axes that are left, given whole numbers along those before."""
    if not coordinates:
        return read(index)
    first, *rest = coordinates
    if first.whole:
        return _along(rest, (*index, first.value), method, read)
    whole = call(OPERATIONS["floor"], first.value)
    taps = [_along(rest, (*index, linear(d, [(1, whole)])), method, read) for d in method.offsets]
    return method.blend(taps, subtract(first.value, whole))


# -- weights -----------------------------------------------------------------------------------------------------------


class _Method:
    """Weights of the elements beside a place along an axis.

    Args:
        offsets: from the element before the place to those that are read.
        powers: of the fraction of the way to the next element, from the 0th on: each with the weights of the elements.
    """

    def __init__(self, offsets: Sequence[int], powers: Sequence[Sequence[Number]]) -> None:
        self.offsets = offsets
        self._powers = powers

    def blend(self, taps: Sequence[Expr], fraction: Expr) -> Expr:
        """The polynomial in the fraction, by Horner's rule."""
        value: Expr = ZERO
        for weights in reversed(self._powers):
            value = add(linear(0, zip(weights, taps, strict=True)), mul(fraction, value))
        return value


_HALF = Fraction(1, 2)

METHODS: Final[Mapping[str, _Method]] = {
    "linear": _Method((0, 1), ((1, 0), (-1, 1))),
    # R. Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981, a = -1/2: Catmull-Rom's spline.
    "cubic": _Method(
        (-1, 0, 1, 2),
        (
            (0, 1, 0, 0),
            (-_HALF, 0, _HALF, 0),
            (1, -5 * _HALF, 2, -_HALF),
            (-_HALF, 3 * _HALF, -3 * _HALF, _HALF),
        ),
    ),
}

# -- beyond the ends ---------------------------------------------------------------------------------------------------


def _is_inside(k: Expr, n: Expr) -> tuple[Expr, Expr]:
    return less_equal(ZERO, k), less_equal(k, linear(-1, [(1, n)]))


def _wrapped(k: Expr, n: Expr) -> Expr:
    return modulo(k, n)


def _mirrored(k: Expr, n: Expr) -> Expr:
    """0 1 2 1 0 1 2 ...: the distance from the last element, of the place within one wave."""
    last = linear(-1, [(1, n)])
    wave = modulo(k, call(OPERATIONS["maximum"], linear(0, [(2, last)]), ONE))  # of a single element it has no length
    return subtract(last, absolute(subtract(wave, last)))


_INSIDE: Final[Mapping[str, Callable[[Expr, Expr], Expr]]] = {
    "nearest": lambda k, n: k,  # what is outside is moved inside
    "mirror": _mirrored,
    "wrap": _wrapped,
}
