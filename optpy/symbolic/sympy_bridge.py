"""To SymPy and back.

Selections become ``Piecewise``: ``b*x + ~b*y`` is ``Piecewise((x, b), (y, True))``. A condition that stands
for a number is ``Piecewise((1, b), (0, True))``, which `latex` shows as an Iverson bracket ``[b]``. A leaf
that is itself boolean stays a symbol of value 0 or 1; as a condition it reads ``symbol != 0``.

SymPy takes half a second to import, so this module imports it when a function is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any, Final

from optpy.symbolic.booleans import is_not, literals
from optpy.symbolic.elements import GIVEN_SLOPES, is_element
from optpy.symbolic.expr import (
    ONE,
    ZERO,
    Call,
    Const,
    Expr,
    Number,
    Product,
    Sum,
    Var,
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
from optpy.symbolic.order import topological

SymbolOf = Callable[[Any], Any]
"""From a leaf's key to the SymPy expression that stands for it: a Symbol or an Indexed."""

_SAME_NAME: Final = (
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "exp", "log", "sign", "floor",
)  # fmt: skip
"""Functions that SymPy spells as we do."""

_NAME_IN_C: Final = ("expm1", "log1p", "hypot")
"""Functions that SymPy has for the sake of C, in ``sympy.codegen.cfunctions``."""


def real_symbol(key: Any) -> Any:
    """The default: a real symbol of the key's own name."""
    import sympy

    return sympy.Symbol(str(key), real=True)


# -- to SymPy ------------------------------------------------------------------------------------------------


def to_sympy(expr: Expr, symbol: SymbolOf = real_symbol) -> Any:
    """The expression in SymPy.

    Args:
        expr: the expression.
        symbol: gives the SymPy symbol of a leaf, from its key. Leaves are real numbers: symbols should be
            ``real``.
    """
    converted = _ToSympy(symbol)
    for node in topological([expr]):
        converted.add(node)
    return converted.number(expr)


class _ToSympy:
    """The SymPy forms of the nodes of a DAG, children first: numbers, and conditions for boolean nodes."""

    def __init__(self, symbol: SymbolOf) -> None:
        self._symbol = symbol
        self._numbers: dict[Expr, Any] = {}
        self._conditions: dict[Expr, Any] = {}

    def add(self, node: Expr) -> None:
        import sympy

        if isinstance(node, Var):
            self._numbers[node] = self._symbol(node.key)
            if node.boolean:
                self._conditions[node] = sympy.Ne(self._numbers[node], 0)
        elif node.boolean:
            self._conditions[node] = self._condition(node)
        elif isinstance(node, Const):
            self._numbers[node] = _number(node.value)
        elif isinstance(node, Sum):
            self._numbers[node] = self._sum(node)
        elif isinstance(node, Product):
            self._numbers[node] = self._product(node)
        else:
            assert isinstance(node, Call)
            self._numbers[node] = self._call(node)

    def number(self, node: Expr) -> Any:
        import sympy

        if isinstance(node, Const):
            return _number(node.value)
        found = self._numbers.get(node)
        return sympy.Piecewise((1, self._conditions[node]), (0, True)) if found is None else found

    def _call(self, node: Call) -> Any:
        args = [self.number(a) for a in node.args]
        if node.op.name == GIVEN_SLOPES:
            return args[0]
        return _piecewise_constant(str(args[0]))(*args[1:]) if is_element(node) else _function(node.op.name)(*args)

    def _condition(self, node: Expr) -> Any:
        import sympy

        if isinstance(node, Const):
            return sympy.true if node is ONE else sympy.false
        if isinstance(node, Product):
            return sympy.And(*(self._conditions[b] for b in node.children))
        assert isinstance(node, Call)
        if is_not(node):
            return sympy.Not(self._conditions[node.args[0]])
        relation = {"less": sympy.Lt, "less_equal": sympy.Le, "equal": sympy.Eq}[node.op.name]
        return relation(*(self.number(a) for a in node.args))

    def _product(self, node: Product) -> Any:
        import sympy

        factors = [_power(self.number(b), x) for b, x in node.factors if b not in node.guards]
        value = sympy.Mul(*factors)
        if not node.guards:
            return value
        return sympy.Piecewise((value, sympy.And(*(self._conditions[b] for b in node.guards))), (0, True))

    def _sum(self, node: Sum) -> Any:
        """The terms added up, the two arms of a selection in one Piecewise."""
        import sympy

        terms = dict(enumerate(node.terms))
        parts = [_number(node.constant)]
        for n, (c, e) in enumerate(node.terms):
            if n not in terms:
                continue
            other = next((m for m in terms if m != n and _are_arms(e, terms[m][1])), None)
            if other is None:
                parts.append(_number(c) * self.number(e))
                continue
            test, x, y = _arms(e, c, *terms.pop(other))
            del terms[n]
            parts.append(sympy.Piecewise((self._arm(x), self._conditions[test]), (self._arm(y), True)))
        return sympy.Add(*parts)

    def _arm(self, arm: tuple[Number, Expr]) -> Any:
        c, e = arm
        if e not in self._numbers and e not in self._conditions:
            for node in topological([e]):
                if node not in self._numbers and node not in self._conditions:
                    self.add(node)
        return _number(c) * self.number(e)


