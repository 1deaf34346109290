"""The routines of an energy: cost, evalF and modelcost over residuals; evalJTF and applyJTJ over unknowns.

Names follow Opt. With cost = 1/2 ||F||^2: ``evalJTF`` is g = J^T F with the diagonal (or the blocks) C of J^T J in the
same pass, ``applyJTJ`` is Ap = J^T J p (+ D p when damped) with the dot product p.Ap, ``modelcost`` is the decrease
that the linear model predicts, -(J delta).(F + J delta / 2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import final

from optpy.energy.derive.contributions import GRADIENT_AND_BLOCKS, TIMES_JVP
from optpy.energy.derive.gather import GatheredSum, gather
from optpy.energy.derive.linearised import LinearisedResidual, along_step
from optpy.energy.derive.materialised import passes, store_jacobian, store_product
from optpy.energy.derive.normal_stencil import NormalStencil
from optpy.energy.derive.stopped import at_candidate, reads_unknown, stopped
from optpy.energy.derive.sums import (
    DerivedSum,
    gradient_passes,
    gradient_summands,
    product_passes,
    product_summands,
    tangent_passes,
    under_names,
)
from optpy.energy.derive.vectors import AP, C, D, G, P, at, block_channel, here, vector
from optpy.ir import (
    REAL,
    Access,
    Assignment,
    Domain,
    Extent,
    Field,
    FieldChannel,
    Group,
    Reduce,
    Residual,
    ResidualSchedule,
    Role,
    Routine,
    canonical_domain,
    point,
)
from optpy.symbolic.expr import ZERO, Expr, add, const, logical_not, mul, negate, power
from optpy.symbolic.factor import factor

HALF = const(Fraction(1, 2))

ResidualSchedules = Mapping[str, ResidualSchedule]
"""By label, the schedules of residuals that read unknowns through a graph; where there is none, nothing is stored."""

NO_SCHEDULES: ResidualSchedules = {}

Fixed = Mapping[Field, Expr]
"""For each unknown, where its elements keep their value."""


def by_domain(residuals: Sequence[Residual]) -> dict[Domain, list[Residual]]:
    """Residuals over the same domain are computed together."""
    groups: dict[Domain, list[Residual]] = {}
    for r in residuals:
        groups.setdefault(r.domain, []).append(r)
    return groups


def by_grid(unknowns: Sequence[Field]) -> dict[tuple[Extent, ...], list[Field]]:
    """Unknowns on the same grid are computed together."""
    groups: dict[tuple[Extent, ...], list[Field]] = {}
    for u in unknowns:
        groups.setdefault(u.dims, []).append(u)
    return groups


# -- over residuals ----------------------------------------------------------------------------------------------


def cost(residuals: Sequence[Residual]) -> list[Routine]:
    """``1/2 sum r^2`` of each term."""
    return [_cost(f"{Group.COST}_{n}", *group) for n, group in enumerate(by_domain(residuals).items())]


def cost_of_step(residuals: Sequence[Residual]) -> list[Routine]:
    """``1/2 sum r^2`` of each term at the end of a step, with what ``stop_gradient`` holds taken at its beginning.

    The cost that a step is made for: only with one and the same weights can costs be compared. None, where nothing that
    is held reads an unknown, so that it is the cost.
    """
    frozen = {r: at_candidate(r.components) for r in residuals}
    if not any(reads_unknown(stopped(components)) for components in frozen.values()):
        return []
    return [
        _cost(f"{Group.COST_OF_STEP}_{n}", domain, [replace(r, components=tuple(frozen[r])) for r in group])
        for n, (domain, group) in enumerate(by_domain(residuals).items())
    ]


def _cost(name: str, domain: Domain, group: Sequence[Residual]) -> Routine:
    terms: dict[str, list[Expr]] = {}
    for r in group:
        terms.setdefault(r.term, []).extend(mul(HALF, power(c, 2)) for c in r.components)
    values = factor(add(*squares) for squares in terms.values())
    reductions = tuple(Reduce(f"cost:{t}", v) for t, v in zip(terms, values, strict=True))
    return Routine(name, domain, reductions=reductions)


def residual_field(residual: Residual) -> Field:
    """The field in which evalF stores a residual."""
    dims = tuple(i.dim for i in residual.domain)
    return Field(f"F.{residual.label}", dims, len(residual.components), REAL, Role.VECTOR)


def eval_f(residuals: Sequence[Residual]) -> list[Routine]:
    """F itself, one field for each residual."""
    routines = []
    for n, (domain, group) in enumerate(by_domain(residuals).items()):
        stores = [
            Assignment(at(residual_field(r), domain, k), value)
            for r in group
            for k, value in enumerate(factor(r.components))
        ]
        routines.append(Routine(f"evalF_{n}", domain, tuple(stores)))
    return routines


def model_cost(sources: Sequence[LinearisedResidual]) -> list[Routine]:
    """``-(J delta).(F + J delta / 2)``: expanded, so that nothing large cancels."""
    routines = []
    source_of = {s.residual.label: s for s in sources}
    for n, (domain, group) in enumerate(by_domain([s.residual for s in sources]).items()):
        parts = []
        for source in (source_of[r.label] for r in group):
            for value, jvp in zip(source.values, along_step(source), strict=True):
                parts.append(mul(jvp, add(value, mul(HALF, jvp))))
        reductions = (Reduce("model_cost_change", negate(add(*parts))),)
        routines.append(Routine(f"{Group.MODEL_COST}_{n}", domain, reductions=reductions))
    return routines


# -- over unknowns -----------------------------------------------------------------------------------------------


def stored_jacobians(
    sources: Sequence[LinearisedResidual], schedules: ResidualSchedules
) -> tuple[list[LinearisedResidual], list[Routine]]:
    """The residuals with J read from memory where their schedule says so, and the routines that put it there."""
    stored = {label for label, s in schedules.items() if s.jacobian}
    read, stores = _stored(sources, stored, store_jacobian)
    return read, passes(Group.JACOBIAN, stores, prepares=True)


def _stored(
    sources: Sequence[LinearisedResidual],
    labels: Collection[str],
    store: Callable[[LinearisedResidual], tuple[LinearisedResidual, list[Assignment]]],
) -> tuple[list[LinearisedResidual], list[tuple[Residual, Sequence[Assignment]]]]:
    """The residuals, those of the given labels read from memory, and what puts each there."""
    read = [store(s) if s.residual.label in labels else (s, []) for s in sources]
    return [s for s, _ in read], [(s.residual, own) for s, (_, own) in zip(sources, read, strict=True)]


def _free(fixed: Fixed, unknown: Field, e: Expr) -> Expr:
    """e where the unknown is solved for, 0 where it is fixed (a zero column of J)."""
    return mul(logical_not(fixed[unknown]), e) if unknown in fixed else e


def eval_jtf(
    sources: Sequence[LinearisedResidual],
    unknowns: Sequence[Field],
    fixed: Fixed,
    blocks: bool = False,
    sums: Sequence[DerivedSum] = (),
) -> dict[Group, list[Routine]]:
    """g = J^T F, and C: the diagonal of J^T J ("evalJTF"), or the upper triangle of each element's block.

    The variant with blocks, "evalJTF_block", is there only if ``blocks``, or if some entry off the diagonal is not zero
    by its form. Passes of sums come first.
    """
    of_sums = gradient_passes(sources, sums)
    routines = {name: under_names(name, of_sums) for name in (Group.GRADIENT, Group.GRADIENT_BLOCKS)}
    summands = gradient_summands(sums, of_sums)
    diagonal = not blocks
    for n, (dims, group) in enumerate(by_grid(unknowns).items()):
        total = gather(sources, dims, GRADIENT_AND_BLOCKS, summands)
        diagonal &= all(a == b or e is ZERO for u in group for (a, b), e in _block_of(total, u).items())
        for name, whole in ((Group.GRADIENT, False), (Group.GRADIENT_BLOCKS, True)):
            routines[name].append(_gradient_routine(f"{name}_{n}", dims, group, fixed, total, whole))
    return {Group.GRADIENT: routines[Group.GRADIENT]} if diagonal else routines


def _block_of(total: GatheredSum, u: Field) -> dict[tuple[int, int], Expr]:
    n = range(u.channels)
    return {(a, b): total.total((C, u, a, b)) for a in n for b in n if a <= b}


def _gradient_routine(
    name: str, dims: tuple[Extent, ...], group: Sequence[Field], fixed: Fixed, total: GatheredSum, blocks: bool
) -> Routine:
    domain = canonical_domain(dims)
    outputs = {key: x for u in group for key, x in gradient_outputs(u, blocks).items()}
    targets = [at(x.field, domain, x.channel) for x in outputs.values()]
    values = factor(_free(fixed, x.unknown, total.total(key)) for key, x in outputs.items())
    gradient = [v for t, v in zip(targets, values, strict=True) if t.field in [vector(G, u) for u in group]]
    reductions = tuple(Reduce("gradient_max", v, maximum=True) for v in gradient)
    stores = tuple(Assignment(t, v) for t, v in zip(targets, values, strict=True))
    return Routine(name, domain, stores, reductions, total.locals_of(values))


@final
@dataclass(frozen=True, slots=True)
class Output:
    """The target of what residuals contribute to an unknown's elements: a channel of a vector of the solver."""

    unknown: Field
    field: Field
    channel: int


