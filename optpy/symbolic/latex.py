"""Expressions as LaTeX, printed by SymPy."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from optpy.symbolic.expr import Expr
from optpy.symbolic.sympy_bridge import SymbolOf, real_symbol, to_sympy

_PRODUCT_LEVEL: Final = 50
"""SymPy's precedence of a product."""


def to_latex(expr: Expr, symbol: SymbolOf = real_symbol, **settings: Any) -> str:
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
