"""A residual with its derivatives: each is taken once, in the residual's own coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from optpy.energy.derive.vectors import DELTA, P, vector
from optpy.energy.language.written_out import moved_index, moved_to, with_formulas
from optpy.ir import Access, Field, Residual, VectorKind, at_zero, is_unknown
from optpy.symbolic.count import count
from optpy.symbolic.derivative import Derivative
from optpy.symbolic.expr import ONE, Expr, Var, add, mul, var
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


LinearisedFuncs = Mapping[Field, LinearisedResidual]
"""Intermediates with their derivatives, each over its own grid like a residual; none reads another one any more."""

NO_FUNCS: LinearisedFuncs = {}


def linearise(
    residual: Residual, with_funcs: Residual | None = None, funcs: LinearisedFuncs = NO_FUNCS
) -> LinearisedResidual:
    """Differentiate a residual; J p is that of the vector field ``p``.

    Derivatives through an intermediate are products with its own, by the chain rule: its formula is not differentiated
    again for each residual that reads it.

    Args:
        residual: with all intermediates written out.
        with_funcs: as it reads intermediates; None: it reads none.
        funcs: those intermediates.
    """
    varied = factor((with_funcs or residual).linearised)
    through = _Through(funcs)
    moving = [v for v in variables(varied) if is_unknown(v.key) or through.moves(v.key)]
    derivative = Derivative(varied, moving)
    own = [
        dict(zip([v.key for v in vs], at_zero(derivative.partial(e, v) for v in vs), strict=True))
        for e, vs in ((e, derivative.variables(e)) for e in varied)
    ]
    partials = tuple(map(through.chained, own))
    jvps = tuple(_jvp(derivative, e, p, through.seeds(o)) for e, p, o in zip(varied, partials, own, strict=True))
    return LinearisedResidual(residual, tuple(through.values(at_zero(varied))), partials, tuple(through.values(jvps)))


@final
class _Through:
    """The chain rule through intermediates."""

    def __init__(self, funcs: LinearisedFuncs) -> None:
        self._funcs = funcs
        self._formulas = {f: s.values for f, s in funcs.items()}

    def moves(self, key: object) -> bool:
        """Whether a leaf is a channel of an intermediate that depends on an unknown."""
        return isinstance(key, Access) and key.field in self._funcs and bool(self._source(key).partials[key.channel])

    def _source(self, access: Access) -> LinearisedResidual:
        return self._funcs[access.field]

    def values(self, roots: Iterable[Expr]) -> list[Expr]:
        """Expressions with the values of intermediates in place of what they read of them."""
        return with_formulas(roots, self._formulas) if self._funcs else list(roots)

    def chained(self, own: Mapping[Access, Expr]) -> dict[Access, Expr]:
        """``d r / d X`` from the partials of a residual with respect to unknowns and intermediates."""
        if not self._funcs:
            return dict(own)
        found: dict[Access, list[Expr]] = {}
        for access, d in zip(own, self.values(own.values()), strict=True):
            for x, e in self._partials(access).items():
                found.setdefault(x, []).append(mul(d, e))
        return {x: add(*parts) for x, parts in found.items()}

    def _partials(self, access: Access) -> dict[Access, Expr]:
        """``d access / d X``."""
        if access.field not in self._funcs:
            return {access: ONE}
        partials = self._source(access).partials[access.channel]
        accesses = [Access(a.field, moved_index(a.index, access), a.channel) for a in partials]
        return dict(zip(accesses, moved_to(partials.values(), access.field, access.index), strict=True))

    def seeds(self, accesses: Iterable[Access]) -> dict[Var, Expr]:
        """The derivatives of what a residual reads along ``p``."""
        return {var(a): self._along_p(a) for a in accesses}

    def _along_p(self, access: Access) -> Expr:
        if access.field not in self._funcs:
            return var(along(access, P))
        return moved_to([self._source(access).jvps[access.channel]], access.field, access.index)[0]


def _jvp(derivative: Derivative, e: Expr, partials: Mapping[Access, Expr], seeds: Mapping[Var, Expr]) -> Expr:
    """J p by one forward sweep or as a sum of partials, whichever takes fewer operations."""
    swept = factor(at_zero([derivative.jvp(e, seeds)]))
    summed = factor([add(*(mul(d, var(along(a, P))) for a, d in partials.items()))])
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
