"""Endings at the precision of the arithmetic: what is as good as it can be, and what is only hidden by rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optpy.solver import Minimizer, SolveOptions, Status, Summary
from optpy.solver.precision import Precision
from optpy.solver.proposal import Proposal
from optpy.solver.protocol import Cost, Damping, LinearLimits, LinearStatus, LinearSummary, Rounding, Step
from optpy.solver.reference import ReferenceProblem, ReferenceTerm
from optpy.solver.result import Ending
from optpy.solver.rounding import Real
from optpy.solver.safe_point import UNDISTURBED
from tests.support.known_problems import ReferenceProblemWith, scalar

EPS, EPS32 = float(np.finfo(np.float64).eps), float(np.finfo(np.float32).eps)
OFF = dict(function_tolerance=0.0, cosine_tolerance=0.0, parameter_tolerance=0.0, max_iterations=300)
ADVICE = "dtype=np.float64"


def solve(problem: Any, precision: float = EPS, **options: Any) -> Summary:
    return Minimizer(problem, SolveOptions.of(**options), precision=precision).run()


# -- exact fits --------------------------------------------------------------------------------------------------------


def decay(noise: float) -> tuple[ReferenceTerm, Real]:
    """b0 exp(-b1 t), its data other than the model's by random numbers of that size; and the parameters."""
    t, b = np.linspace(0, 3, 20), np.array([2.1, 0.7])
    other = 1 + noise * np.random.default_rng(4).choice([-1.0, 1.0], len(t))

    def jacobian(b: Real) -> Real:
        return np.column_stack([np.exp(-b[1] * t), -b[0] * t * np.exp(-b[1] * t)])

    data = b[0] * np.exp(-b[1] * t) * other
    return ReferenceTerm(lambda b: b[0] * np.exp(-b[1] * t) - data, jacobian), b


@pytest.mark.parametrize("method", ["lm", "gn"])
@pytest.mark.parametrize("options", [{}, OFF])
def test_an_exact_fit_started_at_its_solution(method: str, options: dict[str, Any]) -> None:
    term, b = decay(EPS)
    problem = ReferenceProblem({"fit": term}, b)
    summary = solve(problem, method=method, **options)
    assert 0 < summary.initial.total < 1e-29
    assert summary.status is Status.PRECISION if options else summary.status.success, summary.message
    assert summary.nit <= 3
    np.testing.assert_allclose(problem.x, b, rtol=1e-14)


def test_a_cost_that_rounding_x_makes_is_told_from_one_that_it_does_not() -> None:
    for noise, made in [(EPS, True), (1e-12, False)]:
        term, b = decay(noise)
        problem = ReferenceProblem({"fit": term}, b)
        cost = problem.evaluate().total
        problem.linearise()
        failed = Proposal(LinearSummary(0, LinearStatus.FAILURE, ""))
        ending = Precision(problem, EPS, cost).ending(failed, cost)
        assert (ending is not None and "which rounding x could make" in ending.message) is made
        if ending is not None:
            assert ending.status is Status.PRECISION
        assert Precision(problem, 0.0, cost).ending(failed, cost) is None  # exact arithmetic has no such endings


@pytest.mark.parametrize("method", ["lm", "gn"])
def test_an_exact_fit_from_afar_goes_on_to_its_solution(method: str) -> None:
    term, b = decay(EPS)
    problem = ReferenceProblem({"fit": term}, b * [1.3, 0.8])
    summary = solve(problem, method=method, **OFF)
    assert summary.status is Status.PRECISION, summary.message
    np.testing.assert_allclose(problem.x, b, rtol=1e-12)


# -- what is no minimum ------------------------------------------------------------------------------------------------


def wrong(x: float = 3.0) -> ReferenceProblem:
    """A derivative of the wrong sign: each step leads uphill."""
    return scalar(lambda x: x + 2, lambda x: -1.0, x)