def _are_arms(e: Expr, other: Expr) -> bool:
    """Whether they are the terms of ``where(test, x, y)``: one guarded by the negation of the other."""
    guards, others = _guards(e), _guards(other)
    if not guards or not others:
        return False
    return (len(others) == 1 and others[0] is _negation(guards)) or (
        len(guards) == 1 and guards[0] is _negation(others)
    )


def _guards(e: Expr) -> tuple[Expr, ...]:
    return tuple(literals(e)) if e.boolean else e.guards if isinstance(e, Product) else ()


def _negation(guards: Iterable[Expr]) -> Expr:
    return logical_not(mul(*guards))


def _arms(e: Expr, c: Number, c_other: Number, other: Expr) -> tuple[Expr, tuple[Number, Expr], tuple[Number, Expr]]:
    x, y = (c, _unguarded(e)), (c_other, _unguarded(other))
    guards = _guards(e)
    if is_not(guards[0]) and len(guards) == 1:
        return guards[0].children[0], y, x
    return mul(*guards), x, y


def _unguarded(e: Expr) -> Expr:
    if e.boolean or not isinstance(e, Product):
        return ONE
    return mul(*(power(b, x) for b, x in e.factors if b not in e.guards))


def _number(value: Number) -> Any:
    import sympy

    if isinstance(value, Fraction):
        return sympy.Rational(value.numerator, value.denominator)
    return sympy.Integer(value) if isinstance(value, int) else sympy.Float(value)


def _power(base: Any, exponent: Number) -> Any:
    import sympy

    return base if exponent == 1 else sympy.Pow(base, _number(exponent))


def _stop_gradient() -> Any:
    return _piecewise_constant("stop_gradient")


@cache
def _piecewise_constant(name: str) -> Any:
    """A function of that name whose derivative is 0: an array, of the indices at which it is read."""
    import sympy

    def fdiff(self: Any, argindex: int = 1) -> Any:
        return sympy.Integer(0)

    return type(name, (sympy.Function,), {"is_real": True, "fdiff": fdiff})


@cache
def _cube_root() -> Any:
    """The real one; SymPy's own of a negative number is complex."""
    import sympy

    def fdiff(self: Any, argindex: int = 1) -> Any:
        return 1 / (3 * self**2)

    def as_power(self: Any, x: Any, **_: Any) -> Any:
        return sympy.sign(x) * sympy.Abs(x) ** sympy.Rational(1, 3)

    def evalf(self: Any, precision: int) -> Any:
        return as_power(self, *self.args)._eval_evalf(precision)

    methods = {"fdiff": fdiff, "_eval_rewrite_as_Pow": as_power, "_eval_evalf": evalf}
    return type("cbrt", (sympy.Function,), {"nargs": 1, "is_real": True, **methods})


def _function(name: str) -> Any:
    import sympy
    from sympy.codegen import cfunctions

    if name in _SAME_NAME:
        return getattr(sympy, name)
    if name in _NAME_IN_C:
        return getattr(cfunctions, name)
    return {
        "abs": sympy.Abs,
        "minimum": sympy.Min,
        "maximum": sympy.Max,
        "pow": sympy.Pow,
        "cbrt": _cube_root(),
        "stop_gradient": _stop_gradient(),
        "whole": lambda x: x,
    }[name]


# -- from SymPy ----------------------------------------------------------------------------------------------


def from_sympy(expr: Any, variables: Mapping[Any, Expr]) -> Expr:
    """The SymPy expression as ours.

    Args:
        expr: a SymPy expression or condition.
        variables: what the SymPy symbols in it stand for.

    Raises:
        ValueError: it has a symbol that is not in ``variables``, a function that is not in the table of
            operations, or a
            Piecewise that leaves a case open.
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
        **{_function(name): operation(name) for name in (*_SAME_NAME, *_NAME_IN_C, "cbrt")},
        sympy.Add: add,
        sympy.Mul: mul,
        sympy.Pow: power,
        sympy.Abs: absolute,
        sympy.ceiling: lambda x: negate(call(OPERATIONS["floor"], negate(x))),
        sympy.Min: extreme("minimum"),
        sympy.Max: extreme("maximum"),
        _stop_gradient(): stop_gradient,
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


__all__ = ["from_sympy", "real_symbol", "to_sympy"]
