"""The factorisation in the registry."""

from __future__ import annotations

from optpy.linear.assembled.applicability import PATIENCE, compile_solvers, matrix_applicability
from optpy.linear.cholesky.solve import CholeskySolve
from optpy.linear.jacobi.record import BLOCK_JACOBI
from optpy.linear.record import Implementation, Record

CHOLESKY = Record(
    "cholesky",
    cpu=Implementation(CholeskySolve),
    gpu="nothing is factorised",
    applicability=matrix_applicability,
    takes_blocks=True,
    starter=BLOCK_JACOBI,
    patience=PATIENCE,
    affordable=CholeskySolve.is_affordable,
    is_exact=True,
    with_energy=compile_solvers,
)
