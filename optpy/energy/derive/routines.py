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
from optpy.energy.derive.gather import Contribution, GatheredSum, SummandContribution, gather
from optpy.energy.derive.linearised import LinearisedResidual, along_step
from optpy.energy.derive.materialised import passes, store_jacobian, store_product
from optpy.energy.derive.normal_edges import NormalEdges
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
    Group,
    Reduce,
    Residual,
    ResidualSchedule,
    Role,
    Routine,
    canonical_domain,
    point,
)
from optpy.symbolic.expr import ZERO, Expr, add, const, logical_not, mul, negate, power, var
from optpy.symbolic.factor import factor

HALF = const(Fraction(1, 2))

ResidualSchedules = Mapping[str, ResidualSchedule]
"""By label, the schedules of residuals that read unknowns through a graph; where there is none, nothing is stored."""

NO_SCHEDULES: ResidualSchedules = {}

Fixed = Mapping[Field, Expr]
"""For each unknown, where its elements keep their value."""


def by_domain(residuals: Sequence[Residual], separate: Collection[str] = ()) -> list[tuple[Domain, list[Residual]]]:
    """Residuals over the same domain are computed together, but for those of separate terms."""
    groups: dict[tuple[Domain, str | None], list[Residual]] = {}
    for r in residuals:
        groups.setdefault((r.domain, r.term if r.term in separate else None), []).append(r)
    return [(domain, group) for (domain, _), group in groups.items()]


def in_passes(sources: Sequence[LinearisedResidual], separate: Collection[str] = ()) -> list[list[LinearisedResidual]]:
    """Residuals by the passes over the unknowns that gather them: those that are merged, then each separate term."""
    merged = [s for s in sources if s.residual.term not in separate]
    apart = [own for term in separate if (own := [s for s in sources if s.residual.term == term])]
    return [merged, *apart] if merged or not apart else apart


def by_grid(unknowns: Sequence[Field]) -> dict[tuple[Extent, ...], list[Field]]:
    """Unknowns on the same grid are computed together."""
    groups: dict[tuple[Extent, ...], list[Field]] = {}
    for u in unknowns:
        groups.setdefault(u.dims, []).append(u)
    return groups


# -- over residuals ----------------------------------------------------------------------------------------------


def cost(residuals: Sequence[Residual], separate: Collection[str] = ()) -> list[Routine]:
    """``1/2 sum r^2`` of each term; separate terms have passes of their own."""
    return [_cost(f"{Group.COST}_{n}", *group) for n, group in enumerate(by_domain(residuals, separate))]


def cost_of_step(residuals: Sequence[Residual]) -> list[Routine]:
    """``1/2 sum r^2`` of each term at the end of a step, with what ``stop_gradient`` holds taken at its beginning.

    The cost that a step is made for: only with one and the same weights can costs be compared. None, where nothing that
    is held reads an unknown, so that it is the cost.
    """
    if not reads_unknown(e for r in residuals for e in stopped(r.components)):
        return []
    return [
        _cost(
            f"{Group.COST_OF_STEP}_{n}",
            domain,
            [replace(r, components=tuple(at_candidate(r.components))) for r in group],
        )
        for n, (domain, group) in enumerate(by_domain(residuals))
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
    for n, (domain, group) in enumerate(by_domain(residuals)):
        stores = [
            Assignment(at(residual_field(r), domain, k), value)
            for r in group
            for k, value in enumerate(factor(r.components))
        ]
        routines.append(Routine(f"evalF_{n}", domain, tuple(stores)))
    return routines


def model_cost(sources: Sequence[LinearisedResidual], separate: Collection[str] = ()) -> list[Routine]:
    """``-(J delta).(F + J delta / 2)``: expanded, so that nothing large cancels."""
    routines = []
    source_of = {s.residual.label: s for s in sources}
    for n, (domain, group) in enumerate(by_domain([s.residual for s in sources], separate)):
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
    separate: Collection[str] = (),
    stencils: Sequence[NormalStencil] = (),
) -> dict[Group, list[Routine]]:
    """g = J^T F, and C: the diagonal of J^T J ("evalJTF"), or the upper triangle of each element's block.

    The variant with blocks, "evalJTF_block", is there only if ``blocks``, or if some entry off the diagonal is not zero
    by its form. Passes of sums come first; separate terms add to what earlier passes have stored. The first pass over a
    grid stores the stencils of J^T J that have summands.
    """
    of_sums = gradient_passes(sources, sums)
    routines = {name: under_names(name, of_sums) for name in (Group.GRADIENT, Group.GRADIENT_BLOCKS)}
    summands = gradient_summands(sums, of_sums)
    diagonal = not blocks
    for n, (dims, group) in enumerate(by_grid(unknowns).items()):
        kept = [s for s in stencils if s.dims == dims]
        added = [*summands, *(x for s in kept for x in s.summands)]
        totals = _totals(sources, separate, dims, GRADIENT_AND_BLOCKS, added)
        for total in totals:
            diagonal &= all(a == b or e is ZERO for u in group for (a, b), e in _block_of(total, u).items())
        for name, whole in ((Group.GRADIENT, False), (Group.GRADIENT_BLOCKS, True)):
            outputs = {key: x for u in group for key, x in gradient_outputs(u, whole).items()}
            found = [_pass(f"{name}_{n}", dims, outputs, fixed, totals, m, kept) for m in range(len(totals))]
            routines[name] += _with_largest(_one_after_another(found), group)
    return {Group.GRADIENT: routines[Group.GRADIENT]} if diagonal else routines


