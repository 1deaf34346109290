"""Sums, ``op.sum``: S = sum over k of b(i, k), with their part in J and in J^T.

A sum is computed by a loop and stored. Residuals that read it are differentiated by S as by an unknown, and the chain
rule is applied to vectors, never to entries of J. With r(S), the product J p takes

    S' = sum over k of db/dX p,    J p = dr/dX p + dr/dS S',

and the product with J^T, of what the residuals hold, v,

    s = (dr/dS)^T v,    J^T v = (dr/dX)^T v + sum over (i, k) of (db/dX)^T s,

gathered over residuals, then over the summands that read an element of X. Passes store S' and s. The block of J^T J at
an element is the sum of the squares of its paths, (db/dX)^T (dr/dS)^T (dr/dS) db/dX.

Reference: A. Griewank, A. Walther, "Evaluating Derivatives", 2008, sections 3.1 and 3.2 (forward and reverse mode).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import final

from optpy.energy.derive.contributions import GRADIENT_AND_BLOCKS, TIMES_JVP
from optpy.energy.derive.gather import GatheredSum, SummandContribution, gather
from optpy.energy.derive.linearised import LinearisedFuncs, LinearisedResidual, along_step, linearise
from optpy.energy.derive.materialised import func_memory
from optpy.energy.derive.vectors import AP, DELTA, C, G, P, at, block_channel, vector
from optpy.energy.derive.views import View
from optpy.ir import (
    REAL,
    Access,
    Assignment,
    Domain,
    Field,
    FieldChannel,
    Group,
    LocalName,
    LocalSum,
    Residual,
    Role,
    Routine,
    canonical_domain,
    point,
)
from optpy.symbolic.expr import ONE, ZERO, Expr, add, mul, var
from optpy.symbolic.factor import factor


@final
@dataclass(frozen=True, slots=True)
class DerivedSum:
    """A sum that depends on unknowns.

    Attributes:
        memory: that holds its values; what residuals are differentiated by, as by an unknown.
        summand: with its derivatives, over the points of the sum and the loops.
    """

    memory: Field
    summand: LinearisedResidual

    @property
    def domain(self) -> Domain:
        """Its points."""
        return canonical_domain(self.memory.dims)

    @property
    def loops(self) -> Domain:
        """The loop variables of the sum."""
        return self.summand.residual.domain[len(self.memory.dims) :]


def derived_sum(func: Field, others: LinearisedFuncs) -> DerivedSum:
    """A sum with the derivatives of its summand.

    Args:
        func: the sum.
        others: the intermediates that it reads.
    """
    assert func.definition is not None
    d = func.definition
    domain = (*canonical_domain(func.dims), *d.loops)
    as_residual = Residual(func.name, func.name, domain, d.values, d.linearised, (func.channels,), d.location)
    memory = Field(func_memory(func.name), func.dims, func.channels, REAL, Role.STORED, func.channel_axis)
    return DerivedSum(memory, linearise(as_residual, as_residual, others))


def read_from(memory: Field, moves: bool) -> LinearisedResidual:
    """A sum as residuals read it: its values from memory, its derivatives as those of an unknown."""
    domain = canonical_domain(memory.dims)
    accesses = [Access(memory, point(domain), c) for c in range(memory.channels)]
    values = tuple(map(var, accesses))
    as_residual = Residual(memory.name, memory.name, domain, values, values, (memory.channels,))
    if not moves:
        nothing: tuple[dict[Access, Expr], ...] = tuple({} for _ in values)
        return LinearisedResidual(as_residual, values, nothing, (ZERO,) * len(values))
    along = tuple(var(Access(vector(P, memory), point(domain), c)) for c in range(memory.channels))
    return LinearisedResidual(as_residual, values, tuple({a: ONE} for a in accesses), along)


# -- passes ------------------------------------------------------------------------------------------------------------


def summing(name: str, target: Field, loops: Domain, summands: Sequence[Expr]) -> Routine:
    """The routine that stores ``sum over loops of summands``, one for each channel of the target."""
    domain = canonical_domain(target.dims)
    names = tuple(f"sum{n}" for n in range(len(summands)))
    local = LocalSum(names, loops, ONE, tuple(factor(summands)))
    stores = tuple(Assignment(Access(target, point(domain), n), var(LocalName(x))) for n, x in enumerate(names))
    return Routine(name, domain, stores, locals=(local,), prepares=True)


def tangent_passes(group: Group, sums: Sequence[DerivedSum]) -> list[Routine]:
    """The derivatives S' of all sums along the direction of a group: p, or in the model's cost the step delta."""
    along_delta = group is Group.MODEL_COST
    return [
        summing(
            f"{group}_tangent{n}",
            vector(DELTA if along_delta else P, s.memory),
            s.loops,
            along_step(s.summand) if along_delta else s.summand.jvps,
        )
        for n, s in enumerate(sums)
    ]


def product_passes(group: Group, sources: Sequence[LinearisedResidual], sums: Sequence[DerivedSum]) -> list[Routine]:
    """``(dr/dS)^T J p`` of all sums; those that other sums are made of come last.

    Args:
        group: whose passes they are.
        sources: the linearised residuals.
        sums: each after those that it reads.
    """
    found = []
    for n, own in reversed([*enumerate(sums)]):
        total = gather(sources, own.memory.dims, TIMES_JVP, product_summands(sums[n + 1 :]))
        target = vector(AP, own.memory)
        outputs: dict[Hashable, Field] = {(AP, own.memory, c): target for c in range(target.channels)}
        found.append(_adjoints(f"{group}_adjoint{n}", own, total, outputs))
    return found


def gradient_passes(sources: Sequence[LinearisedResidual], sums: Sequence[DerivedSum]) -> list[Routine]:
    """``(dr/dS)^T F``, and the upper triangle of ``(dr/dS)^T (dr/dS)``, of all sums, as in `product_passes`."""
    found: list[Routine] = []
    for n, own in reversed([*enumerate(sums)]):
        later = sums[n + 1 :]
        total = gather(sources, own.memory.dims, GRADIENT_AND_BLOCKS, gradient_summands(later, found))
        target, channels = vector(G, own.memory), range(own.memory.channels)
        outputs: dict[Hashable, Field] = {(G, own.memory, c): target for c in channels}
        outputs |= {(C, own.memory, a, b): _weights(own) for a in channels for b in channels if a <= b}
        found.append(_adjoints(f"adjoint{n}", own, total, outputs))
    return found


def _weights(own: DerivedSum) -> Field:
    return vector(C, own.memory, blocks=True)


def _adjoints(name: str, own: DerivedSum, total: GatheredSum, outputs: Mapping[Hashable, Field]) -> Routine:
    """The routine that stores sums over residuals; each field takes its outputs as its channels, in order."""
    values = factor(map(total.total, outputs))
    channels: dict[Field, int] = {}
    stores = []
    for field, value in zip(outputs.values(), values, strict=True):
        channel = channels[field] = channels.get(field, -1) + 1
        stores.append(Assignment(at(field, own.domain, channel), value))
    return Routine(name, own.domain, tuple(stores), locals=total.locals_of(values), prepares=True)


def under_names(group: Group, passes: Sequence[Routine]) -> list[Routine]:
    """Passes that several groups have, under names of one of them."""
    return [replace(r, name=f"{group}_{r.name}") for r in passes]


# -- from sums to unknowns ---------------------------------------------------------------------------------------------

Summand = tuple[LinearisedResidual, SummandContribution]


def product_summands(sums: Sequence[DerivedSum]) -> list[Summand]:
    """The summands with what they add to J^T (J p): ``(db/dX)^T s``."""
    return [(s.summand, partial(_product_of, s)) for s in sums]


def _product_of(own: DerivedSum, view: View) -> dict[Hashable, Expr]:
    return {(AP, u, a): e for (u, a), e in _through(own, view, vector(AP, own.memory)).items()}


def gradient_summands(sums: Sequence[DerivedSum], passes: Sequence[Routine]) -> list[Summand]:
    """The summands with what they add to g and to the blocks of J^T J.

    Args:
        sums: whose summands.
        passes: the gradient passes: blocks are added where those store weights that are not 0.
    """
    stored = {a.target: a.value for r in passes for a in r.assignments}
    return [(s.summand, partial(_gradient_of, s, stored)) for s in sums]


def _gradient_of(own: DerivedSum, stored: Mapping[Access, Expr], view: View) -> dict[Hashable, Expr]:
    found: dict[Hashable, Expr] = {(G, u, a): e for (u, a), e in _through(own, view, vector(G, own.memory)).items()}
    columns = _columns(own, view)
    blocks: dict[Hashable, list[Expr]] = {}
    for m, first in enumerate(columns):
        for n, second in enumerate(columns):
            weight = at(_weights(own), own.domain, block_channel(own.memory, m, n))
            if stored[weight] is ZERO:
                continue
            (here,) = view.seen([var(weight)])
            for (u, a), d in first.items():
                for (w, b), e in second.items():
                    if u == w and a <= b:
                        blocks.setdefault((C, u, a, b), []).append(mul(here, d, e))
    return found | {key: add(*parts) for key, parts in blocks.items()}


def _through(own: DerivedSum, view: View, adjoint: Field) -> dict[FieldChannel, Expr]:
    """``(db/dX)^T s`` at the element that a summand is seen from."""
    found: dict[FieldChannel, list[Expr]] = {}
    for channel, column in enumerate(_columns(own, view)):
        (here,) = view.seen([var(at(adjoint, own.domain, channel))])
        for x, d in column.items():
            found.setdefault(x, []).append(mul(d, here))
    return {x: add(*parts) for x, parts in found.items()}


def _columns(own: DerivedSum, view: View) -> list[dict[FieldChannel, Expr]]:
    """For each channel of a sum, the partials of its summand by what is seen at the view."""
    found = []
    for column in view.columns:
        found.append(dict(zip(column, view.seen(column.values()), strict=True)))
    return found
