"""A kernel as a function of the loop IR: one nest over its points, interior and border apart."""

from __future__ import annotations

from optpy.ir import Incidence, LocalSum, Routine, loops
from optpy.kernels.codegen.lower import Kernel
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import ONE


def build_loops(kernel: Kernel) -> loops.Function:
    """The nest over a kernel's points, with what is computed at each; nothing has an address yet."""
    plain = all(m == (0, 0) for m in kernel.margins)
    border = () if plain else _at_point(kernel.border)
    points = loops.Points(kernel.domain, kernel.margins, _at_point(kernel.interior), border)
    return loops.Function(kernel.name, (points,))


def _at_point(routine: Routine) -> loops.Block:
    folds = [_fold(x, n) for n, x in enumerate(routine.locals)]
    stores = [loops.Store(loops.MemoryOperand(s.target), s.value) for s in routine.assignments]
    adds = [loops.Store(loops.MemoryOperand(x.target), x.value, "+=", atomic=True) for x in routine.atomic_adds]
    totals = [loops.Total(k, r.value, r.maximum) for k, r in enumerate(routine.reductions)]
    results: tuple[loops.Store | loops.Total, ...] = (*stores, *adds, *totals)
    return (*folds, loops.evaluate((r.value for r in results), "t"), *results)


def _fold(x: LocalSum, number: int) -> loops.Fold:
    adds = (loops.Accumulate(name, value) for name, value in zip(x.names, x.values, strict=True))
    body: loops.Block = (loops.evaluate(x.values, f"l{number}_"), *adds)
    for loop in reversed(x.loops):
        if isinstance(loop, Incidence):
            body = (loops.Edges(loop, body),)
        else:
            body = (loops.Loop(loop, Affine(0), loop.dim.length, body),)
    if x.condition is not ONE:
        condition = loops.evaluate((x.condition,), f"g{number}_")
        body = (condition, loops.If((loops.Holds(x.condition),), body))
    return loops.Fold(x.names, body)
