"""Solves for a random right-hand side, held to dense algebra."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import optpy as op
from optpy.energy.data.binding import bind
from optpy.ir import VectorKind, tangent
from optpy.solver.protocol import Damping, LinearLimits, LinearStatus

Real = NDArray[np.float64]

DAMPED = Damping(10.0, 1e-6, 1e32, jacobi_scaling=True)


def check(energy: op.Energy, data: dict[str, Any], preconditioner: Any, device: Literal["cpu", "cuda"] = "cpu") -> None:
    """x = (J^T J + D)^-1 b where something is solved for, and the gradient and the next step are as they were."""
    solver = op.compile(energy, device, np.float64)
    bound = bind(energy.problem, data, np.float64, solver.compiled.choice.xp)
    problem = solver.compiled.instance(bound, 2)
    problem.bind(bound.arrays, bound.params, solver.compiled.connectivity(bound))
    problem.set_preconditioner(preconditioner)
    problem.linearise()
    problem.damp(DAMPED)
    linear, executor = problem.linear_solver, problem.executor

    def vector(kind: VectorKind) -> Real:
        parts = [executor.host(problem.read_vector(kind, u)).ravel() for u in energy.problem.unknowns]
        return np.concatenate(parts)

    limits = LinearLimits(400, r_tolerance=1e-13)
    gradient = vector(VectorKind.G)
    linear.solve(limits, True, lambda: None)
    step = vector(VectorKind.DELTA)
    rng = np.random.default_rng(1)
    shapes = {u: (*(bound.sizes[d] for d in u.dims), tangent(u).channels) for u in energy.problem.unknowns}
    b = {u: rng.normal(size=shape) for u, shape in shapes.items()}
    on_device = {u: executor.xp.asarray(value, blocking=True) if device == "cuda" else value for u, value in b.items()}
    summary = linear.solve_for(on_device, limits, True)
    assert summary.status in (LinearStatus.CONVERGED, LinearStatus.BREAKDOWN), summary

    J = energy.jacobian(data).toarray()
    c = (J**2).sum(axis=0)
    solved = c > 0
    A = (J.T @ J + np.diag(DAMPED.diagonal(c)))[np.ix_(solved, solved)]
    expected = np.zeros(len(c))
    expected[solved] = np.linalg.solve(A, np.concatenate([b[u].ravel() for u in shapes])[solved])
    np.testing.assert_allclose(vector(VectorKind.DELTA), expected, atol=1e-8 * np.abs(expected).max())
    assert not np.allclose(step, expected, atol=1e-3 * np.abs(expected).max())

    np.testing.assert_array_equal(vector(VectorKind.G), gradient)
    linear.solve(limits, True, lambda: None)
    np.testing.assert_allclose(vector(VectorKind.DELTA), step, atol=1e-8 * np.abs(step).max())
