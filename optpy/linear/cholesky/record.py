"""The factorisation in the registry."""

from __future__ import annotations

from optpy.linear.assembled.applicability import PATIENCE, compile_matrix, matrix_applicability
from optpy.linear.assembled.price import assembling
from optpy.linear.cholesky.solve import CholeskySolve
from optpy.linear.jacobi.record import BLOCK_JACOBI
from optpy.linear.record import Implementation, Record
from optpy.linear.system import System


def _compile(system: System, damped: bool) -> None:
    compile_matrix(system, ())


CHOLESKY = Record(
    "cholesky",
    cpu=Implementation(CholeskySolve, _compile),
    gpu="nothing is factorised",
    applicability=matrix_applicability,
    takes_blocks=True,
    starter=BLOCK_JACOBI,
    patience=PATIENCE,
    making=assembling,
    affordable=CholeskySolve.is_affordable,
    is_exact=True,
)
