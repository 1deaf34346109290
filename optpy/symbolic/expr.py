"""The expression DAG: interned nodes in canonical polynomial form.

Structurally equal expressions are the same object, so equality is ``is`` and common subexpressions vanish
as they are built. There are five kinds of node:

- ``Const``: an exact integer or fraction, or a float.
- ``Var``: a leaf; its key (any hashable object with a unique ``str`` and a ``boolean`` attribute) says what it is.
- ``Sum``: ``constant + sum(c * e)``; like terms are collected, nested sums flattened.
- ``Product``: ``prod(base ** exponent)`` with constant exponents; numeric factors live in the enclosing ``Sum``.
- ``Call``: a row of the table of operations applied to arguments.

Booleans are 0/1 expressions and idempotent (``b * b = b``). A boolean factor *selects*: where it is 0 the whole
product is 0, whatever the other factors are, even infinite or NaN. So ``where(b, x, y)`` is ``b*x + ~b*y``, the
polynomial rules hold for it, and the arm that is not taken never contributes, in value or derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b
from typing import Any, Final, Protocol, final
from weakref import WeakValueDictionary

import numpy as np

Number = int | Fraction | float

_SHORT: Final = 4096
"""Binary fractions with denominators up to this are kept exact; 0.1 and the like stay floats."""


class Key(Protocol):
    """What a leaf stands for. ``str(key)`` must be unique among the keys of one expression."""

    def __hash__(self) -> int: ...

    @property
    def boolean(self) -> bool: ...


@final
@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One row of the table of operations (see ``operations.py``)."""

    name: str
    arity: int
    evaluate: Callable[..., Any]
    """NumPy's function, also used to fold constants."""
    partials: Callable[..., tuple[Expr, ...]]
    """Partial derivatives with respect to each argument, given the arguments."""
    domain: tuple[tuple[float, float], ...]
    """An interval for each argument on which the row is checked numerically."""
    smooth: bool = True
    """False where the derivative jumps or vanishes almost everywhere by convention."""
    boolean: bool = False
    cost: int = 1
    """Rough cost in additions, for choosing between equal forms."""


class Expr:
    """Base of the five kinds of node. Never made directly: use ``const``, ``var``, ``add``, ``mul``, ``power``, ``call``."""

    __slots__ = ("__weakref__", "boolean", "digest")
    digest: bytes
    boolean: bool

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def __repr__(self) -> str:
        from .printing import to_text

        return to_text(self)


@final
class Const(Expr):
    __slots__ = ("value",)
    value: Number


@final
class Var(Expr):
    __slots__ = ("key",)
    key: Any


