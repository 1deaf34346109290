"""scipy.optimize.least_squares: trust-region reflective, sparse Jacobian, LSMR inside."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import optpy as op
from bench.case import Data
from bench.curve import Curve, Recorder, TimeIsUpError
from bench.peers.assembled import AssembledProblem, Vector


def solve(energy: op.Energy, data: Data, budget: float) -> Curve:
    """Runs to SciPy's own end, or for `budget` seconds.

    SciPy's default tolerances. The curve has every cost that SciPy evaluates, also of steps that it rejects
    (those are higher, so they are not the lowest known).
    """
    from scipy.optimize import least_squares
    from scipy.sparse.linalg import LinearOperator

    recorder = Recorder(budget)
    problem = AssembledProblem(energy, data)

    def residuals(x: Vector) -> Vector:
        F = problem.residuals(x)
        recorder.cost(0.5 * float(np.dot(F, F)), problem.seconds)
        return F

    def jacobian(x: Vector) -> Any:
        # An operator, so that the clock is looked at in LSMR, too, which may run for longer than the budget.
        J = problem.jacobian(x)
        transposed = J.T

        def product(matrix: Any, v: Vector) -> Vector:
            recorder.check()
            return np.asarray(matrix @ v)

        return LinearOperator(J.shape, partial(product, J), partial(product, transposed), dtype=np.float64)

    try:
        result = least_squares(residuals, problem.start, jac=jacobian, tr_solver="lsmr")
        ending = str(result.message)
    except TimeIsUpError:
        ending = f"stopped after {budget:g} s"
    facts = {"assembly_seconds": problem.seconds, "total_seconds": recorder.elapsed}
    return Curve("SciPy least_squares (lsmr)", tuple(recorder.points), ending, facts)
