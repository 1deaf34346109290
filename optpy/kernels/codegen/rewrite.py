"""Applying a rewrite of expressions to a whole routine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from optpy.ir import Routine
from optpy.symbolic.expr import Expr


def map_routine(routine: Routine, rewrite: Callable[[list[Expr]], list[Expr]]) -> Routine:
    """The routine with all its expressions rewritten together, so that shared nodes stay shared."""
    new: Iterator[Expr] = iter(rewrite(routine.roots))
    assignments = tuple(replace(s, value=next(new)) for s in routine.assignments)
    atomic_adds = tuple(replace(x, value=next(new)) for x in routine.atomic_adds)
    reductions = tuple(replace(r, value=next(new)) for r in routine.reductions)
    locals_ = tuple(replace(x, condition=next(new), values=tuple(next(new) for _ in x.values)) for x in routine.locals)
    return replace(routine, assignments=assignments, atomic_adds=atomic_adds, reductions=reductions, locals=locals_)