@final
class Sum(Expr):
    __slots__ = ("constant", "terms")
    constant: Number
    terms: tuple[tuple[Number, Expr], ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return tuple(e for _, e in self.terms)


@final
class Product(Expr):
    __slots__ = ("factors",)
    factors: tuple[tuple[Expr, Number], ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return tuple(b for b, _ in self.factors)


@final
class Call(Expr):
    __slots__ = ("args", "op")
    op: Operation
    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args


# -- interning ---------------------------------------------------------------------------------------------------

_interned: WeakValueDictionary[tuple[Any, ...], Expr] = WeakValueDictionary()


def _digest(kind: str, *parts: bytes) -> bytes:
    # Terms are ordered by this digest of their structure: unlike id() or hash() it is the same in every process, so
    # that the same energy always gives the same generated text (and the compile cache hits).
    state = blake2b(kind.encode(), digest_size=8)
    for part in parts:
        state.update(part)
    return state.digest()


def _text(number: Number) -> bytes:
    return repr(number).encode() + b";"


def _order(e: Expr) -> bytes:
    return e.digest


def normal(value: Number) -> Number:
    """The canonical form of a number: integers as ``int``, short binary fractions as ``Fraction``, however they came.

    Equal numbers get one form: 0.5 and 1/2 are one node with one digest, whichever came first.
    """
    if type(value) is int:  # by far the most frequent
        return value
    if isinstance(value, float):
        if math.isnan(value):
            raise ValueError("a constant is NaN")
        if abs(value) >= 2**53 or value * _SHORT % 1:
            return value
        value = Fraction(value)
    if isinstance(value, Fraction):
        denominator = value.denominator
        if denominator == 1:
            return value.numerator
        long_binary = denominator > _SHORT and denominator & (denominator - 1) == 0
        return float(value) if long_binary and Fraction(float(value)) == value else value
    return int(value)


def const(value: Number) -> Const:
    value = normal(value)
    key = (Const, value)
    node = _interned.get(key)
    if node is None:
        node = Const()
        node.value, node.boolean, node.digest = value, value in (0, 1), _digest("const", _text(value))
        _interned[key] = node
    return node  # type: ignore[return-value]


def var(key: Key) -> Var:
    slot = (Var, key)
    node = _interned.get(slot)
    if node is None:
        node = Var()
        node.key, node.boolean, node.digest = key, key.boolean, _digest("var", str(key).encode())
        _interned[slot] = node
    return node  # type: ignore[return-value]


ZERO: Final = const(0)
ONE: Final = const(1)


# -- sums --------------------------------------------------------------------------------------------------------


def add(*terms: Expr) -> Expr:
    return linear(0, [(1, t) for t in terms])


def negate(e: Expr) -> Expr:
    return linear(0, [(-1, e)])


def subtract(a: Expr, b: Expr) -> Expr:
    return linear(0, [(1, a), (-1, b)])


def linear(constant: Number, terms: Iterable[tuple[Number, Expr]]) -> Expr:
    """``constant + sum(c * e)`` with nested sums flattened and like terms collected."""
    collected: dict[Expr, Number] = {}
    for c, e in terms:
        if isinstance(e, Const):
            constant = constant + c * e.value
        elif isinstance(e, Sum):
            constant = constant + c * e.constant
            for c_inner, e_inner in e.terms:
                collected[e_inner] = collected.get(e_inner, 0) + c * c_inner
        else:
            collected[e] = collected.get(e, 0) + c
    return _sum(constant, [(c, e) for e, c in collected.items() if c != 0])


def _sum(constant: Number, terms: list[tuple[Number, Expr]]) -> Expr:
    constant = normal(constant)
    if not terms:
        return const(constant)
    pairs = tuple(sorted(((normal(c), e) for c, e in terms), key=lambda p: p[1].digest))
    if constant == 0 and len(pairs) == 1 and pairs[0][0] == 1:
        return pairs[0][1]
    key = (Sum, constant, pairs)
    node = _interned.get(key)
    if node is None:
        node = Sum()
        node.constant, node.terms, node.boolean = constant, pairs, False
        node.digest = _digest("sum", _text(constant), *(_text(c) + e.digest for c, e in pairs))
        _interned[key] = node
    return node


def split_coefficient(e: Expr) -> tuple[Number, Expr]:
    """``(c, rest)`` with ``e = c * rest``; ``c`` is 1 unless e is a single scaled term."""
    if isinstance(e, Const):
        return e.value, ONE
    if isinstance(e, Sum) and e.constant == 0 and len(e.terms) == 1:
        return e.terms[0]
    return 1, e


# -- products ----------------------------------------------------------------------------------------------------


def mul(*factors: Expr) -> Expr:
    """The product with powers collected; boolean factors are idempotent, and ``b * ~b = 0``."""
    coefficient: Number = 1
    powers: dict[Expr, Number] = {}
    for factor in factors:
        c, e = split_coefficient(factor)
        coefficient = coefficient * c
        if isinstance(e, Product):
            for base, exponent in e.factors:
                powers[base] = powers.get(base, 0) + exponent
        elif e is not ONE:
            powers[e] = powers.get(e, 0) + 1
    if coefficient == 0:
        return ZERO
    return _product(coefficient, powers)


def _product(coefficient: Number, powers: dict[Expr, Number]) -> Expr:
    flips = 0
    collected: dict[Expr, Number] = {}
    booleans: dict[Expr, None] = {}
    for base, exponent in powers.items():
        if exponent == 0:
            continue
        if base.boolean and exponent > 0:
            booleans[base] = None
            continue
        if isinstance(exponent, int):
            if isinstance(base, Sum) and base.terms[0][0] < 0:
                # One sign for each factor: (b - a) is -(a - b), so that both are the same node.
                base = negate(base)
                flips += exponent % 2
            elif exponent % 2 == 0 and isinstance(base, Call) and base.op.name == "abs":
                base = base.args[0]
        collected[base] = collected.get(base, 0) + exponent
    if len(booleans) > 1:
        simplified = _conjunction(booleans)
        if simplified is None:
            return ZERO
        booleans = simplified
    pairs = [(b, x) for b, x in collected.items() if x != 0]
    pairs.extend((b, 1) for b in booleans)
    return _scaled(-coefficient if flips % 2 else coefficient, pairs)


def _scaled(coefficient: Number, pairs: list[tuple[Expr, Number]]) -> Expr:
    coefficient = normal(coefficient)
    if not pairs:
        return const(coefficient)
    if len(pairs) == 1 and pairs[0][1] == 1:
        # A number times a sum is distributed, so that like terms meet.
        return linear(0, [(coefficient, pairs[0][0])])
    factors = tuple(sorted(((b, normal(x)) for b, x in pairs), key=lambda p: p[0].digest))
    key = (Product, factors)
    node = _interned.get(key)
    if node is None:
        node = Product()
        node.factors = factors
        node.boolean = all(b.boolean and x == 1 for b, x in factors)
        node.digest = _digest("product", *(b.digest + _text(x) for b, x in factors))
        _interned[key] = node
    return node if coefficient == 1 else _sum(0, [(coefficient, node)])


def _conjunction(booleans: dict[Expr, None]) -> dict[Expr, None] | None:
    """Simplify a conjunction: None if it is false; ``a & ~(a & b)`` is ``a & ~b``; ``a & ~(~a & b)`` is ``a``."""
    # A clause that shrinks to a single literal may simplify the others: repeat while that happens.
    while True:
        result: dict[Expr, None] = {}
        for b in booleans:
            if logical_not(b) in booleans:
                return None
            reduced = b
            if isinstance(b, Call) and b.op is _not_operation and isinstance(b.args[0], Product):
                inner = [f for f, _ in b.args[0].factors if f not in booleans]
                if any(logical_not(f) in booleans for f in inner):
                    continue
                if not inner:
                    return None
                if len(inner) < len(b.args[0].factors):
                    reduced = logical_not(mul(*inner))
            if isinstance(reduced, Product):
                result.update((f, None) for f, _ in reduced.factors)
            else:
                result[reduced] = None
        if result.keys() == booleans.keys():
            return result
        booleans = result


def _conjunction(booleans: dict[Expr, None]) -> dict[Expr, None] | None:
    """Simplify a conjunction: None if it is false; ``a & ~(a & b)`` is ``a & ~b``; ``a & ~(~a & b)`` is ``a``."""
    # A clause that shrinks to a single literal may simplify the others: repeat while that happens.
    while True:
        result: dict[Expr, None] = {}
        for b in booleans:
            if logical_not(b) in booleans:
                return None
            reduced = _without_known(b, booleans)
            if reduced is ZERO:
                return None
            if isinstance(reduced, Product):
                result.update((f, None) for f, _ in reduced.factors)
            elif reduced is not ONE:
                result[reduced] = None
        if result.keys() == booleans.keys():
            return result
        booleans = result


def _without_known(b: Expr, true: dict[Expr, None]) -> Expr:
    """Simplify one clause given that all of ``true`` (which includes the clause itself) hold."""
    if not (isinstance(b, Call) and b.op is _not_operation and isinstance(b.args[0], Product)):
        return b
    factors = [f for f, _ in b.args[0].factors]
    if any(logical_not(f) in true for f in factors):
        return ONE
    unknown = [f for f in factors if f not in true]
    return b if len(unknown) == len(factors) else logical_not(mul(*unknown))


def power(base: Expr, exponent: Expr | Number) -> Expr:
    """``base ** exponent``. Exponents that are constant make polynomials; others are a call of ``pow``."""
    if isinstance(exponent, Expr):
        if not isinstance(exponent, Const):
            from .operations import OPERATIONS

            return call(OPERATIONS["pow"], base, exponent)
        exponent = exponent.value
    exponent = normal(exponent)
    if exponent == 0:
        return ONE
    if exponent == 1:
        return base
    if isinstance(base, Const):
        return const(_constant_power(base.value, exponent))
    if base.boolean and exponent > 0:
        return base
    c, rest = split_coefficient(base)
    if isinstance(exponent, int):
        pairs = rest.factors if isinstance(rest, Product) else ((rest, 1),)
        return _product(_constant_power(c, exponent), {b: normal(x * exponent) for b, x in pairs})
    return _root(base, exponent)


def _root(base: Expr, exponent: Number) -> Expr:
    """A fractional power: only rules that hold for every real argument."""
    if isinstance(base, Product):
        guards = [b for b, x in base.factors if b.boolean and x == 1]
        if guards and exponent > 0:
            rest = [power(b, x) for b, x in base.factors if not (b.boolean and x == 1)]
            return mul(*guards, power(mul(*rest), exponent))
        if len(base.factors) == 1:
            inner, x = base.factors[0]
            if isinstance(x, int) and x % 2 == 0:
                from .operations import OPERATIONS

                return power(call(OPERATIONS["abs"], inner), normal(x * exponent))
    return _scaled(1, [(base, exponent)])


def _constant_power(value: Number, exponent: Number) -> Number:
    if isinstance(exponent, int) and not isinstance(value, float):
        if value == 0 and exponent < 0:
            raise ZeroDivisionError("a constant expression divides by zero")
        return normal(Fraction(value) ** exponent)
    if value == 0 and exponent < 0:
        raise ZeroDivisionError("a constant expression divides by zero")
    if value < 0 and not isinstance(exponent, int):
        raise ValueError(f"({value}) ** {exponent} is not real")
    return normal(float(value) ** float(exponent))


# -- calls -------------------------------------------------------------------------------------------------------

_not_operation: Operation


def call(op: Operation, *args: Expr) -> Expr:
    """Apply an operation; constants are folded."""
    if len(args) != op.arity:
        raise TypeError(f"{op.name} takes {op.arity} arguments, got {len(args)}")
    if op.name != "stop_gradient" and all(isinstance(a, Const) for a in args):
        with np.errstate(all="ignore"):
            value = op.evaluate(*(float(a.value) for a in args))  # type: ignore[attr-defined]
        if math.isfinite(value):
            return const(float(value))
    return make_call(op, args)


def make_call(op: Operation, args: Sequence[Expr]) -> Expr:
    """The bare node, without folding (``operations.py`` simplifies first)."""
    key = (Call, op.name, tuple(args))
    node = _interned.get(key)
    if node is None:
        node = Call()
        node.op, node.args, node.boolean = op, tuple(args), op.boolean
        node.digest = _digest(f"call {op.name}", *(a.digest for a in args))
        _interned[key] = node
    return node


def logical_not(b: Expr) -> Expr:
    """``1 - b`` of a boolean, kept as one node."""
    if isinstance(b, Const):
        return const(1 - b.value)
    if isinstance(b, Call) and b.op is _not_operation:
        return b.args[0]
    return make_call(_not_operation, (b,))


def logical_and(*booleans: Expr) -> Expr:
    return mul(*booleans)


def logical_or(*booleans: Expr) -> Expr:
    return logical_not(mul(*(logical_not(b) for b in booleans)))


def where(condition: Expr, x: Expr, y: Expr) -> Expr:
    """Selection: x where the condition holds, else y."""
    if condition is ONE:
        return x
    if condition is ZERO:
        return y
    if x is y:
        return x
    return add(mul(condition, x), mul(logical_not(condition), y))


_not_operation = Operation(
    "not", 1, lambda b: 1.0 - b, lambda b: (ZERO,), ((0.0, 1.0),), smooth=False, boolean=True, cost=0
)
