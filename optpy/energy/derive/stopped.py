"""Values that ``op.stop_gradient`` holds constant while a step is made: iteratively reweighted least squares.

With weights w that are functions of x, a step from x minimises ``1/2 ||F(y; w(x))||^2`` over y. Costs at different
weights are those of different problems, and are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable

from optpy.energy.derive.vectors import candidate
from optpy.energy.language.written_out import with_summands
from optpy.ir import Access, Role
from optpy.symbolic.expr import Call, Expr, var
from optpy.symbolic.order import topological
from optpy.symbolic.traverse import substitute, variables


def stopped(roots: Iterable[Expr]) -> list[Expr]:
    """The calls of ``stop_gradient``, those within others too."""
    return [e for e in topological(roots) if isinstance(e, Call) and e.op.name == "stop_gradient"]


def reads_unknown(roots: Iterable[Expr]) -> bool:
    """Whether the value of an unknown, or of one's tangent, is read, be it in a sum."""
    keys = (v.key for v in variables(with_summands(roots)))
    return any(isinstance(k, Access) and k.field.role in (Role.UNKNOWN, Role.TANGENT) for k in keys)


def at_candidate(roots: Iterable[Expr]) -> list[Expr]:
    """Expressions at the end of a step, but for what ``stop_gradient`` holds."""
    roots = list(roots)
    held = {e: e for e in stopped(roots)}
    moved: dict[Expr, Expr] = {
        v: var(Access(candidate(v.key.field), v.key.index, v.key.channel))
        for v in variables(roots)
        if isinstance(v.key, Access) and v.key.field.role is Role.UNKNOWN
    }
    return substitute(roots, held | moved)
