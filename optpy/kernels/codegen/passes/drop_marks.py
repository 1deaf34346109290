"""Marks that mean something to derivatives and to schedules, but compute nothing, are left out."""

from __future__ import annotations

from optpy.ir import loops
from optpy.ir.loops.arithmetic import with_args
from optpy.symbolic.elements import GIVEN_SLOPES
from optpy.symbolic.expr import Call, Expr

_MARKS = ("stop_gradient", "whole", GIVEN_SLOPES)


def drop_marks(function: loops.Function) -> loops.Function:
    """Each mark becomes its argument."""
    return loops.map_values(function, _rule)


def _rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
    return children[0] if isinstance(node, Call) and node.op.name in _MARKS else with_args(node, children)
