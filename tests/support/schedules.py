"""Schedules by hand: all residuals over graphs in one way."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import optpy as op
from optpy.energy.derive.linearised import linearise
from optpy.energy.derive.linearised_problem import linearised_problem
from optpy.energy.derive.materialised import over_edges
from optpy.energy.derive.normal_stencil import stencil_obstacle
from optpy.energy.derive.problem_routines import ProblemRoutines, problem_routines
from optpy.ir import ResidualSchedule, Target
from optpy.scheduling.funcs import schedule_funcs
from optpy.scheduling.residuals import cheapest, gathers, scatters, stencils
from optpy.scheduling.schedule import schedule_linearised
from optpy.scheduling.stencils import is_stencil

GATHERS = gathers("every")
SCATTERS = scatters("every")
STENCILS = stencils("every")

Way = ResidualSchedule | Literal["scatter"] | None
"""Of each residual over a graph: this one, whatever its label; the scatter that costs least; or what costs least."""


def by_hand(energy: op.Energy, way: Way) -> tuple[ResidualSchedule, ...]:
    """The schedules of an energy's residuals, as far as they are given."""
    edges = [r for r in energy.problem.residuals if over_edges(r)]
    if way is None:
        return ()
    if way == "scatter":
        return tuple(cheapest(linearise(r), scatters(r.label)) for r in edges)
    return tuple(replace(way, label=r.label) for r in edges)


def stencils_by_hand(energy: op.Energy, way: ResidualSchedule) -> tuple[ResidualSchedule, ...]:
    """The schedules of an energy's residuals that can be in one way: J^T J wherever it is a stencil."""
    found = []
    for s in linearised_problem(energy.problem).residuals:
        stencil = is_stencil(s) and not over_edges(s.residual)
        if stencil_obstacle(s) is None if way.normal else stencil:
            found.append(replace(way, label=s.residual.label, jacobian=way.jacobian and stencil))
    return tuple(found)


def routines_of(energy: op.Energy, way: Way = None, target: Target | None = None) -> ProblemRoutines:
    """The routines of an energy as they are derived for a target, before they are scheduled.

    Without a target it is the processor, or a GPU where only that can scatter.
    """
    if target is None:
        target = Target.GPU if way == "scatter" or (way is not None and way.scatter) else Target.CPU
    problem = energy.problem
    schedule = schedule_funcs(problem)
    linear = linearised_problem(problem, schedule.funcs)
    schedule = schedule_linearised(linear, schedule, target, by_hand(energy, way))
    return problem_routines(problem, linear, schedule)
