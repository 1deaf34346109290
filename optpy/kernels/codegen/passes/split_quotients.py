"""A quotient of high powers as a product of quotients of low ones.

Products collect powers: derivatives of ``(x / z)**4`` are multiples of ``x**4 / z**5``, of which each half leaves the
range of float32 at ``|z| = 10**8``, where the quotient, and the residual as it was written, are far inside. In
``(x**2 / z**2) * (x / z**2) * (x / z)`` nothing does before ``10**19``. Compilers that may reorder products keep the
quotients apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Final, TypeAlias

from optpy.ir import loops
from optpy.ir.loops.arithmetic import TIMES, is_call, power_of, raised, times, with_args
from optpy.symbolic.expr import Expr, Number

Powers: TypeAlias = tuple[tuple[Expr, Number], ...]
"""The product of base ** exponent; no exponent is 0."""

_DEGREE: Final = 2
"""Of the denominator of one quotient. Below, more quotients would cost more than the range that they add is worth."""

_LARGEST: Final = 64
"""Larger exponents are left to ``pow``."""


def split_quotients(function: loops.Function) -> loops.Function:
    """Split the powers of each product that has high ones below."""
    return loops.map_values(function, _rule)


def _rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
    if not is_call(node, TIMES):
        return with_args(node, children)
    parts = split_quotient(tuple(map(power_of, children)))
    if len(parts) == 1 and parts[0][1] == 1:
        return with_args(node, children)
    return times(raised(times(raised(b, x) for b, x in part), n) for part, n in parts)


def split_quotient(powers: Powers) -> list[tuple[Powers, int]]:
    """Quotients, each with how often it occurs, whose product is that of the powers.

    Numerators and denominators are dealt out evenly; each quotient has at least one numerator.
    """
    over = [(b, x) for base, exponent in powers if exponent > 0 for b, x in _units(base, exponent)]
    under = [(b, -x) for base, exponent in powers if exponent < 0 for b, x in _units(base, -exponent)]
    parts = min(-(-len(under) // _DEGREE), len(over))
    if parts <= 1:
        return [(powers, 1)]
    ends = [-(-len(under) * k // parts) for k in range(parts + 1)]
    dealt = [over[k::parts] + under[ends[k] : ends[k + 1]] for k in range(parts)]
    return list(Counter(map(_collected, dealt)).items())


def _units(base: Expr, exponent: Number) -> Iterator[tuple[Expr, Number]]:
    """A power as a product of its base, over and over, and perhaps its root."""
    whole, rest = divmod(exponent, 1)
    if exponent > _LARGEST or rest not in (0, Fraction(1, 2)):
        yield base, exponent
        return
    yield from [(base, 1)] * int(whole)
    if rest:
        yield base, Fraction(1, 2)


def _collected(units: list[tuple[Expr, Number]]) -> Powers:
    exponents: dict[Expr, Number] = {}
    for base, x in units:
        exponents[base] = exponents.get(base, 0) + x
    return tuple(exponents.items())
