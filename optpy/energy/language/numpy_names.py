"""NumPy's other names: second spellings, and what is written in a line with the functions there are.

None of these is an operation of its own: they need no row in the table of operations, and no spelling in C.
"""

from __future__ import annotations

import math

from optpy.energy.language.expression import Expression, Operand, as_expression, elementwise
from optpy.energy.language.functions import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    exp,
    floor,
    log,
    log1p,
    maximum,
    minimum,
    sign,
    sin,
    where,
)
from optpy.energy.language.other_names import enter_functions
from optpy.energy.language.rotations import sine_series
from optpy.symbolic.operations import modulo

# -- second spellings ----------------------------------------------------------------------------------------------

arcsin, arccos, arctan, arctan2 = asin, acos, atan, atan2
arcsinh, arccosh, arctanh = asinh, acosh, atanh
absolute = fabs = abs


def power(x: Operand, y: Operand) -> Expression:
    """``x**y``."""
    return as_expression(x) ** as_expression(y)


def square(x: Operand) -> Expression:
    """``x**2``."""
    return as_expression(x) ** 2


def reciprocal(x: Operand) -> Expression:
    """``1 / x``."""
    return 1 / as_expression(x)


def negative(x: Operand) -> Expression:
    """``-x``."""
    return -as_expression(x)


def positive(x: Operand) -> Expression:
    """``+x``, which is x."""
    return as_expression(x)


pow = power

# -- angles --------------------------------------------------------------------------------------------------------


def deg2rad(x: Operand) -> Expression:
    """Degrees as radians: ``x * pi / 180``."""
    return as_expression(x) * (math.pi / 180)


def rad2deg(x: Operand) -> Expression:
    """Radians as degrees: ``x * 180 / pi``."""
    return as_expression(x) * (180 / math.pi)


radians, degrees = deg2rad, rad2deg


def sinc(x: Operand) -> Expression:
    """``sin(pi x) / (pi x)``, and 1 at 0; a series near 0, so that value and derivatives are right there."""
    angle = math.pi * as_expression(x)
    squared = angle * angle
    return where(squared < 0.25, sine_series(squared, 1), sin(angle) / angle)


# -- exponentials and logarithms -----------------------------------------------------------------------------------


def exp2(x: Operand) -> Expression:
    """``2**x``."""
    return 2 ** as_expression(x)


def log2(x: Operand) -> Expression:
    """The logarithm to the base 2: ``log(x) / log(2)``."""
    return log(x) / math.log(2)


def log10(x: Operand) -> Expression:
    """The logarithm to the base 10: ``log(x) / log(10)``."""
    return log(x) / math.log(10)


def logaddexp(x: Operand, y: Operand) -> Expression:
    """``log(exp(x) + exp(y))`` without overflow on the way."""
    a, b = as_expression(x), as_expression(y)
    # Two arms, not the larger one plus log1p(exp(-|a - b|)): its derivative would be wrong where a and b are equal.
    return where(a > b, a + log1p(exp(b - a)), b + log1p(exp(a - b)))


# -- whole numbers, and what is left: their derivatives by x are 0 and 1 ---------------------------------------------


def ceil(x: Operand) -> Expression:
    """The smallest whole number that is not below x; its derivative is 0."""
    return -floor(-as_expression(x))


def trunc(x: Operand) -> Expression:
    """The whole part: x rounded towards 0; its derivative is 0."""
    return sign(x) * floor(abs(x))


def rint(x: Operand) -> Expression:
    """The nearest whole number, of two the even one; its derivative is 0."""
    below = floor(x)
    rest = as_expression(x) - below
    even = 2 * floor((below + 1) / 2)
    return where(rest == 0.5, even, where(rest > 0.5, below + 1, below))


round = rint


def mod(x: Operand, y: Operand) -> Expression:
    """``x % y = x - y * floor(x / y)``: what is left of x, with the sign of y; its derivative by x is 1. As in
    NumPy where abs(x / y) is below 1e7 in float32, or 1e15 in float64."""
    return elementwise("mod", modulo, x, y)


remainder = mod


def fmod(x: Operand, y: Operand) -> Expression:
    """``x - y * trunc(x / y)``: what is left of x, with the sign of x; its derivative by x is 1. As in
    NumPy where abs(x / y) is below 1e7 in float32, or 1e15 in float64."""
    a, b = as_expression(x), as_expression(y)
    return a - b * trunc(a / b)


# -- choices -------------------------------------------------------------------------------------------------------


def clip(x: Operand, a_min: Operand = None, a_max: Operand = None) -> Expression:
    """x, but no less than a_min and no more than a_max; its derivative is 0 beyond them. None: no limit."""
    inside = x if a_min is None else maximum(x, a_min)
    return as_expression(inside) if a_max is None else minimum(inside, a_max)


def fmin(x: Operand, y: Operand) -> Expression:
    """The smaller of the two; the other one where one is NaN."""
    a, b = as_expression(x), as_expression(y)
    return where((a <= b) | (b != b), a, b)


def fmax(x: Operand, y: Operand) -> Expression:
    """The larger of the two; the other one where one is NaN."""
    a, b = as_expression(x), as_expression(y)
    return where((a >= b) | (b != b), a, b)


def heaviside(x: Operand, at_zero: Operand) -> Expression:
    """0 where x is negative, 1 where it is positive, ``at_zero`` where it is 0; its derivative by x is 0."""
    e = as_expression(x)
    return where(e == 0, at_zero, (sign(e) + 1) / 2)


def copysign(x: Operand, y: Operand) -> Expression:
    """The magnitude of x with the sign of y; that of 0 is +."""
    e = as_expression(y)
    return where(e < 0, -abs(x), abs(x))


enter_functions(__name__, globals())
