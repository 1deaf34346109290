"""Energies and results as notebooks show them."""

from __future__ import annotations

from optpy import ir
from optpy.drawing.formulas import LONGEST
from optpy.drawing.markup import Markup, cell, table
from optpy.energy.describe import declared, reads, residual_shape_text, to_latex
from optpy.symbolic.order import topological


def energy_html(problem: ir.Problem) -> Markup:
    """The terms of an energy and what it declares; its formulas, which notebooks typeset, where they are short."""
    terms = ((r.label, residual_shape_text(r), ", ".join(reads(r))) for r in problem.residuals)
    rows = ((d.name, d.kind, d.shape) for d in declared(problem))
    nodes = len(topological([c for r in problem.residuals for c in r.components]))
    formulas = cell(to_latex(problem)) if nodes <= LONGEST else ""
    return Markup(table(("term", "shape", "reads"), terms) + table(("name", "kind", "shape"), rows) + formulas)
