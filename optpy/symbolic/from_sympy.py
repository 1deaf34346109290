"""From SymPy: its expressions and conditions as ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from optpy.symbolic.expr import (
    ONE,
    ZERO,
    Expr,
    add,
    call,
    const,
    logical_and,
    logical_not,
    logical_or,
    mul,
    negate,
    power,
    where,
)
from optpy.symbolic.operations import OPERATIONS, absolute, equal, less, less_equal, stop_gradient
from optpy.symbolic.sympy_functions import NAME_IN_C, SAME_NAME, function, stopped


def from_sympy(expr: Any, variables: Mapping[Any, Expr]) -> Expr:
    """The SymPy expression as ours.

    Args:
        expr: a SymPy expression or condition.
        variables: what the SymPy symbols in it stand for.

    Raises:
        ValueError: it has a symbol that is not in ``variables``, a function that is not in the table of
            operations, or a Piecewise that leaves a case open.
    """
    import sympy

    done: dict[Any, Expr] = {}
    for node in _children_first(sympy.sympify(expr), variables):
        done[node] = _from_node(node, variables, done)
    return done[sympy.sympify(expr)]


def _children_first(root: Any, leaves: Mapping[Any, Expr]) -> list[Any]:
    order: list[Any] = []
    seen: set[Any] = set()
    stack = [(root, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if node not in leaves:
                stack.extend((a, False) for a in node.args)
    return order


def _from_node(node: Any, variables: Mapping[Any, Expr], done: Mapping[Any, Expr]) -> Expr:
    import sympy

    if node in variables:
        return variables[node]
    if isinstance(node, sympy.functions.elementary.piecewise.ExprCondPair):
        return ZERO  # read by the Piecewise around it
    if node.is_Symbol or isinstance(node, sympy.Indexed):
        raise ValueError(f"the symbol {node} is not in variables")
    if node.is_number and not node.args and node is not sympy.I:
        return _from_number(node)
    if isinstance(node, sympy.Piecewise):
        return _from_piecewise(node, done)
    args = [done[a] for a in node.args]
    rule = _rules().get(node.func)
    if rule is None:
        raise ValueError(f"{node.func} has no counterpart in the table of operations: {node}")
    result: Expr = rule(*args)
    return result


def _from_number(node: Any) -> Expr:
    if node.is_Integer:
        return const(int(node))
    if node.is_Rational:
        return const(Fraction(int(node.p), int(node.q)))
    if node.is_finite is False or node.is_real is False:
        raise ValueError(f"{node} is not a finite real number")
    return const(float(node))


def _from_piecewise(node: Any, done: Mapping[Any, Expr]) -> Expr:
    *cases, last = node.args
    if last.cond != True:  # noqa: E712 - SymPy's own true
        raise ValueError(f"a Piecewise must say what holds otherwise: {node}")
    result = done[last.expr]
    for case in reversed(cases):
        result = where(done[case.cond], done[case.expr], result)
    return result


@cache
def _rules() -> dict[Any, Callable[..., Expr]]:
    import sympy

    def extreme(name: str) -> Callable[..., Expr]:
        def fold(first: Expr, *others: Expr) -> Expr:
            for e in others:
                first = call(OPERATIONS[name], first, e)
            return first

        return fold

    def operation(name: str) -> Callable[..., Expr]:
        return lambda *args: call(OPERATIONS[name], *args)

    return {
        **{function(name): operation(name) for name in (*SAME_NAME, *NAME_IN_C, "cbrt")},
        sympy.Add: add,
        sympy.Mul: mul,
        sympy.Pow: power,
        sympy.Abs: absolute,
        sympy.ceiling: lambda x: negate(call(OPERATIONS["floor"], negate(x))),
        sympy.Min: extreme("minimum"),
        sympy.Max: extreme("maximum"),
        stopped(): stop_gradient,
        sympy.Lt: less,
        sympy.Le: less_equal,
        sympy.Gt: lambda x, y: less(y, x),
        sympy.Ge: lambda x, y: less_equal(y, x),
        sympy.Eq: equal,
        sympy.Ne: lambda x, y: logical_not(equal(x, y)),
        sympy.And: logical_and,
        sympy.Or: logical_or,
        sympy.Not: logical_not,
        sympy.ITE: where,
        sympy.logic.boolalg.BooleanTrue: lambda: ONE,
        sympy.logic.boolalg.BooleanFalse: lambda: ZERO,
    }