@pytest.mark.parametrize("precision", [EPS, EPS32])
def test_a_gradient_of_the_wrong_sign_is_no_success(precision: float) -> None:
    problem = wrong()
    summary = solve(problem, precision, max_iterations=1000)
    assert summary.status is Status.MIN_RADIUS, summary.message
    assert not summary.status.success
    assert problem.x[0] == 3.0
    assert f"<= {precision:.3e}" in summary.message  # a step as short as rounding ends it, not the least radius


@pytest.mark.parametrize("column", [0, 1, 2])
def test_one_column_of_the_wrong_sign_is_no_success(column: int) -> None:
    rng = np.random.default_rng(column)
    A, y = rng.normal(size=(12, 3)), rng.normal(size=12)
    B = A.copy()
    B[:, column] *= -1
    problem = ReferenceProblem({"fit": ReferenceTerm(lambda x: A @ x - y, lambda x: B)}, np.full(3, 5.0))
    summary = solve(problem, max_iterations=1000)
    assert not summary.status.success, summary.message
    least = y - A @ np.linalg.lstsq(A, y, rcond=None)[0]
    assert summary.final.total > 1.01 * 0.5 * float(least @ least)


class Hidden(ReferenceProblemWith):
    """Says that its gradient is rounding, whatever it is."""

    def rounding(self, cost: float) -> Rounding:
        return Rounding(0.0, self.inner.rounding(cost).cost)


def test_a_gradient_like_rounding_is_no_minimum_where_much_is_promised() -> None:
    summary = solve(Hidden(wrong()), max_iterations=1000)
    assert summary.status is Status.MIN_RADIUS, summary.message


@pytest.mark.parametrize(
    ("precision", "gain", "converged"),
    [(EPS, 1e-9, True), (EPS, 1e-7, False), (EPS, 0.5, False), (EPS32, 1e-4, True), (EPS32, 1e-3, False)],
)
def test_how_much_may_be_promised_where_the_gradient_is_like_rounding(
    precision: float, gain: float, converged: bool
) -> None:
    problem = wrong()
    problem.linearise()
    cost = problem.evaluate().total
    step = Step(Cost(2 * cost, {}), 1e-6, 1.0)
    up = Proposal(LinearSummary(1, LinearStatus.CONVERGED, ""), step, model_cost_change=gain * cost)
    ending = Precision(Hidden(problem), precision, cost).ending(up, cost)
    assert (ending is not None) is converged
    if ending is not None:
        assert ending.status is Status.PRECISION
        assert "relative gradient" in ending.message
        assert (ADVICE in ending.message) is (precision == EPS32)


def test_a_step_that_leads_down_is_taken_whatever_the_rounding() -> None:
    problem = wrong()
    problem.linearise()
    cost = problem.evaluate().total
    step = Step(Cost(cost * (1 - 1e-9), {}), 1e-10, 1.0)
    solved = LinearSummary(1, LinearStatus.CONVERGED, "")
    down = Proposal(solved, step, accepted=True, model_cost_change=1e-9 * cost)
    assert Precision(Hidden(problem), EPS, cost).ending(down, cost) is None


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("precision", [EPS, EPS32])
def test_a_step_that_its_linear_solve_left_short_is_not_short_by_rounding(offset: float, precision: float) -> None:
    summary = solve(unsolved(offset), precision, **UNSOLVED)
    assert not summary.status.success, summary.message
    assert summary.final.total > 0.5 * (1 + 1e-4)


# -- advice ------------------------------------------------------------------------------------------------------------


def noisy(noise: float = 1e-5) -> ReferenceProblemWith:
    """A linear fit whose gradient is noise more than gradient, in the end."""
    rng = np.random.default_rng(1)
    A, y = rng.normal(size=(60, 12)), rng.normal(size=60)
    root = np.linalg.cholesky(A.T @ A)

    class NoisyGradient(ReferenceProblemWith):
        def linearise(self) -> float:
            self.inner.linearise()
            direction = rng.normal(size=12)
            self.inner.g = self.inner.g + noise * root @ (direction / np.linalg.norm(direction))
            return float(np.max(np.abs(self.inner.g)))

    return NoisyGradient(ReferenceProblem({"fit": ReferenceTerm(lambda x: A @ x - y, lambda x: A)}, np.zeros(12)))