def gradient_outputs(unknown: Field, blocks: bool) -> dict[Hashable, Output]:
    """The targets of g and C of an unknown, by the keys of ``GRADIENT_AND_BLOCKS``."""
    g, c = vector(G, unknown), vector(C, unknown, blocks)
    outputs: dict[Hashable, Output] = {(G, unknown, a): Output(unknown, g, a) for a in range(unknown.channels)}
    return outputs | {(C, unknown, *entry): Output(unknown, c, n) for entry, n in _entries(unknown, blocks)}


def product_outputs(unknown: Field) -> dict[Hashable, Output]:
    """The targets of Ap of an unknown, by the keys of ``TIMES_JVP``."""
    return {(AP, unknown, a): Output(unknown, vector(AP, unknown), a) for a in range(unknown.channels)}


def _entries(unknown: Field, blocks: bool) -> list[tuple[tuple[int, int], int]]:
    n = range(unknown.channels)
    if not blocks:
        return [((a, a), a) for a in n]
    return [((a, b), block_channel(unknown, a, b)) for a in n for b in n if a <= b]


def apply_jtj(
    sources: Sequence[LinearisedResidual],
    unknowns: Sequence[Field],
    fixed: Fixed,
    schedules: ResidualSchedules = NO_SCHEDULES,
    sums: Sequence[DerivedSum] = (),
    stencils: Sequence[NormalStencil] = (),
) -> dict[Group, list[Routine]]:
    """Ap = J^T J p ("applyJTJ"), Ap = J^T J p + D p ("applyJTJ_damped"); each with the dot product p.Ap.

    Passes that store the derivatives of sums, and J p of residuals over edges, come first. What other residuals add to
    J^T J is read from the stencils that hold it.
    """
    gathered, stores = _stored(sources, {label for label, s in schedules.items() if s.product}, store_product)
    routines = {}
    for name in (Group.PRODUCT, Group.PRODUCT_DAMPED):
        routines[name] = tangent_passes(name, sums) + passes(f"{name}_Jp", stores, prepares=True)
        routines[name] += product_passes(name, gathered, sums)
    for n, (dims, group) in enumerate(by_grid(unknowns).items()):
        total = gather(gathered, dims, TIMES_JVP, product_summands(sums))
        for stencil in stencils:
            total.add_here(stencil.product if stencil.dims == dims else {})
        elements = [(u, a) for u in group for a in range(u.channels)]
        plain = factor(_free(fixed, u, total.total((AP, u, a))) for u, a in elements)
        damping = [mul(here(vector(D, u), a), here(vector(P, u), a)) for u, a in elements]
        damped = [add(v, d) for v, d in zip(plain, damping, strict=True)]
        for name, values in ((Group.PRODUCT, plain), (Group.PRODUCT_DAMPED, damped)):
            routines[name].append(_product_routine(f"{name}_{n}", dims, elements, values, total))
    return routines


