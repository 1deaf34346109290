"""Negative powers become divisions."""

from __future__ import annotations

from optpy.ir import loops
from optpy.ir.loops.arithmetic import OVER, POWER, TIMES, is_call, over, power_of, raised, times, with_args
from optpy.symbolic.expr import ONE, Expr


def divide(function: loops.Function) -> loops.Function:
    """Each product is one quotient at most: of its positive powers by its negative ones."""
    return loops.map_values(function, _rule)


def _rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
    if _is_inverse(node):
        return over(ONE, raised(children[0], -power_of(node)[1]))
    if not is_call(node, TIMES):
        return with_args(node, children)
    both = list(zip(map(_is_inverse, node.args), children, strict=True))
    above = [e for inverse, e in both if not inverse] or [ONE]
    below = [e.args[1] for inverse, e in both if inverse and is_call(e, OVER)]
    return over(times(above), times(below)) if below else with_args(node, children)


def _is_inverse(e: Expr) -> bool:
    return is_call(e, POWER) and power_of(e)[1] < 0
