"""The form in which J^T J is there for preconditioners that take more of it than its diagonal, or its blocks.

On a grid whose unknowns are coupled with near neighbours J^T J stays matrix-free: its products are the energy's own,
and below it are grids again. In ``python -m bench.preconditioners poisson image_warping --size 128`` a solve with such
levels takes 62 and 86 iterations' time with Jacobi; with ``--matrix``, 431 and 229 by the multigrid of the assembled
matrix, and 1959 and 774 by a factorisation. Elsewhere it may be assembled.

Whether a preconditioner then takes it depends on sizes, edges, memory, and on how earlier solves went: that is known
when data is bound, and decided by ``linear/choice.py`` and the records of ``linear/registry.py``.
"""

from __future__ import annotations

from dataclasses import replace

from optpy.energy.derive.linearised_problem import LinearisedProblem
from optpy.energy.derive.normal_matrix import matrix_obstacle
from optpy.ir import Coupling, NormalForm, NormalSchedule, Schedule, Target, Uncoupled
from optpy.scheduling.given import ASKED, refused


def schedule_normal(
    linear: LinearisedProblem,
    target: Target,
    given: Schedule | None = None,
) -> NormalSchedule:
    """The form of J^T J: the given one, or the first that there is of levels, a matrix, and products alone.

    Args:
        linear: the problem with its derivatives.
        target: where it shall run.
        given: by hand.

    Raises:
        OptionError: the given one is none that there is.
    """
    reasons = _obstacles(linear, target)
    if given is not None and given.normal is not None:
        if given.normal.form in reasons:
            raise refused(given, given.normal, f"J^T J cannot be {given.normal.form}: {reasons[given.normal.form]}")
        return replace(given.normal, reason=given.normal.reason or ASKED)
    if NormalForm.LEVELS not in reasons:
        assert isinstance(linear.coupling, Coupling)
        grid = f"({', '.join(map(str, linear.coupling.dims))})"
        return NormalSchedule(
            NormalForm.LEVELS, f"its unknowns all stand on {grid} and are coupled with near neighbours there"
        )
    if NormalForm.MATRIX not in reasons:
        return NormalSchedule(NormalForm.MATRIX, f"no levels of a grid: {reasons[NormalForm.LEVELS]}")
    why = "; ".join(f"no {name}: {reasons[form]}" for form, name in _NAMES.items())
    return NormalSchedule(NormalForm.PRODUCTS, why)


_NAMES = {NormalForm.LEVELS: "levels of a grid", NormalForm.MATRIX: "matrix"}


def _obstacles(linear: LinearisedProblem, target: Target) -> dict[NormalForm, str]:
    """The forms that there are not, and why."""
    found = {}
    if isinstance(linear.coupling, Uncoupled):
        found[NormalForm.LEVELS] = linear.coupling.reason
    obstacle = matrix_obstacle(linear.unknowns, linear.residuals)
    if target.gpu:
        obstacle = "what works on a matrix is native code of the CPU"
    if obstacle is not None:
        found[NormalForm.MATRIX] = obstacle
    return found