def _product_routine(
    name: str, dims: tuple[Extent, ...], elements: Sequence[FieldChannel], values: Sequence[Expr], total: GatheredSum
) -> Routine:
    domain = canonical_domain(dims)
    stores = tuple(Assignment(at(vector(AP, u), domain, a), v) for v, (u, a) in zip(values, elements, strict=True))
    dot = add(*(mul(here(vector(P, u), a), v) for v, (u, a) in zip(values, elements, strict=True)))
    return Routine(name, domain, stores, (Reduce("pAp", dot),), total.locals_of(values))


def fixed_masks(unknowns: Sequence[Field], fixed: Fixed) -> list[Routine]:
    """1 at every point of a grid where some unknown is solved for: the points that the solver visits."""
    routines = []
    for n, (dims, group) in enumerate(by_grid(unknowns).items()):
        if all(u in fixed for u in group):
            solved = logical_not(mul(*(fixed[u] for u in group)))
            domain = canonical_domain(dims)
            routines.append(
                Routine(
                    f"{Group.SOLVED}_{n}", domain, (Assignment(Access(solved_field(dims), point(domain), 0), solved),)
                )
            )
    return routines


def solved_field(dims: tuple[Extent, ...]) -> Field:
    """The field in which ``fixed_masks`` stores the points of a grid that are solved for."""
    return Field(f"solved.{'.'.join(map(str, dims))}", dims, 1, "bool", Role.STORED)
