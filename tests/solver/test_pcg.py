from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optpy.solver.pcg import FloatArray, PCGScalars, Progress, pcg
from optpy.solver.protocol import LinearLimits, LinearStatus
from optpy.solver.safe_point import SafePoint


class Dense:
    """A matrix as an operator, with a matrix (or nothing) as the inverse of the preconditioner."""

    def __init__(self, A: FloatArray, inverse: FloatArray | None = None) -> None:
        self.A, self.inverse, self.applied = A, inverse, 0

    def apply(self, p: FloatArray) -> FloatArray:
        self.applied += 1
        return self.A @ p

    def precondition(self, r: FloatArray) -> FloatArray:
        return r.copy() if self.inverse is None else self.inverse @ r


def random_spd(n: int, seed: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((n + 3, n))
    return B.T @ B + 0.1 * np.eye(n), rng.standard_normal(n)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 12), seed=st.integers(0, 1000), jacobi=st.booleans())
def test_is_exact_after_n_iterations(n: int, seed: int, jacobi: bool) -> None:
    A, b = random_spd(n, seed)
    operator = Dense(A, np.diag(1 / np.diag(A)) if jacobi else None)
    delta, summary = pcg(operator, b, LinearLimits(max_iterations=n))
    assert summary.iterations <= n
    np.testing.assert_allclose(delta, np.linalg.solve(A, b), rtol=1e-6, atol=1e-8)


def test_an_exact_preconditioner_needs_one_iteration() -> None:
    A, b = random_spd(8, 0)
    delta, summary = pcg(Dense(A, np.linalg.inv(A)), b, LinearLimits(50, r_tolerance=1e-10))
    assert (summary.iterations, summary.status) == (1, LinearStatus.CONVERGED)
    np.testing.assert_allclose(delta, np.linalg.solve(A, b), rtol=1e-10)


@pytest.mark.parametrize("reset", [0, 3])
def test_the_recurrence_of_q_is_the_quadratic_model(reset: int) -> None:
    A, b = random_spd(9, 1)
    trace: list[PCGScalars] = []
    pcg(Dense(A), b, LinearLimits(8, residual_reset_period=reset), trace)
    assert [s.k for s in trace] == list(range(1, 9))
    for s in trace:
        delta, _ = pcg(Dense(A), b, LinearLimits(s.k, residual_reset_period=reset))
        direct = 0.5 * delta @ A @ delta - b @ delta
        assert pytest.approx(direct, rel=1e-10) == s.Q
        assert s.alpha == s.rho / s.pAp
    Q = [0.0, *(s.Q for s in trace)]
    assert all(after < before for before, after in pairwise(Q))
    assert [s.zeta for s in trace] == pytest.approx([k * (Q[k] - Q[k - 1]) / Q[k] for k in range(1, 9)])
    assert [s.rho for s in trace[1:]] == [s.rho_next for s in trace[:-1]]


def test_eta_stops_at_the_first_iteration_that_gains_little() -> None:
    A, b = random_spd(20, 2)
    trace: list[PCGScalars] = []
    _, summary = pcg(Dense(A), b, LinearLimits(100, eta=0.1), trace)
    assert summary.status is LinearStatus.CONVERGED
    assert "eta" in summary.message
    assert trace[-1].zeta < 0.1
    assert all(s.zeta >= 0.1 for s in trace[:-1])


def test_r_tolerance_stops_by_the_preconditioned_residual() -> None:
    A, b = random_spd(20, 2)
    M_inverse = np.diag(1 / np.diag(A))
    delta, summary = pcg(Dense(A, M_inverse), b, LinearLimits(100, r_tolerance=1e-3))
    r = A @ delta - b
    assert summary.status is LinearStatus.CONVERGED
    assert np.sqrt(r @ M_inverse @ r) < 1e-3 * np.sqrt(b @ M_inverse @ b)


def test_min_iterations_puts_the_tests_off() -> None:
    A, b = random_spd(20, 2)
    _, early = pcg(Dense(A), b, LinearLimits(100, eta=0.9, r_tolerance=0.9))
    _, late = pcg(Dense(A), b, LinearLimits(100, 7, eta=0.9, r_tolerance=0.9))
    assert early.iterations < 7
    assert late.iterations == 7


def test_the_limit_on_iterations() -> None:
    A, b = random_spd(20, 2)
    _, summary = pcg(Dense(A), b, LinearLimits(3))
    assert (summary.iterations, summary.status) == (3, LinearStatus.MAX_ITERATIONS)


def test_the_residual_reset_costs_one_application() -> None:
    A, b = random_spd(20, 2)
    plain, reset = Dense(A), Dense(A)
    x, _ = pcg(plain, b, LinearLimits(12))
    y, _ = pcg(reset, b, LinearLimits(12, residual_reset_period=4))
    assert (plain.applied, reset.applied) == (12, 15)
    np.testing.assert_allclose(x, y, rtol=1e-8)


