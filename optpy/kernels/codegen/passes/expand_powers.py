"""Powers become products, roots, or calls of ``pow``."""

from __future__ import annotations

from fractions import Fraction

from optpy.ir import loops
from optpy.ir.loops.arithmetic import POWER, ROOT, is_call, power_of, times, with_args
from optpy.symbolic.expr import Expr, Number, const, make_call
from optpy.symbolic.operations import OPERATIONS

_LARGEST = 64
"""Larger exponents are left to ``pow``."""

_LARGEST_BESIDE_A_ROOT = 4


def expand_powers(function: loops.Function) -> loops.Function:
    """Whole powers by squaring, half ones as such a product times the root; of others, and of large ones, ``pow``."""
    return loops.map_values(function, _rule)


def _rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
    return _expanded(children[0], power_of(node)[1]) if is_call(node, POWER) else with_args(node, children)


def _expanded(base: Expr, exponent: Number) -> Expr:
    if isinstance(exponent, int) and exponent <= _LARGEST:
        return _by_squaring(base, exponent)
    if isinstance(exponent, Fraction) and exponent.denominator == 2 and exponent // 1 <= _LARGEST_BESIDE_A_ROOT:
        root = make_call(ROOT, (base,))
        return root if exponent < 1 else times((_by_squaring(base, int(exponent // 1)), root))
    return make_call(OPERATIONS["pow"], (base, const(exponent)))


def _by_squaring(base: Expr, exponent: int) -> Expr:
    if exponent == 1:
        return base
    half = _by_squaring(base, exponent // 2)
    return times((half, half, base) if exponent % 2 else (half, half))
