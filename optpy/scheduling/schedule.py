"""The decider: linearised residuals, then the routines derived from them, to the schedule of an energy on a target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.linearised_problem import LinearisedProblem
from optpy.energy.derive.materialised import over_edges
from optpy.energy.derive.problem_routines import ProblemRoutines
from optpy.ir import FuncSchedule, Incidence, ResidualSchedule, Role, Routine, Schedule, Split, Target
from optpy.kernels.codegen.scheduled import apply_schedule
from optpy.kernels.codegen.symbol_table import gathered_grids
from optpy.scheduling.layouts import channel_orders, layouts
from optpy.scheduling.normal import schedule_normal
from optpy.scheduling.residuals import cheapest, gathers, scatters
from optpy.scheduling.stencils import stencil_schedules
from optpy.scheduling.values import stored_values

Given = Schedule | Sequence[ResidualSchedule | FuncSchedule]
"""A schedule written by hand: the whole of it, or of some residuals and intermediates; the rest is decided."""


def schedule_linearised(linear: LinearisedProblem, before: Schedule, target: Target, given: Given = ()) -> Schedule:
    """The schedules of residuals and of J^T J, beside those by which the problem was linearised.

    Raises:
        OptionError: a given one cannot be.
    """
    residuals = schedule_residuals(linear.residuals, target, given)
    normal = schedule_normal(linear, target, given)
    return replace(before, residuals=residuals, normal=normal)


def schedule_residuals(
    sources: Iterable[LinearisedResidual], target: Target, given: Given = ()
) -> tuple[ResidualSchedule, ...]:
    """The schedule of each residual that reads unknowns through a graph, or as a stencil whose entries of J vary.

    That is the given one, or the one that costs least.
    """
    sources = list(sources)
    edges = {s.residual.label: s for s in sources if over_edges(s.residual)}
    found = stencil_schedules([s for s in sources if s.residual.label not in edges])
    written = given.residuals if isinstance(given, Schedule) else given
    found |= {s.label: s for s in written if isinstance(s, ResidualSchedule)}
    found |= {label: cheapest(s, _ways(s, target)) for label, s in edges.items() if label not in found}
    return tuple(found[label] for s in sources if (label := s.residual.label) in found)


def _ways(source: LinearisedResidual, target: Target) -> list[ResidualSchedule]:
    label = source.residual.label
    reads_sums = any(a.field.role is Role.STORED for a in source.accesses)
    return gathers(label) + (scatters(label) if target is Target.GPU and not reads_sums else [])


def schedule_routines(derived: ProblemRoutines, before: Schedule, target: Target, given: Given = ()) -> Schedule:
    """The whole schedule, or the given one.

    Args:
        derived: all routines of the target.
        before: the schedules by which they were derived.
        target: where they run.
        given: by hand.
    """
    if isinstance(given, Schedule):
        return replace(given, normal=before.normal)
    routines = [r for found in derived.groups.values() for r in found]
    repeated = [r for group, found in derived.groups.items() if group.reads_stored for r in found]
    decided = replace(
        before,
        values=stored_values(repeated, gathered_grids(routines)),
        splits=() if target.gpu else splits(routines),
        layouts=layouts(routines, derived.coupling, target),
    )
    if not target.gpu:
        return decided
    return replace(decided, orders=channel_orders(apply_schedule(derived.groups, decided)))


def splits(routines: Iterable[Routine]) -> tuple[Split, ...]:
    """The routines over grids of two or three dims that have sums over edges, other ones at each point of a row.

    A loop over the edges at a point, of which most pixels have none, would keep the whole loop over the pixels from
    being vectorised.
    """
    found = []
    for r in routines:
        edges = (k for x in r.locals for k in x.loops if isinstance(k, Incidence))
        if len(r.domain) > 1 and any(a.reads(r.domain[-1:]) for k in edges for a in k.at):
            grid = ", ".join(str(i.dim) for i in r.domain)
            found.append(Split(r.name, f"loops over edges would keep the loop over ({grid}) from vector code"))
    return tuple(found)
