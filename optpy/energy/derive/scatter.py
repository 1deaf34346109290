"""J^T F, J^T J p and the preconditioner as scatters over hyper-edges: each edge adds to what it reads.

One pass over the edges computes J p once and adds J^T (J p) to each element that the edge reads, by atomic additions,
where a gather visits an edge from each of its vertices and computes J p again. The order of the additions, and with
it the rounding of the sums, is left open. Residuals without graphs stay gathers: their sums, or 0, are stored before
the edges add to them.

Reference: DeVito et al., "Opt: A Domain Specific Language for Non-linear Least Squares Optimization", 2017, section 5.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from optpy.energy.derive.contributions import GRADIENT_AND_BLOCKS, TIMES_JVP
from optpy.energy.derive.gather import Contribution, contributed
from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.routines import (
    Fixed,
    Output,
    by_domain,
    by_grid,
    gradient_outputs,
    product_outputs,
)
from optpy.energy.derive.vectors import G, at, here, vector
from optpy.energy.derive.views import MultiIndex, View, columns_at
from optpy.ir import Access, Assignment, AtomicAdd, Extent, Field, Group, Reduce, Role, Routine, canonical_domain
from optpy.symbolic.expr import ONE, ZERO, Expr, add, logical_not, mul, power, var
from optpy.symbolic.factor import factor
from optpy.symbolic.inversion import Inverse


def product_of_an_edge(source: LinearisedResidual) -> tuple[list[Expr], list[Expr]]:
    """One edge's part of a product: the numbers of J^T (J p) that it adds, and those whose sum is |J p|^2."""
    outputs = {key: x for u in _unknowns(source) for key, x in product_outputs(u).items()}
    return list(_additions([source], outputs, TIMES_JVP).values()), _squares(source)


# -- groups of routines ------------------------------------------------------------------------------------------------


def with_edges(
    groups: Mapping[Group, Sequence[Routine]],
    scattered: Sequence[LinearisedResidual],
    unknowns: Sequence[Field],
    fixed: Fixed,
    separate: Collection[str],
) -> dict[Group, list[Routine]]:
    """The groups of J^T F and of products to which edges add.

    In the order of the routines, Ap = what is gathered (+ D p), or 0; then ``Ap += J^T (J p)`` from each edge. The dot
    product p.Ap is what both add to "pAp": p.(what is gathered), and ||J p||^2. Likewise g and C = what is gathered, or
    0; then what each edge adds to them; then the largest |g| of the grids that edges add to.

    Args:
        groups: what is gathered.
        scattered: the residuals whose edges add.
        unknowns, fixed: of the energy.
        separate: terms whose edges have passes of their own.
    """
    found = {Group.JACOBIAN: [*groups[Group.JACOBIAN], *_free_masks(scattered, fixed)]}
    outputs = {key: x for u in unknowns for key, x in product_outputs(u).items()}
    for name in (Group.PRODUCT, Group.PRODUCT_DAMPED):
        edges = _over_edges(f"{name}_scatter", scattered, fixed, outputs, TIMES_JVP, True, separate)
        stores = groups[name]
        found[name] = [*_barrier_after(map(_without_zeros, stores)), *edges] if edges else [*stores]
    for name in (Group.GRADIENT, Group.GRADIENT_BLOCKS):
        if name in groups:
            found[name] = _gradient(name, groups[name], scattered, unknowns, fixed, separate)
    return found


def _gradient(
    name: Group,
    stores: Sequence[Routine],
    scattered: Sequence[LinearisedResidual],
    unknowns: Sequence[Field],
    fixed: Fixed,
    separate: Collection[str],
) -> list[Routine]:
    outputs = {key: x for u in unknowns for key, x in gradient_outputs(u, name is Group.GRADIENT_BLOCKS).items()}
    edges = _over_edges(f"{name}_scatter", scattered, fixed, outputs, GRADIENT_AND_BLOCKS, False, separate)
    result = [*_barrier_after(stores), *_barrier_after(edges)] if edges else [*stores]
    reached = {x.target.field.dims for r in edges for x in r.atomic_adds}
    result = [_without_reductions(r) if _dims(r) in reached else r for r in result]
    return result + _largest_gradient(f"{name}_max", [u for u in unknowns if u.dims in reached])


def couples_channels(source: LinearisedResidual) -> bool:
    """Whether some entry off the diagonal of an element's block is not zero by its form."""
    beside: dict[Hashable, Output] = {}
    for u in _unknowns(source):
        diagonal = gradient_outputs(u, blocks=False)
        beside |= {key: x for key, x in gradient_outputs(u, blocks=True).items() if key not in diagonal}
    return bool(_additions([source], beside, GRADIENT_AND_BLOCKS))


