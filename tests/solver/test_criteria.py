"""What counts as a small step, and when a small step is the end."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optpy.solver import Minimizer, SolveOptions, Status, Summary
from optpy.solver.proposal import Proposal
from optpy.solver.protocol import Cost, LinearLimits, LinearStatus, LinearSummary, Step
from optpy.solver.reference import ReferenceProblem, ReferenceTerm
from optpy.solver.rounding import Real
from optpy.solver.termination import Criteria, is_unsolved
from tests.support.known_problems import ReferenceProblemWith

EPS, EPS32 = float(np.finfo(np.float64).eps), float(np.finfo(np.float32).eps)
SOLVED = LinearSummary(3, LinearStatus.CONVERGED, "Solved.", 1e-3)

# -- what is left open -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "function", "cosine"), [(EPS, 1e-8, 1e-8), (0.0, 1e-8, 1e-8), (EPS32, 1e-6, 0.0)]
)
def test_open_tolerances_suit_the_arithmetic(precision: float, function: float, cosine: float) -> None:
    criteria = Criteria.of(SolveOptions(), precision, 100)
    assert (criteria.function, criteria.cosine) == (function, cosine)
    assert (criteria.gradient, criteria.parameter, criteria.max_time) == (0, 1e-8, None)


@pytest.mark.parametrize(
    ("size", "most"),
    [(0, 5000), (1, 5000), (5000, 5000), (10_000, 2500), (100_000, 250), (500_000, 50), (10**8, 50)],
)
def test_an_open_limit_on_iterations_suits_the_size(size: int, most: int) -> None:
    assert Criteria.of(SolveOptions(), EPS, size).max_iterations == most


@pytest.mark.parametrize("precision", [EPS, EPS32])
@pytest.mark.parametrize("size", [1, 10**8])
def test_what_the_user_gives_is_taken(precision: float, size: int) -> None:
    given: dict[str, Any] = dict(function_tolerance=0.0, cosine_tolerance=0.0, max_iterations=0)
    found = Criteria.of(SolveOptions(**given), precision, size)
    assert (found.function, found.cosine, found.max_iterations) == (0, 0, 0)
    given = dict(function_tolerance=1e-3, cosine_tolerance=1e-2, max_iterations=7777)
    given |= dict(gradient_tolerance=1e-5, parameter_tolerance=1e-4, max_time=3.0)
    found = Criteria.of(SolveOptions(**given), precision, size)
    assert found == Criteria(1e-3, 1e-5, 1e-4, 1e-2, 7777, 3.0)


# -- one step ----------------------------------------------------------------------------------------------------------

CRITERIA = Criteria(function=1e-6, gradient=0.0, parameter=1e-4, cosine=1e-8, max_iterations=50, max_time=None)


def proposal(change: float, gain: float, *, length: float = 1.0, x: float = 1.0, damped: float = 0.0) -> Proposal:
    """A step from a cost of 1, with what the model promises of it."""
    step = Step(Cost(1 - change, {"fit": 1 - change}), length, x, damped)
    return Proposal(SOLVED, step, accepted=True, model_cost_change=gain)


def small(p: Proposal, cosine: float = math.nan, *, comparable: bool = True, criteria: Criteria = CRITERIA) -> Any:
    ending = criteria.is_small(p, 1.0, cosine, comparable=comparable)
    return None if ending is None else ending.status


@pytest.mark.parametrize(
    ("change", "gain", "ends"),
    [
        (9e-7, 9e-7, True),
        (9e-7, 2e-6, False),  # the model promises more than came
        (2e-6, 9e-7, False),
        (-2e-6, 9e-7, False),  # it rises
        (-9e-7, 9e-7, True),
        (0.0, math.inf, False),
    ],
)
def test_the_larger_of_the_change_and_the_full_gain_counts(change: float, gain: float, ends: bool) -> None:
    assert small(proposal(change, gain)) is (Status.FUNCTION_TOLERANCE if ends else None)


def test_what_a_step_would_gain_without_its_damping_counts() -> None:
    gain = 9e-7
    assert small(proposal(gain, gain, damped=0.1 * gain)) is Status.FUNCTION_TOLERANCE
    assert small(proposal(gain, gain, damped=0.9 * gain)) is None
    assert small(proposal(gain, gain, damped=gain)) is None


def test_costs_that_are_not_comparable_say_nothing() -> None:
    p = proposal(1e-9, 1e-9)
    assert small(p) is Status.FUNCTION_TOLERANCE
    assert small(p, comparable=False) is None
    assert small(p, criteria=replace(CRITERIA, function=0.0)) is None


@pytest.mark.parametrize(("cosine", "ends"), [(math.nan, True), (0.9e-6, True), (1.1e-6, False), (1.0, False)])
def test_residuals_far_from_orthogonal_are_no_minimum(cosine: float, ends: bool) -> None:
    assert small(proposal(1e-9, 1e-9), cosine) is (Status.FUNCTION_TOLERANCE if ends else None)


@pytest.mark.parametrize(("length", "ends"), [(1.99e-4, True), (2.01e-4, False)])
def test_a_short_step_is_short_against_x(length: float, ends: bool) -> None:
    p = proposal(5e-5, 5e-5, length=length, x=2 - 1e-4)
    assert small(p) is (Status.PARAMETER_TOLERANCE if ends else None)
    assert small(p, criteria=replace(CRITERIA, parameter=0.0)) is None


def test_a_step_that_gains_a_notable_part_of_the_cost_is_not_short() -> None:
    p = proposal(0.5, 0.5, length=1e-9)
    assert small(p) is None  # beside an x of other units
    assert CRITERIA.is_small(p, 1.0, math.nan, comparable=True, initial=1e20) is not None  # what is left is nothing


def test_a_step_kept_short_by_its_damping_is_not_short() -> None:
    gain = 3e-5
    damped = gain * 2 * 3 / (1 + 2 * 3)  # d = 3 a
    assert proposal(gain, gain, damped=damped).lengthening == pytest.approx(4)
    assert small(proposal(gain, gain, length=0.24e-4, damped=damped)) is Status.PARAMETER_TOLERANCE
    assert small(proposal(gain, gain, length=0.26e-4, damped=damped)) is None
    assert small(proposal(gain, gain, length=0.26e-4)) is Status.PARAMETER_TOLERANCE


@pytest.mark.parametrize(
    ("status", "reduction", "unsolved"),
    [
        (LinearStatus.CONVERGED, 0.0, False),
        (LinearStatus.CONVERGED, 0.09, False),
        (LinearStatus.CONVERGED, 0.11, True),
        (LinearStatus.MAX_ITERATIONS, 1e-3, True),
        (LinearStatus.TIME_LIMIT, 1e-3, True),
        (LinearStatus.BREAKDOWN, 1e-3, True),
        (LinearStatus.FAILURE, 0.0, True),
    ],
)
def test_what_is_unsolved(status: LinearStatus, reduction: float, unsolved: bool) -> None:
    p = proposal(1e-9, 1e-9)._replace(linear=LinearSummary(3, status, "", reduction))
    assert is_unsolved(p) is unsolved
    assert CRITERIA.asks_cosine(p, 1.0) is not unsolved


def test_the_cosine_is_asked_where_little_is_left_to_gain() -> None:
    assert CRITERIA.asks_cosine(proposal(1e-9, 1e-9), 1.0)
    assert not CRITERIA.asks_cosine(proposal(1e-9, 2e-8), 1.0)
    assert not CRITERIA.asks_cosine(proposal(1e-9, 1e-9, damped=1e-9), 1.0)
    assert not replace(CRITERIA, cosine=0.0).asks_cosine(proposal(1e-9, 1e-9), 1.0)


# -- without damping ---------------------------------------------------------------------------------------------------


def damped_step(a: Real, d: Real, f: Real) -> Proposal:
    """Of 1/2 sum (sqrt(a) delta + f)^2, damped by d."""
    delta = -np.sqrt(a) * f / (a + d)
    gain = float(-np.sum(np.sqrt(a) * delta * (f + np.sqrt(a) * delta / 2)))
    step = Step(Cost(1.0, {}), float(np.linalg.norm(delta)), 1.0, float(np.sum(d * delta**2)))
    return Proposal(SOLVED, step, model_cost_change=gain)


@pytest.mark.parametrize("a", [1e-6, 0.3, 1e6])
@pytest.mark.parametrize("ratio", [1e-9, 0.5, 1.0, 100.0, 1e6])
def test_a_damped_step_tells_of_the_full_one(a: float, ratio: float) -> None:
    f = np.array([2.0, -3.0])
    p = damped_step(np.full(2, a), np.full(2, ratio * a), f)
    assert p.lengthening == pytest.approx(1 + ratio, rel=1e-8)
    assert p.full_gain == pytest.approx(0.5 * float(f @ f), rel=1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_over_several_directions_the_full_gain_is_a_lower_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, d = 10.0 ** rng.uniform(-3, 3, (2, 6))
    f = rng.normal(size=6)
    p = damped_step(a, d, f)
    assert p.model_cost_change < p.full_gain <= 0.5 * float(f @ f) * (1 + 1e-12)


def test_a_gain_that_is_all_damping_may_be_any() -> None:
    for damped in (1.0, 1.5):
        p = proposal(1.0, 1.0, damped=damped)
        assert p.lengthening == p.full_gain == math.inf
    p = proposal(1.0, 1.0)
    assert (p.lengthening, p.full_gain) == (1.0, 1.0)
    unasked = proposal(1.0, math.nan, damped=0.5)
    assert unasked.lengthening == 1.0
    assert math.isnan(unasked.full_gain)


# -- small steps of linear solves that end too soon --------------------------------------------------------------------

LINEAR = dict(parameter_tolerance=0.0, max_iterations=1000, initial_radius=1e14)


class Watched(ReferenceProblemWith):
    """Keeps the limits of its linear solves."""

    def __init__(self, inner: ReferenceProblem) -> None:
        super().__init__(inner)
        self.limits: list[LinearLimits] = []

    def solve_linear(self, limits: LinearLimits) -> LinearSummary:
        self.limits.append(limits)
        return self.inner.solve_linear(limits)


def ill_conditioned() -> tuple[Watched, float]:
    """A linear problem and its least cost; along one direction of x, far from any axis, the residuals hardly change.

    A thousandth of the cost is to be gained there.
    """
    rng = np.random.default_rng(1)
    values = np.array([1.0, 0.5, 1e-4])
    rows, columns = (np.linalg.qr(rng.normal(size=(k, 3)))[0] for k in (12, 3))
    A = rows * values @ columns.T
    across = rng.normal(size=12)
    across -= rows @ (rows.T @ across)
    y = across / np.linalg.norm(across) + rows @ np.array([1.0, 1.0, 0.03])
    term = ReferenceTerm(lambda x: A @ x - y, lambda x: A)
    return Watched(ReferenceProblem({"fit": term}, np.zeros(3))), 0.5


def run(problem: Any, precision: float, **options: Any) -> Summary:
    return Minimizer(problem, SolveOptions.of(**(LINEAR | options)), precision=precision).run()


@pytest.mark.parametrize("precision", [0.0, EPS])
def test_linear_solves_that_end_too_soon_are_no_success(precision: float) -> None:
    problem, least = ill_conditioned()
    summary = run(problem, precision, linear_iterations=1)
    assert summary.status is Status.LINEAR_LIMIT, summary.message
    assert not summary.status.success
    assert "3 steps in a row" in summary.message
    assert "1 iterations done." in summary.message
    costs = [r.cost for r in summary.iterations]
    assert max(np.abs(np.diff(costs[-4:]))) <= 1e-8 * summary.final.total  # what a looser test would have believed
    assert summary.final.total > least * (1 + 1e-6)


@pytest.mark.parametrize("precision", [0.0, EPS])
def test_the_same_problem_solved_to_the_end_is_a_success(precision: float) -> None:
    problem, least = ill_conditioned()
    summary = run(problem, precision, linear_iterations=500, eta=0.0, r_tolerance=1e-10)
    assert summary.status.success, summary.message
    assert summary.final.total == pytest.approx(least, rel=1e-8)


def test_after_a_small_unsolved_step_the_next_linear_solve_is_careful() -> None:
    problem, _ = ill_conditioned()
    summary = run(problem, EPS, linear_iterations=1)
    assert summary.status is Status.LINEAR_LIMIT
    limits = [(x.eta, x.r_tolerance) for x in problem.limits]
    assert limits == [(None, 0.0)] * (len(limits) - 2) + [(0.0, 0.1)] * 2
    for own, careful in ((0.2, 0.1), (1e-8, 1e-8)):
        problem, _ = ill_conditioned()
        run(problem, EPS, linear_iterations=1, eta=0.5, r_tolerance=own)
        limits = [(x.eta, x.r_tolerance) for x in problem.limits]
        assert limits[0] == (0.5, own)
        assert limits[-1] == (0.0, careful)


def test_careful_linear_solves_go_on_to_the_minimum() -> None:
    problem, least = ill_conditioned()
    summary = run(problem, EPS, eta=0.99)
    assert summary.status.success, summary.message
    assert any(x.eta == 0 for x in problem.limits)
    assert summary.final.total == pytest.approx(least, rel=1e-6)
