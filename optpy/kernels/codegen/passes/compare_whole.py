"""Whole numbers are compared as such: exact, and narrower."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from optpy.ir import Access, InBounds, IndexCondition, IndexValue, loops
from optpy.ir.loops.arithmetic import ALWAYS, NEVER, WHOLE_COMPARISONS, with_args
from optpy.symbolic.expr import Call, Const, Expr, Var, const, make_call

_LARGEST = 2**62


def compare_whole(function: loops.Function) -> loops.Function:
    """Compare leaves that are whole numbers with one another, and with constants, in integers.

    A fraction gives way to the whole number next to it.
    """
    return loops.map_values(function, _rule)


def is_whole(leaf: object) -> bool:
    """Whether a leaf is an integer in memory or in a register."""
    match leaf:
        case Access():
            return leaf.field.dtype in ("uint8", "int32", "bool")
        case InBounds() | IndexValue() | IndexCondition():
            return True
    return False


def _rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
    if not isinstance(node, Call) or node.op.name not in WHOLE_COMPARISONS:
        return with_args(node, children)
    if not any(isinstance(a, Var) and is_whole(a.key) for a in children):
        return with_args(node, children)
    below = node.op.name == "less_equal"
    left = _whole(children[0], math.ceil if below else math.floor)
    right = _whole(children[1], math.floor if below else math.ceil)
    if left is None or right is None:
        return with_args(node, children)
    if left is right:
        return make_call(NEVER if node.op.name == "less" else ALWAYS, (left,))
    if node.op.name == "equal" and (left, right) != children:  # no whole number is a fraction
        return make_call(NEVER, (left if left is children[0] else right,))
    return make_call(WHOLE_COMPARISONS[node.op.name], (left, right))


def _whole(e: Expr, nearest: Callable[[Fraction | float], int]) -> Expr | None:
    if isinstance(e, Var):
        return e if is_whole(e.key) else None
    if not isinstance(e, Const) or not -_LARGEST <= e.value <= _LARGEST:
        return None
    return const(nearest(e.value))
