"""All the routines that solving an energy takes, by name."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import Field, Residual, Routine
from .damping import damping
from .edge_form import EdgeForm, best_form, over_edges
from .routines import (
    Fixed,
    apply_jtj,
    cost,
    eval_f,
    eval_jtf,
    fixed_masks,
    linearised,
    model_cost,
    stored_jacobians,
)
from .updates import pcg_routines, step

AT_UNKNOWNS = frozenset(
    f"{name}{block}"
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
    )
    for block in ("", "_block")
)
"""Groups that need to visit only those points where some unknown is solved for."""

AT_LINEARISATION = ("jacobian", "evalJTF", "evalJTF_block", "applyJTJ", "applyJTJ_damped", "modelcost")
"""Groups that run many times at one linearisation point, so that intermediates stored there serve them."""


def problem_routines(
    residuals: Sequence[Residual], unknowns: Sequence[Field], fixed: Fixed, form: EdgeForm | None = None
) -> dict[str, list[Routine]]:
    """Groups of routines by name; a group has one routine for each domain or grid. Empty groups are left out.

    Block-Jacobi groups (``..._block``) are there only if the blocks are not diagonal by symbolic zeros.

    Args:
        residuals, unknowns, fixed: of the energy.
        form: of all residuals over graphs, in place of the one that costs each of them least.
    """
    exact = linearised(residuals)
    forms = {s.residual.label: form or best_form(s) for s in exact if over_edges(s.residual)}
    sources, jacobians = stored_jacobians(exact, forms)
    groups: dict[str, list[Routine]] = {
        "cost": cost(residuals),
        "evalF": eval_f(residuals),
        "modelcost": model_cost(sources),
        "solved": fixed_masks(unknowns, fixed),
        "jacobian": jacobians,
        **eval_jtf(sources, unknowns, fixed),
        **apply_jtj(sources, unknowns, fixed, forms),
        "damp": damping(unknowns, blocks=False),
        "step": step(unknowns),
        **pcg_routines(unknowns, blocks=False),
    }
    if "evalJTF_block" in groups:
        groups["damp_block"] = damping(unknowns, blocks=True)
        groups |= {f"{name}_block": routines for name, routines in pcg_routines(unknowns, blocks=True).items()}
    return {name: routines for name, routines in groups.items() if routines}
