"""Conditions: 0/1 expressions, idempotent under multiplication.

``a & b`` is the product ``a * b``, ``~a`` is ``1 - a`` kept as one node, ``a | b`` is ``~(~a & ~b)``. A
condition is therefore a conjunction of literals and of negated conjunctions, and three rules keep it small:
``a & ~a`` is false, ``a & ~(a & b)`` is ``a & ~b`` (De Morgan's absorption), ``a & ~(~a & b)`` is ``a``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from optpy.symbolic.nodes import ONE, ZERO, Call, Const, Expr, Operation, Product, const, make_call, make_product


def is_not(e: Expr) -> bool:
    """Whether e is the negation of a condition."""
    return isinstance(e, Call) and e.op is NOT


def logical_not(b: Expr) -> Expr:
    """``1 - b`` of a boolean, kept as one node.

    Raises:
        TypeError: b is not boolean.
    """
    if not b.boolean:
        raise TypeError(f"a condition is needed, not the number {b!r}")
    if isinstance(b, Const):
        return const(1 - b.value)
    if isinstance(b, Call) and b.op is NOT:
        return b.args[0]
    return make_call(NOT, (b,))


def literals(b: Expr) -> Iterable[Expr]:
    """The conditions that b is the conjunction of."""
    return b.children if isinstance(b, Product) else () if b is ONE else (b,)


def conjunction(booleans: dict[Expr, None]) -> dict[Expr, None] | None:
    """Simplify a conjunction of conditions (no products or constants themselves): None if it is false."""
    # A clause that shrinks to a single literal may simplify the others: repeat while that happens.
    while True:
        false = {b.children[0] for b in booleans if is_not(b)}
        result: dict[Expr, None] = {}
        for b in booleans:
            if b in false:
                return None
            reduced = _without_known(b, booleans, false)
            if reduced is ZERO:
                return None
            result.update(dict.fromkeys((b,) if reduced is b else literals(reduced)))
        if result.keys() == booleans.keys():
            return result
        booleans = result


def _without_known(b: Expr, true: dict[Expr, None], false: set[Expr]) -> Expr:
    """Simplify one clause, given that all of ``true`` (itself among them) hold and none of ``false`` does."""
    if not is_not(b) or not isinstance(b.children[0], Product):
        return b
    clause = b.children[0].children
    if any(f in false or (is_not(f) and f.children[0] in true) for f in clause):
        return ONE
    unknown = [f for f in clause if f not in true]
    if len(unknown) == len(clause):
        return b
    if len(unknown) <= 1:
        return logical_not(unknown[0]) if unknown else ZERO
    return logical_not(make_product((f, 1) for f in unknown))


NOT: Final = Operation(
    "not",
    1,
    lambda b: 1.0 - b,
    lambda b: (ZERO,),
    ((0.0, 1.0),),
    smooth=False,
    boolean=True,
    cost=0,
    total=True,
    simplify=logical_not,
)
