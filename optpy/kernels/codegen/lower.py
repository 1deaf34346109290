"""Routine to kernel: the domain split into an interior, where every access is inside, and borders.

In the interior the bounds checks on stencil offsets are 1 and their branches vanish by the polynomial rules; the
border keeps them. Accesses that are no fixed offset from the point (strides, mirrored or free indices) are checked
everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import final

from optpy.ir import Access, Domain, InBounds, LoopVariable, Routine, verify
from optpy.kernels.codegen.rewrite import map_routine
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import ONE, Expr, Var
from optpy.symbolic.factor import factor
from optpy.symbolic.traverse import map_variables, variables


@final
@dataclass(frozen=True, slots=True)
class Kernel:
    """A routine ready to be printed.

    Attributes:
        border: the routine as it is.
        interior: the routine with the bounds checks that always hold there removed.
        margins: for each loop variable, how far the interior stays away from the lower and the upper end.
    """

    border: Routine
    interior: Routine
    margins: tuple[tuple[int, int], ...]

    @property
    def name(self) -> str:
        """The name of the routine."""
        return self.border.name

    @property
    def domain(self) -> Domain:
        """The index space of the routine."""
        return self.border.domain


def lower(routine: Routine) -> Kernel:
    """Find the margins and the interior's form of a routine."""
    verify(routine)
    found = variables(routine.roots)
    low = dict.fromkeys(routine.domain, 0)
    high = dict.fromkeys(routine.domain, 0)
    for key in routine.keys:
        for index, d in _offsets(key, routine.domain):
            low[index] = max(low[index], -d)
            high[index] = max(high[index], d)
    checks = {v for v in found if isinstance(v.key, InBounds) and _offsets(v.key, routine.domain)}
    interior = map_routine(routine, partial(_without, checks)) if checks else routine
    return Kernel(routine, interior, tuple((low[i], high[i]) for i in routine.domain))


def _offsets(key: object, domain: Domain) -> list[tuple[LoopVariable, int]]:
    """The stencil offsets of a leaf: (loop variable, distance) for each axis over the variable's own dim."""
    match key:
        case Access():
            axes = list(zip(key.index, key.field.dims, strict=True))
        case InBounds():
            axes = [(key.index, key.dim)]
        case _:
            return []
    found = [(loop_offset(a, domain), d) for a, d in axes]
    return [f for f, d in found if f is not None and f[0].dim == d]


def loop_offset(a: Affine, domain: Domain) -> tuple[LoopVariable, int] | None:
    """(i, d) if the index is ``i + d`` for a loop variable of the domain."""
    for i in domain:
        d = a.offset_from(i)
        if d is not None:
            return i, d
    return None


def _without(checks: set[Var], roots: list[Expr]) -> list[Expr]:
    return factor(map_variables(roots, lambda v: ONE if v in checks else v))
