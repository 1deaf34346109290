"""The algebraic multigrid in the registry."""

from __future__ import annotations

from optpy.ir import Coupling, Preconditioning
from optpy.linear.aggregation.levels import AlgebraicMultigrid
from optpy.linear.assembled.applicability import PATIENCE, compile_matrix, matrix_applicability
from optpy.linear.assembled.assembly import Assembly
from optpy.linear.assembled.price import assembling
from optpy.linear.jacobi.record import BLOCK_JACOBI
from optpy.linear.multigrid.record import applicability as grid_applicability
from optpy.linear.multigrid.solve import MultigridSolve
from optpy.linear.pcg.native import solving_groups
from optpy.linear.record import Implementation, Record
from optpy.linear.system import System


def applicability(system: System) -> str | None:
    """The reason why there is no algebraic multigrid; where the grid has one of its own, why that does not apply."""
    reason = matrix_applicability(system)
    return grid_applicability(system) or reason if isinstance(system.program.coupling, Coupling) else reason


def _make(system: System) -> MultigridSolve:
    return MultigridSolve(system.loop, AlgebraicMultigrid(system.shared(Assembly), system.loop.safe_work))


def _compile(system: System, damped: bool) -> None:
    compile_matrix(system, solving_groups(system.program, damped, Preconditioning.ASSEMBLED))


AGGREGATION = Record(
    "multigrid",
    cpu=Implementation(_make, _compile),
    gpu="it is that of one grid",
    applicability=applicability,
    other_names=("amg",),
    takes_blocks=True,
    starter=BLOCK_JACOBI,
    patience=PATIENCE,
    making=assembling,
    iteration_cost=5,  # as that of a grid; 1.4 to 5.4 on meshes in `python -m bench.preconditioners --size 96`
    is_left_midway=True,
)
