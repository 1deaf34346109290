"""All the routines that solving an energy takes, by name."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import Field, Residual, Routine, tangent
from .damping import damping
from .routines import (
    Fixed,
    apply_jtj,
    cost,
    eval_f,
    eval_jtf,
    fixed_masks,
    linearised,
    model_cost,
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

AT_LINEARISATION = ("evalJTF", "evalJTF_block", "applyJTJ", "applyJTJ_damped", "modelcost")
"""Groups that run many times at one linearisation point, so that intermediates stored there serve them."""


def problem_routines(
    residuals: Sequence[Residual], unknowns: Sequence[Field], fixed: Fixed
) -> dict[str, list[Routine]]:
    """Groups of routines by name; a group has one routine for each domain or grid. Empty groups are left out.

    Block-Jacobi groups (``..._block``) are there only if the blocks are not diagonal by symbolic zeros.
    """
    sources = linearised(residuals)
    coordinates = [tangent(u) for u in unknowns]
    fixed = {tangent(u): condition for u, condition in fixed.items()}
    groups: dict[str, list[Routine]] = {
        "cost": cost(residuals),
        "evalF": eval_f(residuals),
        "modelcost": model_cost(sources),
        "solved": fixed_masks(coordinates, fixed),
        **eval_jtf(sources, coordinates, fixed),
        **apply_jtj(sources, coordinates, fixed),
        "damp": damping(coordinates, blocks=False),
        "step": step(unknowns),
        **pcg_routines(coordinates, blocks=False),
    }
    if "evalJTF_block" in groups:
        groups["damp_block"] = damping(coordinates, blocks=True)
        groups |= {f"{name}_block": routines for name, routines in pcg_routines(coordinates, blocks=True).items()}
    return {name: routines for name, routines in groups.items() if routines}
