"""The decider: linearised residuals, then the routines derived from them, to the schedule of an energy on a target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.linearised_problem import LinearisedProblem
from optpy.energy.derive.materialised import over_edges
from optpy.energy.derive.normal_edges import edges_obstacle
from optpy.energy.derive.normal_stencil import stencil_obstacle
from optpy.energy.derive.problem_routines import ProblemRoutines
from optpy.ir import (
    ChannelOrder,
    Coupling,
    GridLayout,
    Incidence,
    ResidualSchedule,
    Role,
    Routine,
    Schedule,
    Split,
    StoredValue,
    Target,
    TermSchedule,
    Uncoupled,
)
from optpy.kernels.codegen.scheduled import apply_schedule
from optpy.kernels.codegen.split import is_over_rows
from optpy.kernels.codegen.symbol_table import gathered_grids
from optpy.scheduling.conditions import schedule_conditions
from optpy.scheduling.given import Given, as_schedule, completed, decided_by
from optpy.scheduling.layouts import channel_orders, layouts
from optpy.scheduling.normal import schedule_normal
from optpy.scheduling.residuals import costs, gathers, scatters, with_kept
from optpy.scheduling.stencils import is_stencil, stencil_schedules
from optpy.scheduling.values import storage_candidates, stored_values


def schedule_linearised(linear: LinearisedProblem, before: Schedule, target: Target, given: Given = ()) -> Schedule:
    """The schedules of residuals and of J^T J, beside those by which the problem was linearised.

    Raises:
        OptionError: a given one cannot be.
    """
    given = as_schedule(given)
    residuals = schedule_residuals(linear.residuals, target, given)
    terms = schedule_terms(linear, given)
    return replace(before, residuals=residuals, terms=terms, normal=schedule_normal(linear, target, given))


# -- residuals ---------------------------------------------------------------------------------------------------------


def schedule_residuals(
    sources: Iterable[LinearisedResidual], target: Target, given: Given = ()
) -> tuple[ResidualSchedule, ...]:
    """The schedule of each residual of which something can be kept: the given one, or the one that costs least.

    Raises:
        OptionError: a given one cannot be.
    """
    sources, given = list(sources), as_schedule(given)
    by_label = {s.residual.label: s for s in sources}
    edges = {label: s for label, s in by_label.items() if over_edges(s.residual)}
    found = stencil_schedules([s for s in sources if s.residual.label not in edges], gpu=target.gpu)
    by_hand = {label: decided_by(given.residuals, ResidualSchedule(label)) for label in edges}
    free = [s for label, s in edges.items() if by_hand[label] is None]
    counted = {s.residual.label: costs(s, _ways(s, target), gpu=target.gpu) for s in free}
    found |= with_kept(free, counted, gpu=target.gpu) | {x: way for x, way in by_hand.items() if way is not None}
    summed = [label for label, s in by_label.items() if label not in found and stencil_obstacle(s) is None]
    found |= {label: ResidualSchedule(label, reason=_ONLY_SUMMED) for label in summed}

    def refusal(way: ResidualSchedule) -> str | None:
        return _refused_way(way, by_label[way.label], target)

    decided = [found[s.residual.label] for s in sources if s.residual.label in found]
    others = {label: f"{_NO_CHOICE}; {_no_stencil(s)}" for label, s in by_label.items() if label not in found}
    return completed(decided, given.residuals, given, refusal, others)


_ONLY_SUMMED = "what it adds to J^T J could be kept, but digits of J would be lost; nothing else can"
_NO_CHOICE = (
    "nothing of it can be kept: that is for residuals that read unknowns through a graph, and for stencils on the "
    "unknowns' own grid"
)


_KEPT_OF_EDGES = "of its edges J, Jp or both can be"


def _no_stencil(source: LinearisedResidual) -> str:
    return f"what it adds to J^T J is no stencil: {stencil_obstacle(source)}"


def _ways(source: LinearisedResidual, target: Target) -> list[ResidualSchedule]:
    label = source.residual.label
    return gathers(label) + (scatters(label) if _why_no_scatter(source, target) is None else [])


def _why_no_scatter(source: LinearisedResidual, target: Target) -> str | None:
    if not over_edges(source.residual):
        return "it reads unknowns through no graph: there are no edges to scatter"
    if target is not Target.GPU:
        where = "where results are deterministic" if target.gpu else "on the CPU"
        return f"there are no atomic additions {where}, so that edges cannot scatter"
    if any(a.field.role is Role.STORED for a in source.accesses):
        return "it reads an op.sum of unknowns, to which edges cannot scatter"
    return None


def _refused_way(way: ResidualSchedule, source: LinearisedResidual, target: Target) -> str | None:
    """The reason for which a residual cannot enter products in such a way; None: it can.

    Args:
        way: in question.
        source: the residual.
        target: where it runs.
    """
    if way.scatter:
        return _why_no_scatter(source, target)
    if way.normal and over_edges(source.residual):
        obstacle = edges_obstacle(source)
        return None if obstacle is None else f"what it adds to J^T J cannot be kept: {obstacle}; {_KEPT_OF_EDGES}"
    if way.normal and stencil_obstacle(source) is not None:
        return _no_stencil(source)
    if (way.jacobian or way.product) and not over_edges(source.residual) and not is_stencil(source):
        return _NO_CHOICE
    return None


# -- terms -------------------------------------------------------------------------------------------------------------


def schedule_terms(linear: LinearisedProblem, given: Schedule) -> tuple[TermSchedule, ...]:
    """Whether each term of several has passes of its own: the given choice, or that it has none.

    Nothing that is counted is saved by a pass of its own; a body that is long is cut into stages anyway, without more
    to be moved (``passes/in_stages.py``).

    Raises:
        OptionError: a given decision is about no term, or the only one.
    """
    terms = list(dict.fromkeys(s.residual.term for s in linear.residuals))
    if len(terms) == 1:
        return completed((), given.terms, given, _anything, {terms[0]: "there is no other term to be apart from"})
    moved = 3 * sum(u.channels for u in linear.unknowns)
    reason = f"a pass of its own saves no operation, and moves {moved} numbers more at each point of the unknowns"
    return completed([TermSchedule(t, reason=reason) for t in terms], given.terms, given, _anything)


# -- routines ----------------------------------------------------------------------------------------------------------


def schedule_routines(
    derived: ProblemRoutines, before: Schedule, target: Target, given: Given = ()
) -> tuple[Schedule, tuple[StoredValue, ...]]:
    """The schedule of all but sweeps, and the values that it has stored.

    Args:
        derived: all routines of the target.
        before: the schedules by which they were derived.
        target: where they run.
        given: by hand.

    Raises:
        OptionError: a given decision cannot be.
    """
    given = as_schedule(given)
    routines = [r for found in derived.groups.values() for r in found]
    repeated = [r for group, found in derived.groups.items() if group.reads_stored for r in found]
    candidates = storage_candidates(repeated)
    by_name = {c.name: c.decision for c in candidates}
    values = completed(by_name.values(), given.values, given, _anything)
    kept = {v.name for v in values if v.stored}
    stored = stored_values([c for c in candidates if c.name in kept], gathered_grids(routines))

    def refused_layout(layout: GridLayout) -> str | None:
        return _refused_layout(layout, derived.coupling, target)

    decided = replace(
        before,
        values=values,
        splits=completed(() if target.gpu else splits(routines), given.splits, given, _anything),
        layouts=completed(layouts(routines, derived.coupling, target), given.layouts, given, refused_layout),
    )
    works = schedule_conditions(derived.groups, decided, stored, target, given)
    decided = replace(decided, conditions=works)
    return replace(decided, orders=_orders(derived, decided, stored, target, given)), stored


def _anything(decision: object) -> None:
    """Refuses nothing."""


def _refused_layout(layout: GridLayout, coupling: Coupling | Uncoupled, target: Target) -> str | None:
    if layout.padded and not target.gpu:
        return "only a GPU pads points"
    if layout.interleaved and isinstance(coupling, Coupling) and coupling.dims == layout.dims:
        cure = "with 'normal J^T J: products', or 'matrix' where there is one, it can be"
        return f"what solves on coarser levels of this grid walks along rows, channel by channel; {cure}"
    return None


def _orders(
    derived: ProblemRoutines, decided: Schedule, stored: Sequence[StoredValue], target: Target, given: Schedule
) -> tuple[ChannelOrder, ...]:
    """The orders of channels that are given, or are another than that in which expressions were met."""
    counted = channel_orders(apply_schedule(derived.groups, decided, stored)) if target.gpu else ()
    channels = {x.stored: len(x.positions) for x in counted}

    def refusal(order: ChannelOrder) -> str | None:
        n = channels[order.stored]
        return None if len(order.positions) == n else f"it has channels 0 to {n - 1}, each of which has one position"

    found = completed(counted, given.orders, given, refusal)
    asked = {x.stored for x in given.orders}
    return tuple(x for x in found if x.stored in asked or list(x.positions) != sorted(x.positions))


def splits(routines: Iterable[Routine]) -> tuple[Split, ...]:
    """The routines over grids of two or three dims that have sums over edges, other ones at each point of a row; and
    those over one point that have sums over whole grids.

    A loop over the edges at a point, of which most pixels have none, would keep the whole loop over the pixels from
    being vectorised. One point is the work of one thread.
    """
    found = []
    for r in routines:
        edges = (k for x in r.locals for k in x.loops if isinstance(k, Incidence))
        if len(r.domain) > 1 and any(a.reads(r.domain[-1:]) for k in edges for a in k.at):
            grid = ", ".join(str(i.dim) for i in r.domain)
            reason = f"loops over edges would keep the loop over ({grid}) from vector code"
            found.append(Split(r.name, reason=reason))
        elif not r.domain and any(map(is_over_rows, r.locals)):
            found.append(Split(r.name, reason="sums over whole grids at one point are the work of one thread"))
    return tuple(found)
