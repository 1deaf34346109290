"""Elements of arrays at computed places, and derivatives that are given rather than taken.

``element(a, y, x)`` is ``a[y, x]`` where y and x are whole numbers that are computed: ``floor(...)``. Each is moved
inside the array, NaN to its first element, so that nothing outside is ever read. It is piecewise constant, and its
derivative 0: what varies between elements are the weights by which an interpolation multiplies them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import numpy as np

from optpy.symbolic.expr import ZERO, Call, Expr, Operation, make_call

ELEMENT: Final = "element"
GIVEN_SLOPES: Final = "given_slopes"

_GATHER = 20
"""The cost of an element, in additions: processors bring neighbouring points' elements one by one. By reasoning, as
``EXPENSIVE``."""


def element(array: Expr, *index: Expr) -> Expr:
    """The element of an array at whole numbers, each moved inside the array.

    Args:
        array: a leaf whose value is a whole array.
        index: a number for each axis.
    """
    return make_call(_element(len(index)), (array, *index))


def is_element(e: Expr) -> bool:
    """Whether a node is an element of an array."""
    return isinstance(e, Call) and e.op.name == ELEMENT


@cache
def _element(axes: int) -> Operation:
    def no_slope(*args: Expr) -> tuple[Expr, ...]:
        return (ZERO,) * len(args)

    return Operation(ELEMENT, axes + 1, _evaluate, no_slope, (), smooth=False, cost=_GATHER, total=True)


def _evaluate(array: Any, *index: Any) -> Any:
    return array[tuple(moved_inside(i, n) for i, n in zip(index, np.shape(array), strict=True))]


def moved_inside(index: Any, size: int) -> Any:
    """The whole number in 0 ... size - 1 that is nearest to a number; 0 for NaN."""
    return np.rint(np.nan_to_num(np.clip(index, 0, size - 1), nan=0.0)).astype(np.int64)


def given_slopes(value: Expr, by: Iterable[tuple[Expr, Expr]]) -> Expr:
    """A value whose derivative is given.

    Args:
        value: of the expression.
        by: (x, the derivative by x) for each x that it depends on.
    """
    pairs = tuple(e for pair in by for e in pair)
    return make_call(_given_slopes(len(pairs) // 2), (value, *pairs))


@cache
def _given_slopes(count: int) -> Operation:
    def slopes(value: Expr, *pairs: Expr) -> tuple[Expr, ...]:
        return (ZERO, *(e for slope in pairs[1::2] for e in (slope, ZERO)))

    return Operation(GIVEN_SLOPES, 2 * count + 1, lambda value, *_: value, slopes, (), cost=0, total=True)
