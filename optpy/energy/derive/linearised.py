"""A residual with its derivatives: each is taken once, in the residual's own coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from optpy.energy.derive.vectors import DELTA, P, vector
from optpy.ir import Access, Residual, VectorKind, at_zero, is_unknown
from optpy.symbolic.count import count
from optpy.symbolic.derivative import Derivative
from optpy.symbolic.expr import Expr, add, mul, var
from optpy.symbolic.factor import factor
from optpy.symbolic.traverse import substitute, variables


@final
@dataclass(frozen=True, slots=True)
class LinearisedResidual:
    """A residual with its derivatives, in its own coordinates."""

    residual: Residual
    values: tuple[Expr, ...]
    """``residual.linearised`` where the tangents of manifolds are 0, factored."""
    partials: tuple[dict[Access, Expr], ...]
    """For each component, d component / d access for every access to an unknown."""
    jvps: tuple[Expr, ...]
    """For each component, (J p): the derivative along the vector field ``p``."""

    @property
    def accesses(self) -> list[Access]:
        """The accesses to unknowns that any component depends on, each once, in the order of their partials."""
        return list(dict.fromkeys(a for p in self.partials for a in p))


def linearise(residual: Residual) -> LinearisedResidual:
    """Differentiate a residual; J p is that of the vector field ``p``."""
    varied = factor(residual.linearised)
    unknowns = [v for v in variables(varied) if is_unknown(v.key)]
    derivative = Derivative(varied, unknowns)
    partials = tuple(
        dict(zip([v.key for v in vs], at_zero(derivative.partial(e, v) for v in vs), strict=True))
        for e, vs in ((e, derivative.variables(e)) for e in varied)
    )
    jvps = tuple(_jvp(derivative, e, p) for e, p in zip(varied, partials, strict=True))
    return LinearisedResidual(residual, tuple(at_zero(varied)), partials, jvps)


def _jvp(derivative: Derivative, e: Expr, partials: Mapping[Access, Expr]) -> Expr:
    """J p by one forward sweep or as a sum of partials, whichever takes fewer operations."""
    seeds = {var(a): var(along(a, P)) for a in partials}
    swept = factor(at_zero([derivative.jvp(e, seeds)]))
    summed = factor([add(*(mul(d, seeds[var(a)]) for a, d in partials.items()))])
    if swept == summed:
        return swept[0]
    # Both share the partials with the rest of the routine, so those count as present.
    shared = list(partials.values())
    return min(swept, summed, key=lambda roots: count([*roots, *shared]).cost)[0]


def along(access: Access, direction: VectorKind) -> Access:
    """The element of a solver's vector that belongs to an accessed element of an unknown."""
    return Access(vector(direction, access.field), access.index, access.channel)


def along_step(source: LinearisedResidual) -> list[Expr]:
    """J delta, of the step ``delta`` in place of ``p``."""
    replacement: dict[Expr, Expr] = {var(along(a, P)): var(along(a, DELTA)) for a in source.accesses}
    return substitute(source.jvps, replacement)
