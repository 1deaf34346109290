"""The table of operations: one row for each function, with its value, its partials, the domain on which
they are checked numerically, and its simplifications.

To add a function, add a row here and a spelling to the dialects of ``kernels``.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from optpy.symbolic.booleans import NOT
from optpy.symbolic.expr import (
    ONE,
    ZERO,
    Call,
    Const,
    Expr,
    Operation,
    Sum,
    Var,
    add,
    call,
    linear,
    logical_not,
    mul,
    negate,
    power,
    split_content,
)
from optpy.symbolic.nodes import OPERATIONS as OPERATIONS

_REAL = (-3.0, 3.0)
_POSITIVE = (0.05, 4.0)
_INSIDE = (-0.95, 0.95)

OPERATIONS["not"] = NOT


def _row(
    name: str,
    evaluate: Callable[..., Any],
    partials: Callable[..., tuple[Expr, ...]],
    *domain: tuple[float, float],
    smooth: bool = True,
    boolean: bool = False,
    cost: int = 20,
    total: bool = False,
    simplify: Callable[..., Expr | None] | None = None,
) -> None:
    OPERATIONS[name] = Operation(name, len(domain), evaluate, partials, domain, smooth, boolean, cost, total, simplify)


def _f(name: str, *args: Expr) -> Expr:
    return call(OPERATIONS[name], *args)


def _square(x: Expr) -> Expr:
    return power(x, 2)


def _no_slope(*args: Expr) -> tuple[Expr, ...]:
    return (ZERO,) * len(args)


def _compare(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: np.where(function(x, y), 1.0, 0.0)[()]


# -- simplifications -----------------------------------------------------------------------------------------


def _odd(name: str) -> Callable[..., Expr | None]:
    """f(-x) = -f(x): one node for both."""
    return lambda x: negate(_f(name, negate(x))) if _starts_negative(x) else None


def _even(name: str) -> Callable[..., Expr | None]:
    return lambda x: _f(name, negate(x)) if _starts_negative(x) else None


def _starts_negative(x: Expr) -> bool:
    return isinstance(x, Sum) and x.terms[0][0] < 0


def _simpler_abs(x: Expr) -> Expr | None:
    if x.boolean or (isinstance(x, Call) and x.op.name == "abs"):
        return x
    c, primitive = split_content(x)
    if primitive is x or isinstance(x, Const):
        return None
    return linear(0, [(c if c > 0 else -c, _f("abs", primitive))])


def _simpler_comparison(name: str) -> Callable[..., Expr | None]:
    def simplify(x: Expr, y: Expr) -> Expr | None:
        if name == "equal" and y.digest < x.digest:
            return _f("equal", y, x)
        # x <= x and x == x are not folded to 1: they are false for NaN.
        if x is y and (name == "less" or x.boolean):
            return ZERO if name == "less" else ONE
        for b, other in ((x, y), (y, x)):
            if b.boolean and isinstance(other, Const) and not isinstance(b, Const):
                at_zero, at_one = (_f(name, *(v if a is b else a for a in (x, y))) for v in (ZERO, ONE))
                return at_zero if at_zero is at_one else b if at_one is ONE else logical_not(b)
        return None

    return simplify


def _simpler_hypot(x: Expr, y: Expr) -> Expr | None:
    """Even in both, and the same with both exchanged: one node for all."""
    for zero, other in ((x, y), (y, x)):
        if zero is ZERO:
            return absolute(other)
    a, b = sorted((negate(e) if _starts_negative(e) else e for e in (x, y)), key=lambda e: e.digest)
    return None if (a, b) == (x, y) else _f("hypot", a, b)


def _simpler_power(x: Expr, y: Expr) -> Expr | None:
    return power(x, y.value) if isinstance(y, Const) else None


def _same(x: Expr, y: Expr) -> Expr | None:
    return x if x is y else None


def _simpler_stop(x: Expr) -> Expr | None:
    return x if x.boolean or isinstance(x, Const) or (isinstance(x, Call) and x.op.name == "stop_gradient") else None


def _simpler_whole(x: Expr) -> Expr | None:
    return x if x.boolean or isinstance(x, (Const, Var, Call)) else None


# -- the table -----------------------------------------------------------------------------------------------

_HALF = Fraction(1, 2)

_row("sin", np.sin, lambda x: (_f("cos", x),), _REAL, total=True, simplify=_odd("sin"))
_row("cos", np.cos, lambda x: (negate(_f("sin", x)),), _REAL, total=True, simplify=_even("cos"))
_row("tan", np.tan, lambda x: (linear(1, [(1, _square(_f("tan", x)))]),), (-1.4, 1.4), simplify=_odd("tan"))
_row(
    "asin",
    np.arcsin,
    lambda x: (power(linear(1, [(-1, _square(x))]), -_HALF),),
    _INSIDE,
    simplify=_odd("asin"),
)
_row("acos", np.arccos, lambda x: (negate(power(linear(1, [(-1, _square(x))]), -_HALF)),), _INSIDE)
_row(
    "atan",
    np.arctan,
    lambda x: (power(linear(1, [(1, _square(x))]), -1),),
    _REAL,
    total=True,
    simplify=_odd("atan"),
)
_row(
    "atan2",
    np.arctan2,
    lambda y, x: (
        mul(x, power(add(_square(x), _square(y)), -1)),
        negate(mul(y, power(add(_square(x), _square(y)), -1))),
    ),
    (0.2, 3.0),
    _REAL,
    total=True,
    cost=30,
)
_row("sinh", np.sinh, lambda x: (_f("cosh", x),), _REAL, simplify=_odd("sinh"))
_row("cosh", np.cosh, lambda x: (_f("sinh", x),), _REAL, simplify=_even("cosh"))
_row(
    "tanh",
    np.tanh,
    lambda x: (linear(1, [(-1, _square(_f("tanh", x)))]),),
    _REAL,
    total=True,
    simplify=_odd("tanh"),
)
_row(
    "asinh",
    np.arcsinh,
    lambda x: (power(linear(1, [(1, _square(x))]), -_HALF),),
    _REAL,
    total=True,
    simplify=_odd("asinh"),
)
# Two roots, not one of x^2 - 1: acosh is real for x >= 1 only, where both exist; one root of the difference
# would be real for x <= -1 too.
_row(
    "acosh",
    np.arccosh,
    lambda x: (mul(power(linear(-1, [(1, x)]), -_HALF), power(linear(1, [(1, x)]), -_HALF)),),
    (1.1, 5.0),
)
_row(
    "atanh",
    np.arctanh,
    lambda x: (power(linear(1, [(-1, _square(x))]), -1),),
    _INSIDE,
    simplify=_odd("atanh"),
)
_row("exp", np.exp, lambda x: (_f("exp", x),), _REAL)
_row("log", np.log, lambda x: (power(x, -1),), _POSITIVE)
_row("expm1", np.expm1, lambda x: (_f("exp", x),), _REAL)
_row("log1p", np.log1p, lambda x: (power(linear(1, [(1, x)]), -1),), (-0.9, 4.0))
# Infinite at 0, as the slope of the square root.
_row(
    "cbrt",
    np.cbrt,
    lambda x: (linear(0, [(Fraction(1, 3), power(_f("cbrt", x), -2))]),),
    _POSITIVE,
    total=True,
    simplify=_odd("cbrt"),
)
# NaN at (0, 0), where it has no slope, as that of the norm of a vector.
_row(
    "hypot",
    np.hypot,
    lambda x, y: (mul(x, power(_f("hypot", x, y), -1)), mul(y, power(_f("hypot", x, y), -1))),
    (0.2, 3.0),
    _REAL,
    total=True,
    simplify=_simpler_hypot,
)
# The guards give the limits where the formula is 0 * inf: x^0 is constant, and so is 0^y for y > 0.
_row(
    "pow",
    np.power,
    lambda x, y: (
        mul(logical_not(equal(y, ZERO)), y, _f("pow", x, linear(-1, [(1, y)]))),
        mul(logical_not(equal(x, ZERO)), _f("pow", x, y), _f("log", x)),
    ),
    _POSITIVE,
    _REAL,
    cost=40,
    simplify=_simpler_power,
)
_row("abs", np.abs, lambda x: (_f("sign", x),), _REAL, smooth=False, cost=1, total=True, simplify=_simpler_abs)
_row("sign", np.sign, _no_slope, _REAL, smooth=False, cost=2, total=True, simplify=_odd("sign"))
_row("floor", np.floor, _no_slope, _REAL, smooth=False, cost=1, total=True)
for _name, _choice, _partials in (
    ("minimum", np.minimum, lambda x, y: (less_equal(x, y), logical_not(less_equal(x, y)))),
    ("maximum", np.maximum, lambda x, y: (less_equal(y, x), logical_not(less_equal(y, x)))),
):
    _row(_name, _choice, _partials, _REAL, _REAL, smooth=False, total=True, cost=1, simplify=_same)
_row("stop_gradient", lambda x: x, _no_slope, _REAL, smooth=False, cost=0, total=True, simplify=_simpler_stop)
# One node for what would overflow if it were multiplied out.
_row("whole", lambda x: x, lambda x: (ONE,), _REAL, cost=0, total=True, simplify=_simpler_whole)
for _name, _function in (("less", np.less), ("less_equal", np.less_equal), ("equal", np.equal)):
    _row(
        _name,
        _compare(_function),
        _no_slope,
        _REAL,
        _REAL,
        smooth=False,
        boolean=True,
        cost=1,
        simplify=_simpler_comparison(_name),
    )


# -- spellings -----------------------------------------------------------------------------------------------


def less(x: Expr, y: Expr) -> Expr:
    """1 where x < y."""
    return _f("less", x, y)


def less_equal(x: Expr, y: Expr) -> Expr:
    """1 where x <= y."""
    return _f("less_equal", x, y)


def equal(x: Expr, y: Expr) -> Expr:
    """1 where x == y."""
    return _f("equal", x, y)


def sqrt(x: Expr) -> Expr:
    """The square root."""
    return power(x, _HALF)


def absolute(x: Expr) -> Expr:
    """The absolute value."""
    return _f("abs", x)


def modulo(x: Expr, y: Expr) -> Expr:
    """``x - y floor(x / y)``: what is left of x, with the sign of y."""
    return linear(0, [(1, x), (-1, mul(y, _f("floor", mul(x, power(y, -1)))))])


def whole(x: Expr) -> Expr:
    """x as one node."""
    return _f("whole", x)


def stop_gradient(x: Expr) -> Expr:
    """The value of x, taken as constant by every derivative."""
    return _f("stop_gradient", x)
