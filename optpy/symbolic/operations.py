"""The table of operations: one row for each function, with its value, its partials and the domain of its check."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import numpy as np

from .expr import (
    ONE,
    ZERO,
    Call,
    Const,
    Expr,
    Operation,
    _not_operation,
    add,
    call,
    const,
    linear,
    logical_not,
    make_call,
    mul,
    negate,
    power,
)

_REAL = (-3.0, 3.0)
_POSITIVE = (0.05, 4.0)
_INSIDE = (-0.95, 0.95)

OPERATIONS: Final[dict[str, Operation]] = {"not": _not_operation}


def _row(
    name: str,
    evaluate: Callable[..., Any],
    partials: Callable[..., tuple[Expr, ...]],
    *domain: tuple[float, float],
    smooth: bool = True,
    boolean: bool = False,
    cost: int = 20,
) -> None:
    OPERATIONS[name] = Operation(name, len(domain), evaluate, partials, domain, smooth, boolean, cost)


def _f(name: str, *args: Expr) -> Expr:
    return call(OPERATIONS[name], *args)


def _square(x: Expr) -> Expr:
    return power(x, 2)


def _compare(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: np.where(function(x, y), 1.0, 0.0)[()]


def _no_slope(*args: Expr) -> tuple[Expr, ...]:
    return (ZERO,) * len(args)


_HALF = Fraction(1, 2)

_row("sin", np.sin, lambda x: (_f("cos", x),), _REAL)
_row("cos", np.cos, lambda x: (negate(_f("sin", x)),), _REAL)
_row("tan", np.tan, lambda x: (add(ONE, _square(_f("tan", x))),), (-1.4, 1.4))
_row("asin", np.arcsin, lambda x: (power(linear(1, [(-1, _square(x))]), -_HALF),), _INSIDE)
_row("acos", np.arccos, lambda x: (negate(power(linear(1, [(-1, _square(x))]), -_HALF)),), _INSIDE)
_row("atan", np.arctan, lambda x: (power(linear(1, [(1, _square(x))]), -1),), _REAL)
_row(
    "atan2",
    np.arctan2,
    lambda y, x: (
        mul(x, power(add(_square(x), _square(y)), -1)),
        negate(mul(y, power(add(_square(x), _square(y)), -1))),
    ),
    (0.2, 3.0),
    _REAL,
    cost=30,
)
_row("sinh", np.sinh, lambda x: (_f("cosh", x),), _REAL)
_row("cosh", np.cosh, lambda x: (_f("sinh", x),), _REAL)
_row("tanh", np.tanh, lambda x: (linear(1, [(-1, _square(_f("tanh", x)))]),), _REAL)
_row("asinh", np.arcsinh, lambda x: (power(linear(1, [(1, _square(x))]), -_HALF),), _REAL)
# Two roots, not one of x^2 - 1: acosh is real for x >= 1 only, where both exist.
_row(
    "acosh",
    np.arccosh,
    lambda x: (mul(power(linear(-1, [(1, x)]), -_HALF), power(linear(1, [(1, x)]), -_HALF)),),
    (1.1, 5.0),
)
_row("atanh", np.arctanh, lambda x: (power(linear(1, [(-1, _square(x))]), -1),), _INSIDE)
_row("exp", np.exp, lambda x: (_f("exp", x),), _REAL)
_row("log", np.log, lambda x: (power(x, -1),), _POSITIVE)
_row(
    "pow",
    np.power,
    lambda x, y: (
        mul(y, _f("pow", x, linear(-1, [(1, y)]))),
        mul(_f("pow", x, y), _f("log", x)),
    ),
    _POSITIVE,
    _REAL,
    cost=40,
)
_row("abs", np.abs, lambda x: (_f("sign", x),), _REAL, smooth=False, cost=1)
_row("sign", np.sign, _no_slope, _REAL, smooth=False, cost=2)
_row("floor", np.floor, _no_slope, _REAL, smooth=False, cost=1)
_row(
    "minimum", np.minimum, lambda x, y: (less_equal(x, y), logical_not(less_equal(x, y))), _REAL, _REAL,
    smooth=False, cost=1,
)  # fmt: skip
_row(
    "maximum", np.maximum, lambda x, y: (less_equal(y, x), logical_not(less_equal(y, x))), _REAL, _REAL,
    smooth=False, cost=1,
)  # fmt: skip
_row("stop_gradient", lambda x: x, _no_slope, _REAL, smooth=False, cost=0)
_row("less", _compare(np.less), _no_slope, _REAL, _REAL, smooth=False, boolean=True, cost=1)
_row("less_equal", _compare(np.less_equal), _no_slope, _REAL, _REAL, smooth=False, boolean=True, cost=1)
_row("equal", _compare(np.equal), _no_slope, _REAL, _REAL, smooth=False, boolean=True, cost=1)


def less(x: Expr, y: Expr) -> Expr:
    return ZERO if x is y else _f("less", x, y)


def less_equal(x: Expr, y: Expr) -> Expr:
    # x <= x is not folded to 1: it is false for NaN.
    return _f("less_equal", x, y)


def equal(x: Expr, y: Expr) -> Expr:
    return _f("equal", *sorted((x, y), key=lambda e: e.digest))


def sqrt(x: Expr) -> Expr:
    return power(x, _HALF)


def absolute(x: Expr) -> Expr:
    if x.boolean or (isinstance(x, Call) and x.op is OPERATIONS["abs"]):
        return x
    return _f("abs", x)


def stop_gradient(x: Expr) -> Expr:
    """The value of x, taken as constant by every derivative."""
    return x if isinstance(x, Const) else make_call(OPERATIONS["stop_gradient"], (x,))
