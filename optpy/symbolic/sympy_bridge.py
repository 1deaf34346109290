"""To SymPy, and LaTeX.

Selections become ``Piecewise``: ``b*x + ~b*y`` is ``Piecewise((x, b), (y, True))``. A condition that stands
for a number is ``Piecewise((1, b), (0, True))``, which LaTeX shows as an Iverson bracket ``[b]``. A leaf
that is itself boolean stays a symbol of value 0 or 1; as a condition it reads ``symbol != 0``.

SymPy takes half a second to import, so this module imports it when a function is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache
from typing import Any

from optpy.symbolic.booleans import is_not, literals
from optpy.symbolic.expr import (
    ONE,
    Call,
    Const,
    Expr,
    Number,
    Product,
    Sum,
    Var,
    logical_not,
    mul,
    power,
)
from optpy.symbolic.order import topological
from optpy.symbolic.sympy_functions import function

Symbol = Callable[[Any], Any]
"""From a leaf's key to the SymPy expression that stands for it: a Symbol or an Indexed."""


def real_symbol(key: Any) -> Any:
    """The default: a real symbol of the key's own name."""
    import sympy

    return sympy.Symbol(str(key), real=True)


# -- to SymPy ------------------------------------------------------------------------------------------------


def to_sympy(expr: Expr, symbol: Symbol = real_symbol) -> Any:
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

    def __init__(self, symbol: Symbol) -> None:
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
            self._numbers[node] = function(node.op.name)(*(self.number(a) for a in node.args))

    def number(self, node: Expr) -> Any:
        import sympy

        if isinstance(node, Const):
            return _number(node.value)
        found = self._numbers.get(node)
        return sympy.Piecewise((1, self._conditions[node]), (0, True)) if found is None else found

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


# -- LaTeX ---------------------------------------------------------------------------------------------------


def to_latex(expr: Expr, symbol: Symbol = real_symbol, **settings: Any) -> str:
    """LaTeX of the expression; factors that are conditions are Iverson brackets, 1 where they hold and 0
    elsewhere.

    Args:
        expr: the expression.
        symbol: as for ``to_sympy``.
        settings: of ``sympy.latex``.
    """
    return str(_latex_printer()(settings).doprint(to_sympy(expr, symbol)))


@cache
def _latex_printer() -> Any:
    from sympy.printing.latex import LatexPrinter

    class IversonPrinter(LatexPrinter):  # type: ignore[misc]
        def _print_Piecewise(self, expr: Any) -> str:  # noqa: N802 - SymPy's name
            if len(expr.args) == 2 and expr.args[1].expr == 0 and expr.args[1].cond == True:  # noqa: E712
                value, test = expr.args[0].args
                bracket = rf"\left[{self._print(test)}\right]"
                return bracket if value == 1 else rf"{bracket} \, {self.parenthesize(value, _PRODUCT_LEVEL)}"
            return str(super()._print_Piecewise(expr))

    return IversonPrinter


_PRODUCT_LEVEL = 50
"""SymPy's precedence of a product."""
