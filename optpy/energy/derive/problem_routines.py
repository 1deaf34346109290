"""All the routines that solving an energy takes, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from optpy.energy.derive.coupling import coupling
from optpy.energy.derive.damping import damping
from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.normal_matrix import normal_matrix
from optpy.energy.derive.routines import (
    Fixed,
    cost,
    cost_of_step,
    eval_f,
    fixed_masks,
    model_cost,
    stored_jacobians,
)
from optpy.energy.derive.scatter import apply_jtj, eval_jtf, free_masks
from optpy.energy.derive.updates import multigrid_routines, pcg_routines, step, stored_routines
from optpy.ir import Coupling, Field, NormalMatrix, Problem, ResidualSchedule, Routine, Target, Uncoupled, tangent

AT_UNKNOWNS = frozenset(
    f"{name}{preconditioner}"
    for name in (
        "evalJTF",
        "applyJTJ",
        "applyJTJ_damped",
        "damp",
        "step",
        "start",
        "direction",
        "update",
        "flush",
        "restart",
        "smooth",
        "power",
        "residual",
    )
    for preconditioner in ("", "_block", "_multigrid", "_stored")
)
"""Groups that need to visit only those points where some unknown is solved for."""

AT_LINEARISATION = ("jacobian", "evalJTF", "evalJTF_block", "applyJTJ", "applyJTJ_damped", "modelcost")
"""Groups that run many times at one linearisation point, so that intermediates stored there serve them."""


@final
@dataclass(frozen=True, slots=True)
class ProblemRoutines:
    """What an energy becomes.

    Attributes:
        groups: routines by name; a group has one routine for each domain or grid. Empty groups are left out.
        coupling: of the unknowns, where a multigrid on their grid can precondition it; else why it cannot.
        normal: J^T J as a sparse matrix, for other preconditioners, where there is no such coupling; else why not.
    """

    groups: dict[str, list[Routine]]
    coupling: Coupling | Uncoupled
    normal: NormalMatrix | Uncoupled

    def on(self, target: Target) -> ProblemRoutines:
        """Those that run on a target."""
        if not target.gpu:
            return self
        return replace(self, groups={name: found for name, found in self.groups.items() if _runs_on_gpus(name)})


def _runs_on_gpus(group: str) -> bool:
    """Preconditioners on an assembled matrix are native code."""
    return group != "normal" and not group.endswith("_stored")


def problem_routines(
    problem: Problem, sources: Sequence[LinearisedResidual], schedules: Sequence[ResidualSchedule] = ()
) -> ProblemRoutines:
    """Derive all routines.

    Block-Jacobi groups (``..._block``) are there only if the blocks are not diagonal by symbolic zeros, multigrid's
    (``..._multigrid``) only where it applies.

    Args:
        problem: what is minimised.
        sources: its linearised residuals.
        schedules: of residuals over graphs, whether J and J p are stored and whether their edges add to what they read.
            Those without one are gathered, and nothing of them is stored.
    """
    residuals, unknowns = problem.residuals, problem.unknowns
    by_label = {s.label: s for s in schedules}
    labels = {label for label, s in by_label.items() if s.scatter}
    sources, jacobians = stored_jacobians(sources, by_label)
    gathered = [s for s in sources if s.residual.label not in labels]
    scattered = [s for s in sources if s.residual.label in labels]
    coordinates = [tangent(u) for u in unknowns]
    fixed = {tangent(u): condition for u, condition in problem.fixed.items()}
    groups: dict[str, list[Routine]] = {
        "cost": cost(residuals),
        "cost_of_step": cost_of_step(residuals),
        "evalF": eval_f(residuals),
        "modelcost": model_cost(sources),
        "solved": fixed_masks(coordinates, fixed),
        "jacobian": jacobians + free_masks(scattered, fixed),
        **eval_jtf(gathered, scattered, coordinates, fixed),
        **apply_jtj(gathered, scattered, coordinates, fixed, by_label),
        "damp": damping(coordinates, blocks=False),
        "step": step(unknowns, fixed),
        **pcg_routines(coordinates, blocks=False),
    }
    if "evalJTF_block" in groups:
        groups |= {"damp_block": damping(coordinates, blocks=True)}
        groups |= _with_ending("block", pcg_routines(coordinates, blocks=True))
    return _with_levels_or_matrix(groups, sources, coordinates, fixed)


def _with_levels_or_matrix(
    groups: dict[str, list[Routine]], sources: Sequence[LinearisedResidual], unknowns: Sequence[Field], fixed: Fixed
) -> ProblemRoutines:
    """The groups, and those of the preconditioners beyond block-Jacobi: a grid's multigrid, or what solves with J^T J.

    Args:
        unknowns, fixed: in coordinates of the tangent spaces.
    """
    coupled = coupling(sources, unknowns)
    normal: NormalMatrix | Uncoupled
    if isinstance(coupled, Coupling):
        groups |= _with_ending("multigrid", multigrid_routines(unknowns))
        normal = Uncoupled(
            "its unknowns stand on one grid and are coupled with near neighbours, which has a multigrid of its own"
        )
    else:
        normal, groups["normal"] = normal_matrix(sources, unknowns, fixed)
        if isinstance(normal, NormalMatrix):
            groups |= _with_ending("stored", stored_routines(unknowns))
    return ProblemRoutines({name: routines for name, routines in groups.items() if routines}, coupled, normal)


def _with_ending(preconditioner: str, groups: Mapping[str, list[Routine]]) -> dict[str, list[Routine]]:
    return {f"{name}_{preconditioner}": routines for name, routines in groups.items()}
