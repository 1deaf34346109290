"""How solves end: each status is reached, and what is not finite is told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from optpy.errors import DataError
from optpy.solver import Minimizer, SolveOptions, Status
from optpy.solver.protocol import LinearStatus
from optpy.solver.reference import ReferenceProblem, ReferenceTerm
from optpy.solver.rounding import Real
from tests.support.known_problems import (
    ReferenceProblemWith,
    linear,
    rosenbrock,
    scalar,
    solve,
    two_exponentials,
)

# -- each status -------------------------------------------------------------------------------------------------------


def test_gradient_tolerance_at_the_start() -> None:
    known = linear()
    problem = ReferenceProblem({"fit": known.term}, known.minimum)
    minimizer = Minimizer(problem, SolveOptions(gradient_tolerance=1e-8))
    assert minimizer.status is Status.RUNNING
    summary = minimizer.run()
    assert summary.status is Status.GRADIENT_TOLERANCE
    assert summary.nit == 0
    assert minimizer.step() == summary.iterations[0]
    assert minimizer.summary() == summary


def test_function_tolerance() -> None:
    summary = solve(two_exponentials().problem(), gradient_tolerance=0, parameter_tolerance=0)
    last = summary.iterations[-1]
    assert summary.status is Status.FUNCTION_TOLERANCE
    assert last.accepted
    assert abs(last.cost_change) <= 1e-6 * summary.iterations[-2].cost


def test_parameter_tolerance() -> None:
    problem = two_exponentials().problem()
    summary = solve(problem, gradient_tolerance=0, function_tolerance=0, parameter_tolerance=1e-3, max_iterations=200)
    last = summary.iterations[-1]
    assert summary.status is Status.PARAMETER_TOLERANCE
    assert last.accepted
    assert last.step_norm <= 1e-3 * (np.linalg.norm(problem.x) + 1e-3) * 1.01


@pytest.mark.parametrize("weight", [1e4, 1e6])
def test_a_step_held_back_by_the_damping_is_not_convergence(weight: float) -> None:
    """The stiff difference scales the damping of the sum, of which a step removes a millionth or less at first."""
    J = np.array([[weight, -weight], [1.0, 1.0], [0.0, 1e-3]])
    b = np.array([0.0, 2.0, -100.0])
    term = ReferenceTerm(lambda x: J @ x - b, lambda x: J)
    problem = ReferenceProblem({"fit": term}, [0.0, 0.0])
    summary = solve(problem, eta=0.0, r_tolerance=1e-14)
    exact, *_ = np.linalg.lstsq(J, b, rcond=None)
    assert summary.status.success
    assert abs(summary.iterations[1].cost_change) <= 1e-6 * summary.initial.total
    least = 0.5 * float(np.sum((J @ exact - b) ** 2))
    assert summary.initial.total - least > 1e-4 * least
    assert summary.final.total == pytest.approx(least, rel=1e-7)


def test_min_radius() -> None:
    wrong = ReferenceTerm(lambda x: x + 2, lambda x: -np.eye(1))  # the wrong sign: always uphill
    problem = ReferenceProblem({"fit": wrong}, [3.0])
    summary = solve(problem)
    assert summary.status is Status.MIN_RADIUS
    assert not any(r.accepted for r in summary.iterations)
    assert problem.x[0] == 3.0


def test_max_iterations() -> None:
    summary = solve(rosenbrock().problem(), max_iterations=3)
    assert (summary.status, summary.nit, len(summary.iterations)) == (Status.MAX_ITERATIONS, 3, 4)
    assert not summary.status.success
    none = solve(rosenbrock().problem(), max_iterations=0)
    assert (none.status, none.nit, none.final) == (Status.MAX_ITERATIONS, 0, none.initial)


def test_time_limit() -> None:
    summary = solve(rosenbrock().problem(), max_time=1e-9)
    assert summary.status is Status.TIME_LIMIT
    assert summary.nit == 0


def test_a_linear_solve_cut_short_by_the_time_limit_is_not_convergence() -> None:
    class Slow(ReferenceProblemWith):
        def solve_linear(self, limits: Any) -> Any:
            while not limits.safe_point.is_late:
                pass
            return self.inner.solve_linear(limits)

    slow = Slow(rosenbrock().problem(preconditioner=None))
    options = SolveOptions(max_time=0.05, function_tolerance=0.999, parameter_tolerance=100)
    summary = Minimizer(slow, options).run()
    assert summary.iterations[-1].linear_status is LinearStatus.TIME_LIMIT
    assert summary.status is Status.TIME_LIMIT
    assert summary.nit == 1


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_starting_point_that_is_not_finite_raises() -> None:
    def log(x: float) -> float:
        with np.errstate(all="ignore"):
            return float(np.log(x))

    with pytest.raises(DataError, match="'fit'"):
        solve(scalar(log, lambda x: 1 / x, -1.0))


def test_a_gradient_that_is_not_finite_fails() -> None:
    def slope(x: float) -> float:
        return math.inf if x == 0 else 0.5 / math.sqrt(x)

    summary = solve(scalar(lambda x: math.sqrt(x) + 1, slope, 0.0))
    assert summary.status is Status.FAILURE
    assert "gradient" in summary.message
    assert summary.nit == 0


@pytest.mark.parametrize("method", ["lm", "gn"])
def test_a_linear_solve_that_keeps_failing_fails(method: str) -> None:
    class Broken(ReferenceProblemWith):
        def solve_linear(self, limits: Any) -> Any:
            from optpy.solver import LinearSummary

            return LinearSummary(0, LinearStatus.FAILURE, "p.Ap = nan")

    summary = Minimizer(Broken(rosenbrock().problem()), SolveOptions.of(method=method)).run()
    assert summary.status is Status.FAILURE
    assert "p.Ap = nan" in summary.message
    assert summary.nit == (5 if method == "lm" else 1)
    assert summary.final == summary.initial


def test_a_model_that_predicts_no_decrease_is_retried_then_fails() -> None:
    class Flat(ReferenceProblemWith):
        def model_cost_change(self) -> float:
            return 0.0

    summary = Minimizer(Flat(rosenbrock().problem()), SolveOptions(max_consecutive_invalid_steps=3)).run()
    assert summary.status is Status.FAILURE
    assert summary.nit == 3
    assert summary.iterations[1].tr_radius == 5e3


def test_a_cost_that_is_nowhere_finite_fails() -> None:
    def only_here(x: Real) -> Real:
        return np.where(x == 3.0, x, np.nan)

    problem = ReferenceProblem({"fit": ReferenceTerm(only_here, lambda x: np.eye(1))}, [3.0])
    summary = solve(problem)
    assert summary.status is Status.FAILURE
    assert "'fit'" in summary.message
    assert problem.x[0] == 3.0


def wall() -> ReferenceProblem:
    """The full step leads to 0.978, where the cost is lower, and finite, but the gradient is not."""
    return scalar(lambda x: math.log(x / 1.2), lambda x: 1 / x if x >= 1 else math.nan, 2.0)


def test_lm_gets_past_candidates_whose_gradient_is_not_finite() -> None:
    problem = wall()
    summary = solve(problem, max_iterations=100, initial_radius=1e16)
    first = summary.iterations[1]
    assert not first.accepted
    assert first.cost_change > 0
    assert (first.cost, first.gradient_norm) == (summary.initial.total, summary.iterations[0].gradient_norm)
    assert first.tr_radius == 0.5e16
    assert summary.status.success, summary.message
    assert problem.x[0] == pytest.approx(1.2, rel=1e-3)


def test_gauss_newton_stops_before_a_point_whose_gradient_is_not_finite() -> None:
    problem = wall()
    summary = solve(problem, method="gn")
    assert summary.status is Status.FAILURE
    assert "the gradient is not finite" in summary.message
    assert problem.x[0] == 2.0
    assert summary.final == summary.initial == problem.evaluate()
    assert not summary.iterations[-1].accepted
    assert math.isfinite(summary.iterations[-1].gradient_norm)


def test_where_no_step_has_a_finite_gradient_lm_says_so() -> None:
    problem = scalar(lambda x: x + 2, lambda x: 1.0 if x == 3 else math.inf, 3.0)
    summary = solve(problem, max_iterations=1000)
    assert summary.status is Status.FAILURE
    assert "However short the step, the gradient is not finite" in summary.message
    assert problem.x[0] == 3.0
