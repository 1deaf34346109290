"""Multigrid against the same V-cycle in NumPy on the assembled matrix, and what it does to solves."""

from __future__ import annotations

import functools
from typing import Any, Literal

import numpy as np
import pytest
import scipy.sparse.linalg

import optpy as op
from optpy.ir import VectorKind
from optpy.kernels.runtime import executor
from optpy.linear.driver import LinearSolver
from optpy.linear.multigrid.grid import GridMultigrid
from optpy.linear.multigrid.record import MULTIGRID
from optpy.linear.multigrid.solve import MultigridSolve
from optpy.solver.protocol import Damping, LinearLimits
from optpy.solver.result import Status
from tests.support.deep import but_deep
from tests.support.multigrid_cases import H, W, compiled, poisson, values_of
from tests.support.multigrid_reference import CASES, assert_same_solve, each_damping_of_half
from tests.support.warping import arap_data, arap_energy

pytestmark = pytest.mark.native


@pytest.mark.parametrize(("case", "damping"), each_damping_of_half())
@pytest.mark.parametrize("threads", [1, 2])
def test_every_iteration_is_that_of_the_reference(
    case: str, damping: Damping, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "ACCESSES_PER_THREAD", 1)
    build, sizes = CASES[case]
    energy, limits = build(), LinearLimits(max_iterations=8, residual_reset_period=3)
    values = values_of(energy, sizes)
    native = compiled(energy, values, threads)
    native.set_preconditioner("multigrid")
    native.trace = []
    native.linearise()
    native.damp(damping)
    ours = native.solve_linear(limits)

    assert isinstance(native.linear_solver, LinearSolver)
    multigrid = native.linear_solver.method(MULTIGRID)
    assert isinstance(multigrid, MultigridSolve)
    assert isinstance(multigrid.levels, GridMultigrid)
    grid = multigrid.levels.levels
    assert native.trace is not None
    delta = np.concatenate([native.read_vector(VectorKind.DELTA, u).ravel() for u in energy.problem.unknowns])
    omegas = [grid.state.omega, *(grid.state.level[n].omega for n in range(grid.state.levels))]
    assert_same_solve(energy, values, damping, limits, omegas, (ours, native.trace, delta))


# -- what it is for ----------------------------------------------------------------------------------------------------


def iterations(n: int, preconditioner: Literal["jacobi", "multigrid"], dtype: Any) -> int:
    energy, data = poisson(n)
    options: dict[str, Any] = dict(method="gn", max_iterations=1, eta=0, r_tolerance=1e-4)
    result = op.solve(energy, data, dtype=dtype, preconditioner=preconditioner, **options)
    return result.iterations[1].linear_iterations


@pytest.mark.optimised
@pytest.mark.parametrize("dtype", but_deep([np.float32, np.float64], (np.float32,)))
def test_iterations_do_not_grow_with_the_picture(dtype: Any) -> None:
    small, large = iterations(40, "multigrid", dtype), iterations(320, "multigrid", dtype)
    assert large <= small + 2 <= 14
    assert iterations(320, "jacobi", dtype) > 20 * large


@pytest.mark.optimised
@pytest.mark.parametrize("preconditioner", ["multigrid", "auto"])
def test_steps_solved_to_the_end_are_those_of_jacobi(preconditioner: Any) -> None:
    data = arap_data(60, 75)
    options: dict[str, Any] = dict(dtype=np.float64, max_iterations=4, eta=0, r_tolerance=1e-10)
    jacobi = op.solve(arap_energy(), data, preconditioner="jacobi", **options)
    other = op.solve(arap_energy(), data, preconditioner=preconditioner, **options)
    np.testing.assert_allclose([r.cost for r in other.iterations], [r.cost for r in jacobi.iterations], rtol=1e-6)
    assert sum(r.linear_iterations for r in other.iterations) < sum(r.linear_iterations for r in jacobi.iterations) / 3
    assert "multigrid" in other.report()


@functools.cache
def jumping() -> op.Energy:
    """A weight of its own at each point."""
    i, j = op.indices(H, W)
    X, A, J = op.Unknown("X", (H, W)), op.Array("A", (H, W)), op.Array("J", (H, W))
    smooth = [J[i, j] * (X[i, j] - X[i + 1, j]), J[i, j] * (X[i, j] - X[i, j + 1])]
    return op.Energy(fit=X[i, j] - A[i, j], smooth=smooth)


@pytest.mark.optimised
@pytest.mark.parametrize("method", ["gn", "lm"])
@pytest.mark.parametrize("seed", but_deep(range(3), (0,)))
@pytest.mark.parametrize("preconditioner", ["multigrid", "auto"])
@pytest.mark.parametrize("jump", but_deep([1e2, 1e3, 1e4, 1e5, 1e6], (1e2, 1e4, 1e6)))
def test_no_success_above_the_minimum_where_weights_jump(
    jump: float, preconditioner: Any, seed: int, method: Any
) -> None:
    """Errors that are constant where weights are large have eigenvalues smaller by jump^2 than those about them."""
    energy = jumping()
    # With 1e6 the rounding of x is most of what is left in float32, and Jacobi's own forcing in float64.
    coarser = 100 if jump == 1e6 else 1
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(32, 37))
    data = dict(X=np.zeros_like(a), A=a, J=np.where(rng.random(a.shape) < 0.5, 0.1, 0.1 * jump))
    least = minimum(energy, data)
    for dtype, tolerance, ending in ((np.float64, 1e-8, 1e-10), (np.float32, 1e-4, 1e-6)):
        options: dict[str, Any] = dict(method=method, function_tolerance=ending, linear_iterations=1000)
        found = op.solve(energy, data, dtype=dtype, preconditioner=preconditioner, **options)
        # By name it is used even where its rounding hides the least eigenvalues; but then it is no success.
        assert found.success or jump >= 1e5
        # Blind: all of the gradient is rounding, and the result says so.
        blind = jump == 1e6 and dtype is np.float32 and found.status is Status.PRECISION
        allowed = 0.02 if blind else coarser * tolerance
        assert not found.success or found.cost <= least * (1 + allowed), found.report()


def minimum(energy: op.Energy, data: dict[str, Any]) -> float:
    """Of a linear least-squares problem, by a direct solve."""
    F = np.concatenate([r.ravel() for r in energy.residuals(data).values()])
    J = energy.jacobian(data)
    step = scipy.sparse.linalg.spsolve((J.T @ J).tocsc(), -(J.T @ F))
    return 0.5 * float(np.sum((F + J @ step) ** 2))


@pytest.mark.optimised
def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "ACCESSES_PER_THREAD", 1)
    data = arap_data(90, 130)
    one, two = (op.solve(arap_energy(), data, preconditioner="multigrid", max_iterations=6, threads=t) for t in (1, 2))
    for name in one.x:
        np.testing.assert_array_equal(one.x[name], two.x[name])


def test_a_singular_problem_is_solved() -> None:
    """Nothing fixes the constant."""
    i, j = op.indices(H, W)
    X, A = op.Unknown("X", (H, W)), op.Array("A", (H, W))
    energy = op.Energy(
        slope=[X[i, j] - X[i, j + 1] - A[i, j] + A[i, j + 1], X[i, j] - X[i + 1, j] - A[i, j] + A[i + 1, j]]
    )
    a = np.random.default_rng(0).normal(size=(50, 41))
    result = op.solve(energy, dict(X=np.zeros_like(a), A=a), method="gn", preconditioner="multigrid")
    assert result.cost < 1e-9 * result.initial_cost
