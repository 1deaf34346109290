"""Levenberg-Marquardt on the normal equations, factorised by CHOLMOD (the cholespy wheel has it inside).

Solve (J^T J + D) delta = -J^T F, x <- x + delta, with the trust region of Ceres' LevenbergMarquardtStrategy:
D = clamp(c s^2, 1e-6, 1e32) / (radius s^2), c = diag(J^T J), s = 1 / (1 + sqrt(c)) of the first point.
Reference: K. Madsen, H. B. Nielsen, O. Tingleff: Methods for Non-Linear Least Squares Problems, 2004.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import sparse

import optpy as op
from bench.case import Data
from bench.curve import Curve, Recorder, TimeIsUpError
from bench.peers import PeerMissingError
from bench.peers.assembled import AssembledProblem, Vector

FUNCTION_TOLERANCE = 1e-6
MAX_ITERATIONS = 200


@final
@dataclass(slots=True)
class TrustRegion:
    """The radius, and how fast it shrinks while steps are rejected."""

    radius: float = 1e4
    decrease: float = 2.0

    def accept(self, relative_decrease: float) -> None:
        """A step whose cost change was `relative_decrease` times the model's."""
        self.radius = min(1e16, self.radius / max(1 / 3, 1 - (2 * relative_decrease - 1) ** 3))
        self.decrease = 2.0

    def reject(self) -> None:
        """A step that did not lower the cost."""
        self.radius /= self.decrease
        self.decrease *= 2.0


def solve(energy: op.Energy, data: Data, budget: float) -> Curve:
    """Runs until the cost changes by less than 1e-6 of itself, or for `budget` seconds.

    Raises:
        PeerMissingError: cholespy is not installed.
    """
    cholesky_solve = _cholmod()
    recorder = Recorder(budget)
    problem = AssembledProblem(energy, data)
    try:
        ending = _minimise(problem, recorder, cholesky_solve)
    except TimeIsUpError:
        ending = f"stopped after {budget:g} s"
    facts = {"assembly_seconds": problem.seconds, "total_seconds": recorder.elapsed}
    return Curve("LM, sparse Cholesky", tuple(recorder.points), ending, facts)


def _minimise(problem: AssembledProblem, recorder: Recorder, cholesky_solve: Any) -> str:
    x, region = problem.start, TrustRegion()
    F, J = problem.residuals(x), problem.jacobian(x)
    cost = _cost(F)
    recorder.cost(cost, problem.seconds)
    s = 1 / (1 + np.sqrt(_squared_columns(J)))
    for k in range(MAX_ITERATIONS):
        D = np.clip(_squared_columns(J) * s**2, 1e-6, 1e32) / (region.radius * s**2)
        delta = cholesky_solve(J.T @ J + sparse.diags(D), -(J.T @ F))
        J_delta = J @ delta
        model_change = -float(J_delta @ (F + J_delta / 2))
        candidate = problem.residuals(x + delta)
        change = cost - _cost(candidate)
        recorder.cost(_cost(candidate), problem.seconds)
        if change <= 1e-3 * model_change:
            region.reject()
            continue
        x, F, cost = x + delta, candidate, cost - change
        if change <= FUNCTION_TOLERANCE * cost:
            return f"converged after {k + 1} iterations"
        J = problem.jacobian(x)
        region.accept(change / model_change)
    return f"stopped after {MAX_ITERATIONS} iterations"


def _cost(F: Vector) -> float:
    return 0.5 * float(F @ F)


def _squared_columns(J: Any) -> Vector:
    """diag(J^T J), (N,)."""
    return np.asarray(J.multiply(J).sum(axis=0), np.float64).ravel()


def _cholmod() -> Any:
    try:
        from cholespy import CholeskySolverD, MatrixType
    except ImportError as missing:
        raise PeerMissingError("cholespy is not installed: pip install 'optpy[bench]'") from missing

    def cholesky_solve(A: Any, b: Vector) -> Vector:
        A = sparse.csc_matrix(A)
        A.sort_indices()
        indices = (np.ascontiguousarray(a, np.int32) for a in (A.indptr, A.indices))
        solver = CholeskySolverD(A.shape[0], *indices, A.data, MatrixType.CSC)
        delta = np.zeros_like(b)
        solver.solve(np.ascontiguousarray(b), delta)
        return delta

    return cholesky_solve
