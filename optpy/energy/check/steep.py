"""Finds the operation of an expression whose derivative is not finite at a point."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, final

import numpy as np

from optpy.energy.check.at_point import AtPoint
from optpy.ir import Plane
from optpy.symbolic.derivative import local_partials
from optpy.symbolic.elements import is_element
from optpy.symbolic.expr import Call, Expr, Number, Product, Sum, Var
from optpy.symbolic.order import topological

_CURES: Final = {
    "hypot": "Write op.sqrt(x**2 + y**2 + 1e-12)",
    "asin": "Keep its argument inside -1 and 1, as by op.clip(x, -0.999999, 0.999999)",
    "acos": "Keep its argument inside -1 and 1, as by op.clip(x, -0.999999, 0.999999)",
    "atanh": "Keep its argument inside -1 and 1, as by op.clip(x, -0.999999, 0.999999)",
}
_CURE_OF_ROOT: Final = "Write op.sqrt(x + 1e-12)"
_CURE_OF_NORM: Final = "Write op.sqrt(op.dot(v, v) + 1e-12)"


@final
@dataclass(frozen=True, slots=True)
class Steep:
    """An operation, and why its derivative is not finite."""

    node: Expr
    """The operation's argument."""
    cause: str
    cure: str
    """An expression to write instead; "" where there is none in general."""


def steep_operation(root: Expr, by: Var, here: AtPoint) -> Steep | None:
    """The innermost operation whose derivative is not finite and counts; None: all are finite."""
    nodes = [e for e in topological([root]) if not (isinstance(e, Var) and isinstance(e.key, Plane))]
    values = dict(zip(nodes, here.values(nodes), strict=True))
    depends: set[Expr] = set()
    for node in nodes:
        if node is by or (not _is_constant(node) and any(c in depends for c in node.children)):
            depends.add(node)
    reached = _reached(root, values)
    for node in nodes:
        if node not in depends or node not in reached or node is by:
            continue
        slopes = here.values(local_partials(node))
        for n, (child, slope) in enumerate(zip(node.children, slopes, strict=True)):
            if child in depends and not np.isfinite(slope):
                return _told(node, n, values)
    return None


def _is_constant(node: Expr) -> bool:
    return node.boolean or (isinstance(node, Call) and node.op.name == "stop_gradient")


def _reached(root: Expr, values: dict[Expr, float]) -> set[Expr]:
    """The nodes that count: not those in the arm of a selection, or of a minimum, that is not taken."""
    found: set[Expr] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in found:
            continue
        found.add(node)
        if is_element(node):  # piecewise constant
            continue
        if isinstance(node, Product) and any(values[b] == 0 for b in node.guards):
            continue
        if isinstance(node, Call) and node.op.name in ("minimum", "maximum"):
            taken = [a for a in node.args if values[a] == values[node]]
            stack.append(taken[0] if taken else node.args[0])
            continue
        stack.extend(node.children)
    return found


def _told(node: Expr, n: int, values: dict[Expr, float]) -> Steep:
    if isinstance(node, Product):
        base, exponent = node.factors[n]
        return Steep(base, *_told_of_power(base, exponent, values[base]))
    if isinstance(node, Call):
        arguments = " and ".join(f"{values[a]:g}" for a in node.args)
        return Steep(node, f"{node.op.name} of {arguments} has no finite derivative", _CURES.get(node.op.name, ""))
    return Steep(node, "its derivative is not finite", "")


def _told_of_power(base: Expr, exponent: Number, value: float) -> tuple[str, str]:
    if exponent == Fraction(1, 2) and value == 0 and _is_sum_of_squares(base):
        return "the norm of a zero vector has no finite derivative", _CURE_OF_NORM
    if exponent == Fraction(1, 2):
        return f"the square root of {value:g} has no finite derivative", _CURE_OF_ROOT
    if exponent < 0:
        return f"a division by {value:g} has no finite derivative", ""
    return f"{value:g} ** {float(exponent):g} has no finite derivative", ""


def _is_sum_of_squares(e: Expr) -> bool:
    def is_square(t: Expr) -> bool:
        return isinstance(t, Product) and all(type(x) is int and x % 2 == 0 for _, x in t.factors)

    return isinstance(e, Sum) and e.constant == 0 and all(c > 0 and is_square(t) for c, t in e.terms)