def exact() -> ReferenceProblem:
    term, b = decay(EPS)
    return ReferenceProblem({"fit": term}, b)


def unsolved(offset: float = 0.0) -> ReferenceProblem:
    """A linear problem with a direction, far from any axis, along which the residuals hardly change.

    A thousandth of the cost is to be gained there, and one iteration of conjugate gradients gains next to nothing of
    it. The minimum is at about that offset, its cost 1/2.
    """
    rng = np.random.default_rng(1)
    rows, columns = (np.linalg.qr(rng.normal(size=(k, 3)))[0] for k in (12, 3))
    A = rows * [1, 0.5, 1e-4] @ columns.T
    across = rng.normal(size=12)
    across -= rows @ (rows.T @ across)
    y = across / np.linalg.norm(across) + rows @ [1, 1, 0.03] + A @ np.full(3, offset)
    return ReferenceProblem({"fit": ReferenceTerm(lambda x: A @ x - y, lambda x: A)}, np.full(3, offset))


UNSOLVED: dict[str, Any] = dict(linear_iterations=1, parameter_tolerance=0.0, initial_radius=1e14)
NOISY: dict[str, Any] = OFF | dict(eta=0.0, r_tolerance=1e-10, initial_radius=1e12)


@pytest.mark.parametrize(
    ("make", "status", "options"),
    [
        (exact, Status.PRECISION, OFF),
        (noisy, Status.PRECISION, NOISY),
        (wrong, Status.MIN_RADIUS, {}),
        (wrong, Status.MIN_RADIUS, dict(min_radius=0.5)),
        (unsolved, Status.LINEAR_LIMIT, UNSOLVED),
    ],
)
def test_float64_is_advised_in_float32_only(make: Any, status: Status, options: dict[str, Any]) -> None:
    single, double = solve(make(), EPS32, **options), solve(make(), EPS, **options)
    assert (single.status, double.status) == (status, status)
    assert single.message.count(ADVICE) == 1, single.message
    assert ADVICE not in double.message


class Noise(ReferenceProblemWith):
    """The gradient promises what the residuals do not find."""

    def __init__(self, inner: ReferenceProblem, promised: float) -> None:
        super().__init__(inner)
        self._promised = promised

    def promised_change(self) -> float:
        return self._promised

    def model_cost_change(self) -> float:
        return -self._promised

    def rounding(self, cost: float) -> Rounding:
        return Rounding(1.0, 0.0)


@pytest.mark.parametrize(("precision", "advised"), [(EPS32, 1), (EPS, 0)])
def test_float64_is_advised_where_the_gradient_is_noise_in_float32(precision: float, advised: int) -> None:
    problem = ReferenceProblem({"fit": ReferenceTerm(lambda x: x - 1, lambda x: np.eye(1))}, [3.0])
    problem.linearise()
    problem.damp(Damping(1e12, 1e-6, 1e32, True))
    linear = problem.solve_linear(LinearLimits(10))
    given_up = Proposal(linear, ending=Ending(Status.FAILURE, "Nothing helps."))
    cost = problem.evaluate().total
    precise = Precision(Noise(problem, 0.1 * precision**0.5 * cost), precision, cost)
    assert precise.ending(given_up, cost) is None
    ending = precise.resort(given_up, cost, UNDISTURBED)
    assert ending is not None
    assert ending.status is Status.PRECISION
    assert "by the residuals" in ending.message
    assert ending.message.count(ADVICE) == advised, ending.message


def test_float64_is_not_advised_where_rounding_is_not_the_matter() -> None:
    term, b = decay(1e-2)
    summary = solve(ReferenceProblem({"fit": term}, b * [1.3, 0.8]), EPS32, function_tolerance=0.1)
    assert summary.status in (Status.FUNCTION_TOLERANCE, Status.PARAMETER_TOLERANCE), summary.message
    assert ADVICE not in summary.message
