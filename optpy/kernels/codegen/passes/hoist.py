"""Dear values of params alone are computed once, before all loops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from optpy.ir import Hoisted, loops
from optpy.ir.loops.arithmetic import ALL, NUMBER, SELECT, TIMES, signs_of, with_args
from optpy.kernels.codegen.passes.share_reciprocals import given_alone
from optpy.symbolic.expr import Call, Expr, var
from optpy.symbolic.order import topological

_CHEAP = {TIMES.name, SELECT.name, ALL.name, NUMBER.name, "not", "less", "less_equal", "equal", "abs"}


def hoist(function: loops.Function) -> loops.Function:
    """Compute what needs a division, a root or a function of nothing but params at the head of the function."""
    roots = [v for s in loops.walk(function.body) if isinstance(s, loops.Evaluate) for v in s.values]
    found = _dear(roots)
    if not found:
        return function
    names = {e: var(Hoisted(f"given{n}")) for n, e in enumerate(found)}

    def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
        return names.get(node) or with_args(node, children)

    head: loops.Block = (loops.evaluate(found, "h"), *(loops.LetNumber(f"given{n}", e) for n, e in enumerate(found)))
    body = loops.rewrite(loops.map_values(function, rule).body, loops.with_own_leaves)
    return replace(function, body=(*head, *body))


def _dear(roots: Iterable[Expr]) -> list[Expr]:
    """The largest expressions of params alone that are dear to compute."""
    roots = list(roots)
    given = given_alone(roots)
    if not any(map(_is_dear, given)):
        return []
    order = topological(roots)
    dear: set[Expr] = set()
    for node in order:
        if node in given and not node.boolean and (_is_dear(node) or any(c in dear for c in node.children)):
            dear.add(node)
    needed = {c for node in order if node not in dear for c in node.children} | set(roots)
    return [node for node in order if node in dear and node in needed]


def _is_dear(node: Expr) -> bool:
    return isinstance(node, Call) and node.op.name not in _CHEAP and signs_of(node.op) is None
