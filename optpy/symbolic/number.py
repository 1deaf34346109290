"""The numbers inside expressions: exact where they are whole or short fractions, else floats."""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import Any, Final

Number = int | Fraction | float
"""Every number has one form, chosen by its value (see ``normal``)."""

_EXACT: Final = 2**53
"""Whole numbers below it, and fractions of them, are kept exactly."""

_SHORT: Final = 4096
"""Binary fractions with denominators up to this are kept exactly; 0.1 and the like stay floats."""


def normal(value: Number) -> Number:
    """The one form of a number: ``int``, else a short ``Fraction``, else ``float``, however it came.

    Numbers that compare equal get the same form, so that equal expressions are the same node.

    Raises:
        ValueError: it is infinite or NaN (also as an overflow of folded constants).
        TypeError: it is no real number.
    """
    if type(value) is int and -_EXACT < value < _EXACT:  # by far the most frequent
        return value
    if type(value) is Fraction and _is_short(value):
        return value
    if type(value) is float:
        return _normal_float(_finite(value))
    number: Any = value  # NumPy's scalars too
    if isinstance(number, Integral):
        whole = int(number)
        return whole if abs(whole) < _EXACT else _finite(whole)
    if isinstance(number, Rational):
        n, d = int(number.numerator), int(number.denominator)
        if d == 1:
            return normal(n)
        if max(abs(n), d) >= _EXACT or d & (d - 1) == 0:
            return _normal_float(_finite(Fraction(n, d)))
        return Fraction(n, d)
    if not isinstance(number, Real):
        raise TypeError(f"{number!r} is not a real number")
    return _normal_float(_finite(number))


def _is_short(value: Fraction) -> bool:
    """Whether a fraction is its own normal form (but for some that are large)."""
    n, d = value.numerator, value.denominator
    if type(n) is not int or d == 1 or not -_EXACT < n < _EXACT:
        return False
    return d < _EXACT if d & (d - 1) else d <= _SHORT and -_EXACT < n * _SHORT < _EXACT


def _normal_float(value: float) -> Number:
    scaled = value * _SHORT
    if scaled.is_integer() and abs(scaled) < _EXACT:
        exact = Fraction(int(scaled), _SHORT)
        return exact.numerator if exact.denominator == 1 else exact
    return value


def nearest_float(value: Any) -> float:
    """The float nearest to a real number; infinite where it is too large for any."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _finite(value: Any) -> float:
    result = nearest_float(value)
    if not math.isfinite(result):
        raise ValueError(f"a constant is not finite: {result}")
    return result


_LARGEST_MULTIPLE = 2**12


def common_divisor(numbers: list[Number]) -> Number:
    """The greatest number that divides all evenly; among floats, 1 unless they differ by signs only.

    Where that would leave multiples above 4096, the first number: the series 1 - x/6 + ... of a sine is no multiple of
    15! - (15!/6) x + ..., powers of which would be too large for float32.
    """
    if any(type(x) is float for x in numbers):
        magnitudes: set[Number] = {x if x > 0 else -x for x in numbers}
        return magnitudes.pop() if len(magnitudes) == 1 else 1
    exact: list[Any] = list(numbers)  # whole numbers have a numerator and a denominator, too
    numerators = [x.numerator for x in exact]
    denominators = [x.denominator for x in exact]
    n, d = math.gcd(*numerators), math.lcm(*denominators)
    # x / (n / d), whole
    if any(abs(a) * (d // b) > _LARGEST_MULTIPLE * n for a, b in zip(numerators, denominators, strict=True)):
        return normal(numbers[0] if numbers[0] > 0 else -numbers[0])
    return normal(n if d == 1 else Fraction(n, d))


def divided(x: Number, by: Number) -> Number:
    """``x / by``, exact where both are."""
    if by == -1:
        return -x
    if type(x) is int and type(by) is int:
        quotient, rest = divmod(x, by)
        return normal(Fraction(x, by) if rest else quotient)
    numerator: Any = x
    return normal(numerator / by)


def number_power(value: Number, exponent: Number) -> Number:
    """``value ** exponent``.

    Raises:
        ZeroDivisionError: of 0 to a negative power.
        ValueError: it is not real, or not finite.
    """
    if exponent == 1:
        return value
    if value == 0 and exponent < 0:
        raise ZeroDivisionError("a constant expression divides by zero")
    if value < 0 and type(exponent) is not int:
        raise ValueError(f"({value}) ** {exponent} is not real")
    if type(exponent) is int and abs(exponent) <= 64 and type(value) is not float:
        return normal(Fraction(value) ** exponent)
    try:
        return normal(math.pow(value, exponent))
    except OverflowError:
        raise ValueError(f"a constant is not finite: {value} ** {exponent}") from None
