"""Building expressions: every operator returns the canonical form, simplified by rules that hold for every
real value.

Sums collect like terms, products collect powers, numbers are folded; a sum inside a product is made
primitive, so that ``b - a`` and ``2*a - 2*b`` are multiples of one node. Cancelling (``x * x**-1 = 1``,
``sqrt(x)**2 = x``) may extend an expression to points where it was undefined, as in SymPy; no rule makes it
undefined at a point where it was defined.

Booleans are 0/1 expressions and idempotent (``b * b = b``). A boolean factor *selects*: where it is 0 the
whole product is 0, whatever the other factors are, even infinite or NaN. So ``where(b, x, y)`` is
``b*x + ~b*y``, the polynomial rules hold for it, and the arm that is not taken never contributes, in value or
derivative.

The nodes themselves are in ``nodes``; their names are also found here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

from optpy.symbolic.booleans import conjunction, literals, logical_not
from optpy.symbolic.nodes import (
    ONE,
    OPERATIONS,
    ZERO,
    Call,
    Const,
    Expr,
    Key,
    Operation,
    Product,
    Sum,
    Var,
    const,
    make_call,
    make_product,
    make_sum,
    var,
)
from optpy.symbolic.number import Number, common_divisor, divided, normal, number_power

__all__ = [
    "ONE", "ZERO", "Call", "Const", "Expr", "Key", "Number", "Operation", "Product", "Sum", "Var", "add",
    "assume", "call", "condition", "const", "linear", "logical_and", "logical_not", "logical_or",
    "make_call", "make_product", "make_sum", "mul", "negate", "normal", "power", "split_coefficient",
    "split_content", "subtract", "var", "where",
]  # fmt: skip

FLATTEN_LIMIT: Final = 64
"""Longer sums and products stay nested: flattening them again at every step of a long chain would take
quadratic time."""


# -- sums ----------------------------------------------------------------------------------------------------


def add(*terms: Expr) -> Expr:
    """The sum."""
    return linear(0, [(1, t) for t in terms])


def negate(e: Expr) -> Expr:
    """``-e``."""
    return linear(0, [(-1, e)])


def subtract(a: Expr, b: Expr) -> Expr:
    """``a - b``."""
    return linear(0, [(1, a), (-1, b)])


def linear(constant: Number, terms: Iterable[tuple[Number, Expr]]) -> Expr:
    """``constant + sum(c * e)`` with nested sums flattened and like terms collected."""
    collected: dict[Expr, Number] = {}
    for c, e in terms:
        kind = type(e)
        if kind is Const:
            constant = constant + c * e.value  # type: ignore[attr-defined]
        elif isinstance(e, Sum) and len(e.terms) <= FLATTEN_LIMIT:
            constant = constant + c * e.constant
            for c_inner, e_inner in e.terms:
                collected[e_inner] = collected.get(e_inner, 0) + c * c_inner
        else:
            collected[e] = collected.get(e, 0) + c
    pairs = [(normal(c), e) for e, c in collected.items() if c != 0]
    constant = normal(constant)
    if not pairs:
        return const(constant)
    if constant == 0 and len(pairs) == 1 and pairs[0][0] == 1:
        return pairs[0][1]
    return make_sum(constant, pairs)


def split_coefficient(e: Expr) -> tuple[Number, Expr]:
    """``(c, rest)`` with ``e = c * rest``; ``c`` is 1 unless e is a single scaled term."""
    if isinstance(e, Const):
        return e.value, ONE
    if isinstance(e, Sum) and e.constant == 0 and len(e.terms) == 1:
        return e.terms[0]
    return 1, e


def split_content(e: Expr) -> tuple[Number, Expr]:
    """``(c, primitive)`` with ``e = c * primitive``: the common divisor of a sum's numbers, with the sign of its first
    term. ``c - c*b`` of a boolean b is ``c * ~b``.
    """
    if not isinstance(e, Sum):
        return split_coefficient(e)
    if e.content is None:
        c, primitive = _content(e)
        e.primitive = None if primitive is e else primitive
        e.content = c
    return e.content, e if e.primitive is None else e.primitive


def _content(e: Sum) -> tuple[Number, Expr]:
    c, first = e.terms[0]
    if len(e.terms) == 1:
        if e.constant == 0:
            return c, first
        if first.boolean and c == -e.constant:
            return e.constant, logical_not(first)
    numbers = [c for c, _ in e.terms] if e.constant == 0 else [e.constant, *(c for c, _ in e.terms)]
    divisor = common_divisor(numbers)
    content = -divisor if c < 0 else divisor
    if content == 1:
        return 1, e
    return content, make_sum(divided(e.constant, content), [(divided(x, content), t) for x, t in e.terms])


# -- products ------------------------------------------------------------------------------------------------


def mul(*factors: Expr) -> Expr:
    """The product with powers collected; boolean factors are idempotent, and ``b * ~b = 0``."""
    coefficient: Number = 1
    rest: list[tuple[Expr, Number]] = []
    for f in factors:
        if isinstance(f, Const):
            coefficient = coefficient * f.value
        else:
            rest.append((f, 1))
    if coefficient == 0:
        return ZERO
    if len(rest) == 1:
        return rest[0][0] if coefficient == 1 else linear(0, [(coefficient, rest[0][0])])
    return _product(coefficient, rest)


def _product(coefficient: Number, pending: list[tuple[Expr, Number]]) -> Expr:
    """``coefficient * prod(base ** exponent)``: products flattened, numbers and signs drawn out of sums."""
    powers: dict[Expr, Number] = {}
    guards: dict[Expr, None] = {}
    while pending:
        base, exponent = pending.pop()
        if base.boolean and exponent > 0 and type(base) is not Const:
            guards.update(dict.fromkeys(_guards(base)))
            continue
        if type(exponent) is int:
            c, parts = _parts(base, exponent)
            if c != 1:
                coefficient = coefficient * c
            if parts is not None:
                pending.extend(parts)
                continue
        if base in powers:
            # The sum of two fractional exponents may be whole: look at the base again.
            exponent = normal(powers.pop(base) + exponent)
            if exponent != 0:
                pending.append((base, exponent))
            continue
        powers[base] = exponent
    if coefficient == 0:
        return ZERO
    if guards:
        simplified = conjunction(guards) if len(guards) > 1 else guards
        if simplified is None:
            return ZERO
        for b in simplified:
            powers.pop(b, None)  # b * b**-1 is b: where b is 0, so is the product
        powers.update(dict.fromkeys(simplified, 1))
    return _scaled(coefficient, powers)


def _guards(base: Expr) -> tuple[Expr, ...]:
    return base.children if isinstance(base, Product) and len(base.children) <= FLATTEN_LIMIT else (base,)


def _parts(base: Expr, exponent: int) -> tuple[Number, list[tuple[Expr, Number]] | None]:
    """``base ** exponent`` as a number times simpler powers; None if it is simple."""
    if isinstance(base, Product):
        factors = base.factors if len(base.factors) <= FLATTEN_LIMIT else _packed(base)
        return 1, None if factors is None else [(b, x if exponent == 1 else normal(x * exponent)) for b, x in factors]
    if isinstance(base, Sum):
        c, primitive = split_content(base)
        return (1, None) if primitive is base else (number_power(c, exponent), [(primitive, exponent)])
    if isinstance(base, Const) and (exponent > 0 or base.value != 0):
        return number_power(base.value, exponent), []
    if isinstance(base, Call) and base.op.name == "abs" and exponent % 2 == 0:
        return 1, [(base.args[0], exponent)]
    return 1, None


def _packed(base: Product) -> tuple[tuple[Expr, Number], ...] | None:
    """A long product as its guards and the rest, each one node; None if it is all of a kind."""
    if len(base.guards) in (0, len(base.factors)):
        return None
    guards = set(base.guards)
    rest = [(b, x) for b, x in base.factors if b not in guards]
    return ((_scaled(1, dict.fromkeys(guards, 1)), 1), (_scaled(1, dict(rest)), 1))


def _scaled(coefficient: Number, powers: dict[Expr, Number]) -> Expr:
    coefficient = normal(coefficient)
    if not powers:
        return const(coefficient)
    if len(powers) == 1:
        ((base, exponent),) = powers.items()
        if exponent == 1:
            # A number times a sum is distributed, so that like terms meet.
            return base if coefficient == 1 else linear(0, [(coefficient, base)])
    node = make_product(powers.items())
    return node if coefficient == 1 else make_sum(0, [(coefficient, node)])


def power(base: Expr, exponent: Expr | Number) -> Expr:
    """``base ** exponent``. Exponents that are constant make polynomials; others are a call of ``pow``.

    Raises:
        ZeroDivisionError: a constant 0 to a negative power.
        ValueError: a negative constant to a fractional power, or overflow.
    """
    if isinstance(exponent, Expr):
        if not isinstance(exponent, Const):
            return call(OPERATIONS["pow"], base, exponent)
        exponent = exponent.value
    exponent = normal(exponent)
    if exponent == 0:
        return ONE
    if exponent == 1:
        return base
    if isinstance(base, Const):
        return const(number_power(base.value, exponent))
    if base.boolean and exponent > 0:
        return base
    return _product(1, [(base, exponent)]) if type(exponent) is int else _root(base, exponent)


def _root(base: Expr, exponent: Number) -> Expr:
    """A fractional power: only rules that hold for every real argument."""
    guards = _common_guards(base) if exponent > 0 else ()
    if guards:
        return mul(*guards, power(_without(base, guards), exponent))
    if isinstance(base, Product):
        if all(type(x) is int and x % 2 == 0 for _, x in base.factors):
            return mul(*(power(call(OPERATIONS["abs"], b), x * exponent) for b, x in base.factors))
        if len(base.factors) == 1 and type(base.factors[0][1]) is not int:
            return power(base.factors[0][0], base.factors[0][1] * exponent)
    return make_product([(base, exponent)])


def _common_guards(e: Expr) -> tuple[Expr, ...]:
    """The conditions that select every term of e."""
    if e.boolean:
        return tuple(literals(e))
    if isinstance(e, Product):
        return e.guards
    if isinstance(e, Sum) and e.constant == 0:
        first = _common_guards(e.terms[0][1])
        others = [set(_common_guards(t)) for _, t in e.terms[1:]] if first else []
        return tuple(g for g in first if all(g in o for o in others))
    return ()


def _without(e: Expr, guards: tuple[Expr, ...]) -> Expr:
    """e with guards of all its terms taken away."""
    if isinstance(e, Sum):
        return linear(0, [(c, _without(t, guards)) for c, t in e.terms])
    factors = e.factors if isinstance(e, Product) else ((e, 1),)
    return _scaled(1, {b: x for b, x in factors if b not in guards})


# -- calls ---------------------------------------------------------------------------------------------------


def call(op: Operation, *args: Expr) -> Expr:
    """Apply an operation, simplified; constants are folded where the result is finite."""
    if len(args) != op.arity:
        raise TypeError(f"{op.name} takes {op.arity} arguments, got {len(args)}")
    if op.simplify is not None:
        simpler = op.simplify(*args)
        if simpler is not None:
            return simpler
    if all(type(a) is Const for a in args):
        with np.errstate(all="ignore"):
            value = float(op.evaluate(*(float(a.value) for a in args)))  # type: ignore[attr-defined]
        if math.isfinite(value):
            return const(value)
    return make_call(op, args)


# -- conditions ----------------------------------------------------------------------------------------------


def condition(e: Expr) -> Expr:
    """e as a condition (``1 - b`` is ``~b``).

    Raises:
        TypeError: e is a number.
    """
    if not e.boolean and isinstance(e, Sum):
        c, e_ = split_content(e)
        if c == 1 and e_.boolean:
            return e_
    if not e.boolean:
        raise TypeError(f"a condition is needed, not the number {e!r}")
    return e


def logical_and(*booleans: Expr) -> Expr:
    """1 where all the conditions hold."""
    return mul(*map(condition, booleans))


def logical_or(*booleans: Expr) -> Expr:
    """1 where one of the conditions holds."""
    return logical_not(mul(*(logical_not(condition(b)) for b in booleans)))


def where(test: Expr, x: Expr, y: Expr) -> Expr:
    """Selection: x where the condition holds, else y.

    Raises:
        TypeError: the condition is a number.
    """
    test = condition(test)
    if test is ONE or x is y:
        return x
    if test is ZERO:
        return y
    otherwise = logical_not(test)
    if x.boolean and y.boolean:
        return logical_or(mul(test, x), mul(otherwise, y))
    return add(mul(test, assume(x, literals(test))), mul(otherwise, assume(y, literals(otherwise))))


def assume(e: Expr, true: Iterable[Expr]) -> Expr:
    """e where the conditions hold: a sum loses the terms that need one to fail, and the guards that hold."""
    if not isinstance(e, Sum):
        return e
    known = {k: v for b in true for k, v in ((b, ONE), (logical_not(b), ZERO))}
    terms: list[tuple[Number, Expr]] = []
    for c, t in e.terms:
        factors = t.factors if isinstance(t, Product) else ((t, 1),)
        values = [known.get(b, b) for b, _ in factors]
        if ZERO not in values:
            terms.append(
                (
                    c,
                    mul(*(power(b, x) for b, (_, x) in zip(values, factors, strict=True))) if ONE in values else t,
                )
            )
    return linear(e.constant, terms) if tuple(terms) != e.terms else e
