"""Multigrid against the same V-cycle in NumPy on the assembled matrix, and what it does to solves."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest
import scipy.sparse.linalg
from numpy.typing import NDArray

import optpy as op
from optpy.kernels import library
from optpy.linear.grid import GridMultigrid
from optpy.linear.solver import LinearSolver
from optpy.solver.pcg import Vector, pcg
from optpy.solver.protocol import Damping, LinearLimits
from optpy.solver.result import Status
from tests.multigrid_cases import H, W, bending, chain, compiled, poisson, quads, values_of, volume
from tests.warping import arap_data, arap_energy

Real = NDArray[np.float64]


DAMPED = Damping(10.0, 1e-6, 1e32, jacobi_scaling=True)
UNDAMPED = Damping(math.inf, 1e-6, 1e32, jacobi_scaling=True)


CASES = {
    "chain 300": (chain, (300,)),
    "chain 7": (chain, (7,)),
    "bending 11x14": (bending, (11, 14)),
    "bending 1x64": (bending, (1, 64)),
    "bending 40x2": (bending, (40, 2)),
    "quads 11x14": (quads, (11, 14)),
    "quads 40x5": (quads, (40, 5)),
    "volume 6x5x8": (volume, (6, 5, 8)),
    "volume 1x30x2": (volume, (1, 30, 2)),
}


# -- the reference -----------------------------------------------------------------------------------------------------


def interpolation(n: int) -> Real:
    """(n, n // 2 + 1): linear, from every other point; the identity for n <= 2."""
    if n <= 2:
        return np.eye(n)
    P = np.zeros((n, n // 2 + 1))
    for i in range(n):
        P[i, i // 2] += 0.5
        P[i, (i + 1) // 2] += 0.5
    return P


class ReferenceCycle:
    """A and a V-cycle for it, dense, with the damping factors that the native code found."""

    def __init__(self, A: Real, sizes: tuple[int, ...], channels: int, finest_omega: float, omegas: list[float]):
        self.levels: list[tuple[Any, Any, float]] = [(A, _diagonal_inverse(A, 1), finest_omega)]
        self.P: list[Any] = []
        free = np.diag(A) != 0
        for omega in omegas:
            P: Any = np.eye(1)
            for n in sizes:
                P = np.kron(P, interpolation(n))
            P = np.kron(P, np.eye(channels))
            if not self.P:
                P *= free[:, None]
            A = P.T @ A @ P
            self.P.append(P)
            self.levels.append((A, _diagonal_inverse(A, channels), omega))
            sizes = tuple(n // 2 + 1 if n > 2 else n for n in sizes)

    def apply(self, p: Vector) -> Vector:
        return np.asarray(self.levels[0][0] @ p)

    def precondition(self, r: Vector) -> Vector:
        return self._cycle(0, r)

    def _cycle(self, level: int, b: Vector) -> Vector:
        A, inverse, omega = self.levels[level]
        if level == len(self.levels) - 1:
            return np.asarray(np.linalg.lstsq(A, b, rcond=1e-10)[0])
        x = omega * (inverse @ b)
        x = x + self.P[level] @ self._cycle(level + 1, self.P[level].T @ (b - A @ x))
        return np.asarray(x + omega * (inverse @ (b - A @ x)))


def _diagonal_inverse(A: Real, block: int) -> Real:
    inverse = np.zeros_like(A)
    for at in range(0, len(A), block):
        here = slice(at, at + block)
        inverse[here, here] = np.linalg.pinv(A[here, here], hermitian=True, rcond=1e-9)
    return inverse


def interleaved(energy: op.Energy, sizes: tuple[int, ...]) -> NDArray[np.intp]:
    """The columns of the Jacobian, point by point."""
    points, start, columns = math.prod(sizes), 0, []
    for u in energy.unknown_fields:
        columns.append(start + np.arange(points * u.channels).reshape(points, u.channels))
        start += points * u.channels
    return np.concatenate(columns, axis=1).ravel()


@pytest.mark.parametrize("damping", [DAMPED, UNDAMPED], ids=["damped", "undamped"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("threads", [1, 2])
def test_every_iteration_is_that_of_the_reference(
    case: str, damping: Damping, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_ACCESSES_PER_THREAD", 1)
    build, sizes = CASES[case]
    energy, limits = build(), LinearLimits(max_iterations=8, residual_reset_period=3)
    values = values_of(energy, sizes)
    native = compiled(energy, values, threads)
    native.set_preconditioner("multigrid")
    native.trace = []
    native.linearise()
    native.damp(damping)
    ours = native.solve_linear(limits)

    order = interleaved(energy, sizes)
    F = np.concatenate([r.ravel() for r in energy.residuals(values).values()])
    J = energy.jacobian(values).toarray()[:, order]
    c = (J**2).sum(axis=0)
    A = J.T @ J + np.diag(np.where(c > 0, damping.diagonal(c), 0))
    assert isinstance(native._linear_solver, LinearSolver)
    multigrid = native._linear_solver._grid
    assert multigrid is not None
    assert isinstance(multigrid.levels, GridMultigrid)
    grid = multigrid.levels.levels
    omegas = [level.omega for level in grid._levels]
    cycle = ReferenceCycle(A, sizes, len(order) // math.prod(sizes), grid.state.omega, omegas)
    scaled = np.sqrt(np.diag(cycle.levels[0][1]))
    assert grid.state.omega * np.linalg.eigvalsh(scaled[:, None] * A * scaled).max() < 2  # else M is not positive
    trace: list[Any] = []
    delta, theirs = pcg(cycle, -(J.T @ F), limits, trace)
    assert (ours.iterations, ours.status) == (theirs.iterations, theirs.status)
    for name in ("rho", "pAp", "Q"):
        a, b = ([getattr(s, name) for s in t] for t in (native.trace, trace))
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-13 * max(map(abs, b)), err_msg=name)
    found = np.concatenate([native.read_vector("delta", u).ravel() for u in energy.unknown_fields])[order]
    np.testing.assert_allclose(found, delta, atol=1e-8 * np.abs(delta).max())


# -- what it is for ----------------------------------------------------------------------------------------------------


def iterations(n: int, preconditioner: Literal["jacobi", "multigrid"], dtype: Any) -> int:
    energy, data = poisson(n)
    options: dict[str, Any] = dict(method="gn", max_iterations=1, eta=0, r_tolerance=1e-4)
    result = op.solve(energy, data, dtype=dtype, preconditioner=preconditioner, **options)
    return result.iterations[1].linear_iterations


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_iterations_do_not_grow_with_the_picture(dtype: Any) -> None:
    small, large = iterations(40, "multigrid", dtype), iterations(320, "multigrid", dtype)
    assert large <= small + 2 <= 14
    assert iterations(320, "jacobi", dtype) > 20 * large


@pytest.mark.parametrize("preconditioner", ["multigrid", "auto"])
def test_steps_solved_to_the_end_are_those_of_jacobi(preconditioner: Any) -> None:
    data = arap_data(60, 75)
    options: dict[str, Any] = dict(dtype=np.float64, max_iterations=8, eta=0, r_tolerance=1e-10)
    jacobi = op.solve(arap_energy(), data, preconditioner="jacobi", **options)
    other = op.solve(arap_energy(), data, preconditioner=preconditioner, **options)
    np.testing.assert_allclose([r.cost for r in other.iterations], [r.cost for r in jacobi.iterations], rtol=1e-6)
    assert sum(r.linear_iterations for r in other.iterations) < sum(r.linear_iterations for r in jacobi.iterations) / 3
    assert "multigrid" in other.report()


@pytest.mark.parametrize("method", ["gn", "lm"])
@pytest.mark.parametrize("preconditioner", ["multigrid", "auto"])
@pytest.mark.parametrize("jump", [1e2, 1e3, 1e4, 1e5, 1e6])
def test_no_success_above_the_minimum_where_weights_jump(jump: float, preconditioner: Any, method: Any) -> None:
    """Errors that are constant where weights are large have eigenvalues smaller by jump^2 than those about them."""
    i, j = op.indices(H, W)
    X, A, J = op.Unknown("X", (H, W)), op.Array("A", (H, W)), op.Array("J", (H, W))
    smooth = [J[i, j] * (X[i, j] - X[i + 1, j]), J[i, j] * (X[i, j] - X[i, j + 1])]
    energy = op.Energy(fit=X[i, j] - A[i, j], smooth=smooth)
    # With 1e6 the rounding of x is most of what is left in float32, and Jacobi's own forcing in float64.
    coarser = 100 if jump == 1e6 else 1
    for seed in range(3):
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


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_ACCESSES_PER_THREAD", 1)
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