def test_the_residual_reset_recovers_what_float32_loses() -> None:
    n = 200
    A = np.diag(np.linspace(1, 2000, n)).astype(np.float32)
    b = np.ones(n, np.float32)
    errors = []
    for period in (0, 10):
        delta, _ = pcg(Dense(A), b, LinearLimits(600, residual_reset_period=period))
        assert delta.dtype == np.float32
        errors.append(float(np.linalg.norm(A @ delta - b)))
    assert errors[1] < errors[0]


@pytest.mark.parametrize("period", [0, 1, 50])
def test_where_rounding_keeps_the_residual_from_falling_it_ends(period: int) -> None:
    """It would go on for ever: the tests of convergence ask for more than float32 has."""
    A = (1000 * np.eye(300) - 499.99 * np.eye(300, k=1) - 499.99 * np.eye(300, k=-1)).astype(np.float32)
    b = np.random.default_rng(0).standard_normal(300).astype(np.float32)
    delta, summary = pcg(Dense(A), b, LinearLimits(50_000, r_tolerance=1e-300, residual_reset_period=period))
    assert summary.status is LinearStatus.BREAKDOWN
    assert "Rounding keeps r.z" in summary.message
    assert summary.iterations < 5000
    np.testing.assert_allclose(delta, np.linalg.solve(A.astype(np.float64), b), rtol=0.02)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_residual_that_does_not_fall_for_long_is_no_end_while_the_model_does(dtype: type) -> None:
    """Of a load at one end of a chain that is held at the other, the residual walks along it, as large as it was."""
    n = 1500
    load: FloatArray = np.zeros(n, dtype)
    load[0] = 1

    class Chain:
        def apply(self, p: FloatArray) -> FloatArray:
            Ap = 2 * p
            Ap[:-1] -= p[1:]
            Ap[1:] -= p[:-1]
            Ap[0] -= p[0]
            return Ap

        def precondition(self, r: FloatArray) -> FloatArray:
            return r.copy()

    trace: list[PCGScalars] = []
    delta, summary = pcg(Chain(), load, LinearLimits(2 * n, r_tolerance=1e-3), trace)
    assert summary.status is LinearStatus.CONVERGED
    assert trace[n - 10].rho > 0.1 * trace[500].rho
    np.testing.assert_allclose(delta, n - np.arange(n), rtol=1e-2, atol=1)


def test_slow_convergence_is_no_stagnation() -> None:
    """r.z falls by twenty orders in ten thousand iterations, the gain of most of which Q does not show."""
    rng = np.random.default_rng(0)
    rho = 1.0
    progress = Progress(rho, float(np.finfo(np.float64).eps))
    for k in range(1, 10_001):
        rho *= 10 ** (-20 / 10_000)
        wavering = rho * rng.uniform(0.6, 1.6)
        assert not progress.has_ceased(PCGScalars(k, wavering, 1.0, 1.0, rho - 2, 0.0, wavering))


def test_a_deadline_in_the_past_leaves_one_iteration() -> None:
    A, b = random_spd(20, 2)
    delta, summary = pcg(Dense(A), b, LinearLimits(100, safe_point=SafePoint(time.perf_counter())))
    assert (summary.iterations, summary.status) == (1, LinearStatus.TIME_LIMIT)
    assert 0.5 * delta @ A @ delta - b @ delta < 0


def test_a_zero_right_hand_side() -> None:
    delta, summary = pcg(Dense(np.eye(3)), np.zeros(3), LinearLimits(10))
    assert (summary.iterations, summary.status) == (0, LinearStatus.CONVERGED)
    assert not delta.any()


def test_curvature_that_is_not_positive() -> None:
    _, first = pcg(Dense(-np.eye(3)), np.ones(3), LinearLimits(10))
    assert (first.iterations, first.status) == (0, LinearStatus.FAILURE)
    A = np.diag([1.0, 2.0, -0.1])
    delta, later = pcg(Dense(A), np.array([1.0, 1.0, 0.1]), LinearLimits(10))
    assert later.status is LinearStatus.BREAKDOWN
    assert later.iterations >= 1
    assert np.isfinite(delta).all()


@pytest.mark.parametrize("b", [np.nan, np.inf])
def test_a_right_hand_side_that_is_not_finite(b: float) -> None:
    _, summary = pcg(Dense(np.eye(2)), np.array([1.0, b]), LinearLimits(10))
    assert (summary.iterations, summary.status) == (0, LinearStatus.FAILURE)


def test_an_operator_that_is_not_finite() -> None:
    _, summary = pcg(Dense(np.full((2, 2), np.nan)), np.ones(2), LinearLimits(10))
    assert summary.status is LinearStatus.FAILURE


def test_a_preconditioner_that_is_not_positive() -> None:
    _, summary = pcg(Dense(np.eye(2), -np.eye(2)), np.ones(2), LinearLimits(10))
    assert summary.status is LinearStatus.FAILURE
    _, later = pcg(Dense(np.diag([1.0, 3.0]), np.diag([1.0, -0.1])), np.ones(2), LinearLimits(10))
    assert later.status is LinearStatus.BREAKDOWN
