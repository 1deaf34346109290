"""All the routines that solving an energy takes, by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from optpy.energy.derive.damping import damping
from optpy.energy.derive.funcs import DerivedFuncs
from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.linearised_problem import LinearisedProblem
from optpy.energy.derive.normal_edges import normal_edges, stores_of_edges
from optpy.energy.derive.normal_matrix import matrix_obstacle, normal_matrix
from optpy.energy.derive.normal_stencil import normal_stencils
from optpy.energy.derive.routines import (
    Fixed,
    ResidualSchedules,
    apply_jtj,
    cost,
    cost_of_step,
    eval_f,
    eval_jtf,
    fixed_masks,
    model_cost,
    stored_jacobians,
)
from optpy.energy.derive.scatter import couples_channels, with_edges
from optpy.energy.derive.sums import tangent_passes, under_names
from optpy.energy.derive.updates import assembled_routines, pcg_routines, smoothed_routines, step
from optpy.energy.language.written_out import func_accesses
from optpy.errors import EnergyError
from optpy.ir import (
    Coupling,
    Field,
    Group,
    NormalForm,
    NormalMatrix,
    Problem,
    Routine,
    Schedule,
    Uncoupled,
    tangent,
)


@final
@dataclass(frozen=True, slots=True)
class ProblemRoutines:
    """The routines of an energy.

    Attributes:
        groups: the routines; a group has one routine for each domain or grid. Empty groups are left out.
        coupling: of the unknowns, where levels of their grid can precondition it; else why they cannot.
        normal: J^T J as a sparse matrix, for other preconditioners, where the schedule has that; else why not.
    """

    groups: dict[Group, list[Routine]]
    coupling: Coupling | Uncoupled
    normal: NormalMatrix | Uncoupled


def problem_routines(problem: Problem, linear: LinearisedProblem, schedule: Schedule) -> ProblemRoutines:
    """Derive all routines.

    Groups of blocks (``..._block``) are there only if the blocks are not diagonal by symbolic zeros, those that smooth
    (``..._smoothed``) only where there are levels of a grid, and those that store z (``..._stored``) where there is a
    matrix.

    Args:
        problem: what is minimised.
        linear: with its derivatives.
        schedule: of intermediates, by which it was linearised; of residuals, whether J, J p or J^T J is stored and
            whether their edges add to what they read (those without one are gathered, and nothing of them is stored);
            and the form of J^T J.
    """
    funcs, coordinates = linear.funcs, linear.unknowns
    by_label = {s.label: s for s in schedule.residuals}
    labels = {label for label, s in by_label.items() if s.scatter}
    sources, jacobians = stored_jacobians(linear.residuals, by_label)
    gathered = [s for s in sources if s.residual.label not in labels]
    kept = [s for s in sources if _is_stored_normal(s, by_label)]
    edges = normal_edges(kept)
    stencils = normal_stencils(kept, {pair for x in edges for pair in x.implied})
    visited = [s for s in gathered if not _is_stored_normal(s, by_label)]
    scattered = [s for s in sources if s.residual.label in labels]
    separate = [term.name for term in schedule.terms if term.separate]
    fixed = {tangent(u): condition for u, condition in problem.fixed.items()}
    in_costs = funcs.in_costs(problem.with_funcs)
    groups: dict[Group, list[Routine]] = {
        Group.FUNCS: under_names(Group.FUNCS, funcs.at_binding),
        Group.COST: under_names(Group.COST, funcs.in_cost) + cost(in_costs, separate),
        Group.COST_OF_STEP: _cost_of_step(problem, funcs),
        Group.RESIDUALS: under_names(Group.RESIDUALS, funcs.in_cost) + eval_f(in_costs),
        Group.MODEL_COST: tangent_passes(Group.MODEL_COST, funcs.sums) + model_cost(sources, separate),
        Group.SOLVED: fixed_masks(coordinates, fixed),
        Group.JACOBIAN: under_names(Group.JACOBIAN, funcs.at_linearisation)
        + jacobians
        + [r for stencil in stencils for r in stencil.stores]
        + stores_of_edges(edges),
        **eval_jtf(gathered, coordinates, fixed, any(map(couples_channels, scattered)), funcs.sums, separate, stencils),
        **apply_jtj(visited, coordinates, fixed, by_label, funcs.sums, (stencils, edges), separate),
        Group.DAMPING: damping(coordinates, blocks=False),
        Group.STEP: step(problem.unknowns, fixed),
        **pcg_routines(coordinates, blocks=False),
    }
    if scattered:
        groups |= with_edges(groups, scattered, coordinates, fixed, separate)
    if Group.GRADIENT_BLOCKS in groups:
        groups |= {Group.DAMPING_BLOCKS: damping(coordinates, blocks=True)}
        groups |= pcg_routines(coordinates, blocks=True)
    assert schedule.normal is not None
    return _with_normal(groups, sources, coordinates, fixed, linear.coupling, schedule.normal.form)


def _is_stored_normal(source: LinearisedResidual, schedules: ResidualSchedules) -> bool:
    """Whether what a residual adds to J^T J is stored."""
    label = source.residual.label
    return label in schedules and schedules[label].normal


def _cost_of_step(problem: Problem, funcs: DerivedFuncs) -> list[Routine]:
    """The routines of ``cost_of_step``, which read sums of data.

    Raises:
        EnergyError: they would read sums of unknowns, at both ends of a step.
    """
    residuals = funcs.with_data(problem.residuals)
    routines = cost_of_step(residuals)
    if any(func_accesses(r.roots) for r in routines):
        message = "op.sum over what depends on unknowns and op.stop_gradient cannot stand in one energy yet"
        raise EnergyError(message, next(r.location for r in residuals if func_accesses(r.components)))
    return routines


def _with_normal(
    groups: dict[Group, list[Routine]],
    sources: Sequence[LinearisedResidual],
    unknowns: Sequence[Field],
    fixed: Fixed,
    coupled: Coupling | Uncoupled,
    form: NormalForm,
) -> ProblemRoutines:
    """The groups, and those of the preconditioners that take J^T J in some form.

    Args:
        unknowns, fixed: in coordinates of the tangent spaces.
    """
    normal: NormalMatrix | Uncoupled = Uncoupled(
        matrix_obstacle(unknowns, sources) or f"the schedule has J^T J as {form}"
    )
    if form is NormalForm.LEVELS:
        groups |= smoothed_routines(unknowns)
        normal = Uncoupled(
            "its unknowns stand on one grid and are coupled with near neighbours, so that levels of the grid replace it"
        )
    elif isinstance(coupled, Coupling):
        coupled = Uncoupled(f"the schedule has J^T J as {form}")
    if form is NormalForm.MATRIX:
        normal, groups[Group.NORMAL] = normal_matrix(sources, unknowns, fixed)
        groups |= assembled_routines(unknowns)
    return ProblemRoutines({name: routines for name, routines in groups.items() if routines}, coupled, normal)
