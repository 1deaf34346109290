"""Bounds checks of what a loop adds, to memory or to sums, become its limits: where one fails, 0 is added."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from optpy.ir import InBounds, LoopVariable, loops
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import ONE, Expr, Product, Sum, Var
from optpy.symbolic.traverse import map_variables


def limit_loops(function: loops.Function) -> loops.Function:
    """Narrow every loop that adds to memory or to sums, and does nothing else, to where all that it adds is inside."""

    numbers = itertools.count()  # of limits: several loops may stand in one block

    def rule(s: loops.Statement) -> loops.Block:
        match s:
            case loops.Loop(body=(loops.Evaluate() as values, *added)) if added and all(map(_adds, added)):
                return _limited(s, values, numbers)
        return (s,)

    return replace(function, body=loops.rewrite(function.body, rule))


def _adds(s: loops.Statement) -> bool:
    match s:
        case loops.Store(update="+=") | loops.Accumulate(maximum=False, guard=None):
            return True
    return False


def _limited(loop: loops.Loop, values: loops.Evaluate, numbers: Iterator[int]) -> loops.Block:
    """The loop between limits, where the checks that do not change with its variable hold."""
    required = set.intersection(*map(_required, values.values))
    checks = [c for c in values.leaves if isinstance(c, InBounds) and c in required]
    fixed = tuple(c for c in checks if not c.index.reads([loop.variable]))
    limits = {c: found for c in checks if (found := _limits(c, loop.variable)) is not None}
    lets: list[loops.Statement] = []
    for (low, high), n in zip(limits.values(), numbers, strict=False):
        lets.append(loops.Let(f"from{n}", loops.MinMax("max", loop.low, low)))
        lets.append(loops.Let(f"to{n}", loops.MinMax("min", loop.high, high)))
        low, high = (Affine.of(loops.Variable(f"{name}{n}")) for name in ("from", "to"))
        loop = replace(loop, low=low, high=high)
    inside = (*lets, replace(loop, body=_without(loop.body, {*fixed, *limits})))
    return (loops.If(fixed, inside),) if fixed else inside


def _required(value: Expr) -> set[InBounds]:
    """Checks without which a value is 0."""
    match value:
        case Product():
            return {b.key for b, _ in value.factors if isinstance(b, Var) and isinstance(b.key, InBounds)}
        case Sum(constant=0):
            return set.intersection(*(_required(e) for _, e in value.terms))
        case Var(key=InBounds() as check):
            return {check}
    return set()


def _limits(check: InBounds, variable: LoopVariable | loops.Variable) -> tuple[Affine, Affine] | None:
    """The first value of a variable at which a check holds, and the one after the last; None where it is not so."""
    step, size = check.index.coefficient(variable), check.dim.length
    rest = check.index - Affine.of(variable) * step
    if abs(step) != 1 or rest.reads([variable]):
        return None
    return (rest * -1, size - rest) if step == 1 else (rest - size + 1, rest + 1)


def _without(body: loops.Block, checks: set[InBounds]) -> loops.Block:
    """The body, where checks are known to hold."""
    values, *added = body
    assert isinstance(values, loops.Evaluate)
    freed = dict(zip(values.values, map_variables(values.values, lambda v: ONE if v.key in checks else v), strict=True))
    part = loops.evaluate(freed.values(), values.prefix)
    reads = {key: replace(load, guards=tuple(g for g in load.guards if g not in checks)) for key, load in values.reads}
    leaves = set(part.leaves)
    part = replace(part, reads=tuple((key, load) for key, load in reads.items() if key in leaves))
    adds = (s for s in added if isinstance(s, loops.Store | loops.Accumulate))
    return (part, *(replace(s, value=freed[s.value]) for s in adds))
