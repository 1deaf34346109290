"""All the routines that solving an energy takes, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, final

from optpy.energy.derive.coupling import coupling
from optpy.energy.derive.damping import damping
from optpy.energy.derive.edge_form import EdgeForm, best_form, over_edges
from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.normal_matrix import normal_matrix
from optpy.energy.derive.routines import (
    Fixed,
    cost,
    cost_of_step,
    eval_f,
    fixed_masks,
    linearised,
    model_cost,
    stored_jacobians,
)
from optpy.energy.derive.scatter import apply_jtj, best_scatter_form, eval_jtf, free_masks, prefer_scatter
from optpy.energy.derive.updates import multigrid_routines, pcg_routines, step, stored_routines
from optpy.ir import Coupling, Field, NormalMatrix, Problem, Routine, Uncoupled, tangent

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


Scatter = bool | Literal["all"]
"""Which residuals over graphs are scattered: none, those that cost less that way (True), or all of them."""


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


def _form(source: LinearisedResidual, form: EdgeForm | None, scattered: bool) -> EdgeForm:
    if scattered:
        return replace(form, product=False) if form else best_scatter_form(source)
    return form or best_form(source)


def problem_routines(
    problem: Problem,
    form: EdgeForm | None = None,
    scatter: Scatter = False,
) -> ProblemRoutines:
    """Derive all routines.

    Block-Jacobi groups (``..._block``) are there only if the blocks are not diagonal by symbolic zeros, multigrid's
    (``..._multigrid``) only where it applies.

    Args:
        problem: what is minimised.
        form: of all residuals over graphs, in place of the one that costs each of them least. Of those that are
            scattered it says whether J is stored; J p never is, as each edge needs it once.
        scatter: whether residuals over graphs may add to what they read by atomic additions, so that sums depend on
            their order by rounding: those that cost less that way (True), or "all".
    """
    residuals, unknowns = problem.residuals, problem.unknowns
    exact = linearised(residuals)
    edges = [s for s in exact if over_edges(s.residual)]
    labels = {s.residual.label for s in edges if scatter == "all" or (scatter and prefer_scatter(s))}
    forms = {s.residual.label: _form(s, form, s.residual.label in labels) for s in edges}
    sources, jacobians = stored_jacobians(exact, forms)
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
        **apply_jtj(gathered, scattered, coordinates, fixed, forms),
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