def _totals(
    sources: Sequence[LinearisedResidual],
    separate: Collection[str],
    dims: tuple[Extent, ...],
    contribution: Contribution,
    summands: Sequence[tuple[LinearisedResidual, SummandContribution]],
) -> list[GatheredSum]:
    """The sums over residuals of the passes over a grid; summands of sums are in the first."""
    own = [s for s in sources if any(a.field.dims == dims for a in s.accesses)]
    first, *others = in_passes(own, separate)
    return [gather(first, dims, contribution, summands), *(gather(some, dims, contribution) for some in others)]


def _pass(
    name: str,
    dims: tuple[Extent, ...],
    outputs: Mapping[Hashable, Output],
    fixed: Fixed,
    totals: Sequence[GatheredSum],
    number: int,
    kept: Sequence[NormalStencil] = (),
) -> Routine:
    """One of the passes over a grid, with what its residuals contribute: the first to all outputs, others to some.

    The first one stores stencils, too.
    """
    domain, total = canonical_domain(dims), totals[number]
    own = {x: e for key, x in outputs.items() if (e := total.total(key)) is not ZERO or not number}
    found = {at(x.field, domain, x.channel): _free(fixed, x.unknown, e) for x, e in own.items()}
    found |= {place: e for s in kept if not number for place, e in s.stored_with(total).items()}
    values = factor(found.values())
    stores = tuple(Assignment(t, v) for t, v in zip(found, values, strict=True))
    return Routine(f"{name}_term{number}" if number else name, domain, stores, locals=total.locals_of(values))


def _one_after_another(found: Sequence[Routine]) -> list[Routine]:
    """The passes over a grid of which those after the first add to what has been stored."""
    first, *others = (r for r in found if r.assignments)
    *before, last = first, *map(_adding, others)
    return [*(replace(r, prepares=True) for r in before), last]


def _adding(routine: Routine) -> Routine:
    stores = (replace(s, value=add(var(s.target), s.value)) for s in routine.assignments)
    return replace(routine, assignments=tuple(stores))


def _with_largest(passes_of_grid: Sequence[Routine], unknowns: Sequence[Field]) -> list[Routine]:
    """The passes over a grid; the last one has the largest |g|."""
    *before, last = passes_of_grid
    stored = {s.target: s.value for s in last.assignments}
    gradient = [at(vector(G, u), last.domain, a) for u in unknowns for a in range(u.channels)]
    largest = tuple(Reduce("gradient_max", stored.get(t, var(t)), maximum=True) for t in gradient)
    return [*before, replace(last, reductions=largest)]


def _block_of(total: GatheredSum, u: Field) -> dict[tuple[int, int], Expr]:
    n = range(u.channels)
    return {(a, b): total.total((C, u, a, b)) for a in n for b in n if a <= b}


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
    kept: tuple[Sequence[NormalStencil], Sequence[NormalEdges]] = ((), ()),
    separate: Collection[str] = (),
) -> dict[Group, list[Routine]]:
    """Ap = J^T J p ("applyJTJ"), Ap = J^T J p + D p ("applyJTJ_damped"); each with the dot product p.Ap.

    Passes that store the derivatives of sums, and J p of residuals over edges, come first. What other residuals add to
    J^T J is read from the stencils and the edges that hold it. Separate terms add to what earlier passes have stored.
    """
    gathered, stores = _stored(sources, {label for label, s in schedules.items() if s.product}, store_product)
    stencils, edges = kept
    summands = [*product_summands(sums), *(x.summand for x in edges)]
    routines = {}
    for name in (Group.PRODUCT, Group.PRODUCT_DAMPED):
        routines[name] = tangent_passes(name, sums) + passes(f"{name}_Jp", stores, prepares=True)
        routines[name] += product_passes(name, gathered, sums)
    for n, (dims, group) in enumerate(by_grid(unknowns).items()):
        totals = _totals(gathered, separate, dims, TIMES_JVP, summands)
        for stencil in stencils:
            totals[0].add_here(stencil.product if stencil.dims == dims else {})
        outputs = {key: x for u in group for key, x in product_outputs(u).items()}
        for name in (Group.PRODUCT, Group.PRODUCT_DAMPED):
            found = [_pass(f"{name}_{n}", dims, outputs, fixed, totals, m) for m in range(len(totals))]
            found[0] = _damped(found[0], group) if name is Group.PRODUCT_DAMPED else found[0]
            routines[name] += _one_after_another([_with_dot(r, group) for r in found])
    return routines


def _damped(routine: Routine, unknowns: Sequence[Field]) -> Routine:
    """A pass that stores Ap, + D p."""
    added = {
        at(vector(AP, u), routine.domain, a): mul(here(vector(D, u), a), here(vector(P, u), a))
        for u in unknowns
        for a in range(u.channels)
    }
    return replace(
        routine, assignments=tuple(replace(s, value=add(s.value, added[s.target])) for s in routine.assignments)
    )


def _with_dot(routine: Routine, unknowns: Sequence[Field]) -> Routine:
    """A pass with its part of p.Ap."""
    p = {at(vector(AP, u), routine.domain, a): here(vector(P, u), a) for u in unknowns for a in range(u.channels)}
    dot = add(*(mul(p[s.target], s.value) for s in routine.assignments))
    return replace(routine, reductions=(Reduce("pAp", dot),))


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
