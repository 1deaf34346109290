"""Arithmetic of the loop IR: what a processor computes, in its order. No energy has these operations.

Passes turn the canonical sums, products and powers of an energy into calls of these, first in an order that stays
(``kernels/codegen/passes/in_order``), in the end each with one spelling: numbers by signed sums, ``TIMES``, ``OVER``,
``ROOT`` and functions; flags, which are integers, by comparisons, ``ALL`` and ``not``. They are nodes as all others:
equal ones are the same object, so that what is computed in two places is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from math import prod
from typing import Any, Final, TypeGuard

import numpy as np

from optpy.symbolic.elements import moved_inside
from optpy.symbolic.nodes import Call, Const, Expr, Operation, const, make_call
from optpy.symbolic.number import Number


def _no_partials(*_: Expr) -> tuple[Expr, ...]:
    raise TypeError("nothing is differentiated once it is lowered to loops")


def _operation(name: str, evaluate: Callable[..., Any], boolean: bool = False) -> Operation:
    return Operation(name, 0, evaluate, _no_partials, (), boolean=boolean)


def _flag(condition: Any) -> Any:
    return np.where(condition, 1.0, 0.0)[()]


TIMES: Final = _operation("times", lambda *x: prod(x))
"""The product of its arguments, from left to right."""

OVER: Final = _operation("over", np.true_divide)
"""The quotient of two numbers."""

ROOT: Final = _operation("sqrt", np.sqrt)
"""The square root."""

POWER: Final = _operation("power", np.power)
"""A number to a constant power; passes expand it."""

SELECT: Final = _operation("select", lambda flag, x: np.where(flag != 0, x, 0.0)[()])
"""A number where a flag holds, else 0: no product, as the number may be infinite or NaN where it does not."""

ALL: Final = _operation("all", lambda *flags: prod(flags), boolean=True)
"""Whether all flags hold."""

NUMBER: Final = _operation("number", lambda x: x)
"""A flag, a whole number or a number of another precision as a number of the kernel's."""

NONZERO: Final = _operation("nonzero", lambda x: _flag(x != 0), boolean=True)
"""A byte of memory as a flag."""

CLAMPED: Final = _operation("clamped", moved_inside)
"""The whole number in 0 ... n - 1 that is nearest to a number; 0 for NaN: what an index of memory may be made of."""

PLACE: Final = _operation("place", lambda row, length, column: row * length + column)
"""The number of a point in C order, from that of its row, in whole numbers."""

READ: Final = _operation("read", lambda plane, place, stride: plane[np.int64(place)])
"""The number of a plane at a place, its neighbours so many numbers apart."""

WHOLE_VALUED: Final = (CLAMPED, PLACE)
"""Operations whose values are integers."""

WHOLE_COMPARISONS: Final = {
    "less": _operation("whole_less", lambda a, b: _flag(a < b), boolean=True),
    "less_equal": _operation("whole_less_equal", lambda a, b: _flag(a <= b), boolean=True),
    "equal": _operation("whole_equal", lambda a, b: _flag(a == b), boolean=True),
}
"""Comparisons of whole numbers as such, by those of numbers."""

ALWAYS: Final = _operation("always", lambda x: _flag(x == x), boolean=True)
NEVER: Final = _operation("never", lambda x: _flag(x != x), boolean=True)
"""The outcomes of comparisons of a whole number that its value does not decide."""


@cache
def _signed_sum(signs: str) -> Operation:
    def evaluate(*terms: Any) -> Any:
        total: Any = 0.0
        for sign, term in zip(signs, terms, strict=True):
            total = total + term if sign == "+" else total - term
        return total

    return _operation(f"sum{signs}", evaluate)


def signed_sum(terms: Sequence[tuple[str, Expr]]) -> Expr:
    """The sum of terms with signs, "+" or "-", from left to right."""
    if len(terms) == 1 and terms[0][0] == "+":
        return terms[0][1]
    return make_call(_signed_sum("".join(sign for sign, _ in terms)), (e for _, e in terms))


def signs_of(operation: Operation) -> str | None:
    """The signs of a sum's terms; None of other operations."""
    return operation.name.removeprefix("sum") if operation.name.startswith("sum") else None


def times(factors: Iterable[Expr]) -> Expr:
    """The product of one number or more."""
    factors = tuple(factors)
    return factors[0] if len(factors) == 1 else make_call(TIMES, factors)


def over(numerator: Expr, denominator: Expr) -> Expr:
    """The quotient."""
    return make_call(OVER, (numerator, denominator))


def raised(base: Expr, exponent: Number) -> Expr:
    """A number to a constant power that is still to be expanded."""
    return base if exponent == 1 else make_call(POWER, (base, const(exponent)))


def power_of(e: Expr) -> tuple[Expr, Number]:
    """(base, exponent) of a number."""
    if is_call(e, POWER) and isinstance(e.args[1], Const):
        return e.args[0], e.args[1].value
    return e, 1


def with_args(node: Expr, args: tuple[Expr, ...]) -> Expr:
    """A lowered node with other arguments."""
    return node if args == node.children or not isinstance(node, Call) else make_call(node.op, args)


def is_call(e: Expr, operation: Operation) -> TypeGuard[Call]:
    """Whether a node is a call of an operation."""
    return isinstance(e, Call) and e.op is operation