def _free_masks(scattered: Sequence[LinearisedResidual], fixed: Fixed) -> list[Routine]:
    """Masks that edges read: 1 where an element of an unknown is solved for, and may be added to."""
    masked = dict.fromkeys(u for s in scattered for u in _unknowns(s) if u in fixed)
    routines = []
    for n, (dims, group) in enumerate(by_grid(list(masked)).items()):
        domain = canonical_domain(dims)
        stores = tuple(Assignment(at(_free_field(u), domain, 0), logical_not(fixed[u])) for u in group)
        routines.append(Routine(f"free_{n}", domain, stores, prepares=True))
    return routines


def _free_field(unknown: Field) -> Field:
    return Field(f"free.{unknown.name}", unknown.dims, 1, "bool", Role.STORED)


def _unknowns(source: LinearisedResidual) -> list[Field]:
    return list(dict.fromkeys(a.field for a in source.accesses))


def _barrier_after(routines: Iterable[Routine]) -> list[Routine]:
    *before, last = routines
    return [*before, replace(last, prepares=True)]


def _without_zeros(routine: Routine) -> Routine:
    """Without sums of nothing but 0."""
    return replace(routine, reductions=tuple(r for r in routine.reductions if r.value is not ZERO))


def _without_reductions(routine: Routine) -> Routine:
    return replace(routine, reductions=())


def _dims(routine: Routine) -> tuple[Extent, ...]:
    return tuple(i.dim for i in routine.domain)


def _largest_gradient(name: str, unknowns: Sequence[Field]) -> list[Routine]:
    result = []
    for n, (dims, group) in enumerate(by_grid(unknowns).items()):
        gradient = [here(vector(G, u), a) for u in group for a in range(u.channels)]
        reductions = tuple(Reduce("gradient_max", g, maximum=True) for g in gradient)
        result.append(Routine(f"{name}_{n}", canonical_domain(dims), reductions=reductions))
    return result


# -- over edges --------------------------------------------------------------------------------------------------------


def _over_edges(
    name: str,
    sources: Sequence[LinearisedResidual],
    fixed: Fixed,
    outputs: Mapping[Hashable, Output],
    contribution: Contribution,
    dot: bool,
    separate: Collection[str],
) -> list[Routine]:
    """One routine for each domain, and each separate term there.

    Its points add to each element that they read once, and up to p.(J^T J p).
    """
    source_of = {s.residual.label: s for s in sources}
    result = []
    for n, (domain, group) in enumerate(by_domain([s.residual for s in sources], separate)):
        own = [source_of[r.label] for r in group]
        added = {
            Access(x.field, index, x.channel): _free(fixed, x.unknown, index, e)
            for (x, index), e in _additions(own, outputs, contribution).items()
        }
        if added:
            squares = [add(*(e for s in own for e in _squares(s)))] if dot else []
            values = factor([*added.values(), *squares])
            atomic_adds = tuple(AtomicAdd(t, v) for t, v in zip(added, values, strict=False))
            reductions = tuple(Reduce("pAp", v) for v in values[len(added) :])
            result.append(Routine(f"{name}_{n}", domain, reductions=reductions, atomic_adds=atomic_adds))
    return result


def _additions(
    sources: Sequence[LinearisedResidual], outputs: Mapping[Hashable, Output], contribution: Contribution
) -> dict[tuple[Output, MultiIndex], Expr]:
    """Contributions of residuals over one domain to each output at each index that they read, zeros left out.

    Sorted by index: the channels of one element stand side by side, here as in memory.
    """
    parts: dict[MultiIndex, dict[Output, list[Expr]]] = {}
    for source in sources:
        for dims in dict.fromkeys(a.field.dims for a in source.accesses):
            found = _own_views(source, dims)
            for view, component in product(found, range(len(source.values))):
                for key, e in contributed(view, found, component, contribution).items():
                    if key in outputs and outputs[key].unknown.dims == dims:
                        parts.setdefault(view.index, {}).setdefault(outputs[key], []).append(e)
    sums = {(x, i): add(*own[x]) for i, own in parts.items() for x in outputs.values() if x in own}
    return {where: e for where, e in sums.items() if e is not ZERO}


def _own_views(source: LinearisedResidual, dims: tuple[Extent, ...]) -> list[View]:
    """The residual in its own coordinates, once for each index at which it reads unknowns of a grid."""
    found = columns_at(source, dims).items()
    return [View(source, index, Inverse({}, (), ()), (), ONE, columns) for index, columns in found]


def _squares(source: LinearisedResidual) -> list[Expr]:
    return [power(t, 2) for t in source.jvps]


def _free(fixed: Fixed, unknown: Field, index: MultiIndex, e: Expr) -> Expr:
    """e where the unknown's element at an index is solved for, else 0."""
    # Stored, as the condition may itself go through a graph from there.
    return mul(var(Access(_free_field(unknown), index, 0)), e) if unknown in fixed else e
