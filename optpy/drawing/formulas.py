"""Formulas of an energy as MathML, which browsers draw by themselves."""

from __future__ import annotations

from typing import Final

from optpy import ir
from optpy.drawing.markup import Markup, cell
from optpy.energy.describe import cost_latex, residual_latex
from optpy.errors import OptpyError
from optpy.symbolic.count import count_nodes
from optpy.symbolic.order import topological

LONGEST: Final = 300
"""Nodes of a formula that one still reads."""


def cost_formula(problem: ir.Problem) -> Markup:
    """``cost = 1/2 (sum of squares of each residual)``."""
    return _mathml(cost_latex(problem))


def residual_formula(residual: ir.Residual) -> Markup:
    """A residual, or how long it is, where nobody would read it."""
    nodes = len(topological(residual.components))
    if nodes > LONGEST:
        operations = count_nodes(topological(residual.components)).cost
        return Markup(f"<p>{cell(residual.label)}: {operations} operations, too long to be read as a formula</p>")
    return _mathml(residual_latex(residual))


def _mathml(latex: str) -> Markup:
    try:
        from latex2mathml.converter import convert
    except ImportError as error:
        raise OptpyError("formulas on a page need latex2mathml: pip install 'optpy[plot]'") from error
    return Markup(f'<div class="formula">{convert(latex)}</div>')
