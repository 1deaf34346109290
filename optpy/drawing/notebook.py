"""Energies and results as notebooks show them."""

from __future__ import annotations

from optpy import ir
from optpy.drawing.markup import Markup, cell, table
from optpy.energy.describe import reads, residual_shape_text, to_latex
from optpy.energy.language.declarations import shape_text
from optpy.energy.language.graph import slots_text
from optpy.symbolic.order import topological

_LONGEST = 300
"""Nodes of all formulas that one still reads."""


def energy_html(problem: ir.Problem) -> Markup:
    """The terms of an energy and what it declares; its formulas, which notebooks typeset, where they are short."""
    terms = ((r.label, residual_shape_text(r), ", ".join(reads(r))) for r in problem.residuals)
    declared = [
        *((u.name, "unknown", shape_text(u)) for u in problem.unknowns),
        *((f.name, "array", shape_text(f)) for f in problem.fields if f.role is not ir.Role.UNKNOWN),
        *((g.name, "graph", f"{g.edges} of {slots_text(g)}") for g in problem.graphs),
        *((p.name, "param", "") for p in problem.params),
        *((f.name, "Func", shape_text(f)) for f in problem.funcs),
    ]
    nodes = len(topological([c for r in problem.residuals for c in r.components]))
    formulas = cell(to_latex(problem)) if nodes <= _LONGEST else ""
    return Markup(table(("term", "shape", "reads"), terms) + table(("name", "kind", "shape"), declared) + formulas)
