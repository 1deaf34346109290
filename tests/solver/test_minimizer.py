from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.sparse import csr_array

from optpy.errors import OptpyError
from optpy.solver import IntermediateResult, Minimizer, SolveOptions, Status
from optpy.solver.levenberg_marquardt import LevenbergMarquardt
from optpy.solver.protocol import LinearLimits
from optpy.solver.reference import ReferenceProblem, ReferenceTerm
from tests.support.known_problems import (
    Known,
    linear,
    misra,
    powell_singular,
    rosenbrock,
    scalar,
    solve,
    two_exponentials,
)

TIGHT = dict(eta=0.0, r_tolerance=1e-12, function_tolerance=0.0, parameter_tolerance=0.0)


# Against SciPy and known minima


@pytest.mark.parametrize("known", [rosenbrock(), misra(), two_exponentials(), linear()], ids=lambda k: k.name)
@pytest.mark.parametrize("preconditioner", [None, "jacobi", "block_jacobi"])
@pytest.mark.parametrize("jacobi_scaling", [True, False])
def test_lm_finds_the_minimum_that_scipy_finds(known: Known, preconditioner: Any, jacobi_scaling: bool) -> None:
    n = len(known.start)
    blocks = np.arange(n).reshape(-1, 2) if preconditioner == "block_jacobi" else None
    problem = known.problem(preconditioner=preconditioner, blocks=blocks)
    options = dict(max_iterations=300, function_tolerance=1e-14, eta=0.0, r_tolerance=1e-10)
    summary = solve(problem, jacobi_scaling=jacobi_scaling, **options)
    scipy = least_squares(
        known.term.residual, known.start, known.term.jacobian, method="lm", xtol=1e-14, ftol=1e-14, gtol=1e-14
    )
    assert summary.status.success, summary.message
    np.testing.assert_allclose(problem.x, scipy.x, rtol=1e-5, atol=1e-6)
    assert summary.final.total == pytest.approx(scipy.cost, rel=1e-9, abs=1e-12)
    if np.isfinite(known.minimum).all():
        np.testing.assert_allclose(problem.x, known.minimum, rtol=1e-5, atol=1e-6)


def test_lm_on_a_jacobian_that_is_singular_at_the_minimum() -> None:
    problem = powell_singular().problem()
    summary = solve(problem, max_iterations=200, gradient_tolerance=1e-12, **TIGHT)
    assert summary.status is Status.GRADIENT_TOLERANCE
    assert summary.final.total < 1e-14
    assert np.abs(problem.x).max() < 1e-3


def test_the_default_options_solve_too() -> None:
    problem = rosenbrock().problem()
    summary = solve(problem)
    assert summary.status.success
    np.testing.assert_allclose(problem.x, 1, atol=1e-4)


def test_sparse_and_dense_jacobians_agree_step_by_step() -> None:
    known = two_exponentials()
    sparse = ReferenceTerm(known.term.residual, lambda x: csr_array(known.term.jacobian(x)))
    block: dict[str, Any] = dict(preconditioner="block_jacobi", blocks=[[0, 1], [2, 3]])
    for options in (dict(preconditioner="jacobi"), block):
        a = solve(known.problem(**options))
        b = solve(ReferenceProblem({"fit": sparse}, known.start, **options))
        assert [r.cost for r in a.iterations] == pytest.approx([r.cost for r in b.iterations], rel=1e-9)


def test_terms_add_up() -> None:
    known = rosenbrock()
    halves = {
        "valley": ReferenceTerm(lambda x: known.term.residual(x)[:1], lambda x: known.term.jacobian(x)[:1]),
        "slope": ReferenceTerm(lambda x: known.term.residual(x)[1:], lambda x: known.term.jacobian(x)[1:]),
    }
    split, whole = solve(ReferenceProblem(halves, known.start)), solve(known.problem())
    assert split.final.total == pytest.approx(whole.final.total)
    assert split.initial.by_term == pytest.approx({"valley": 9.68, "slope": 2.42})
    assert split.nit == whole.nit


# Gauss-Newton


def test_gauss_newton_solves_a_linear_problem_in_one_step() -> None:
    known = linear()
    problem = known.problem()
    minimizer = Minimizer(problem, SolveOptions(method="gn", eta=0, r_tolerance=1e-13))
    minimizer.step()
    np.testing.assert_allclose(problem.x, known.minimum, rtol=1e-9)
    assert minimizer.run().status.success
    assert len(minimizer.iterations) <= 3


def test_gauss_newton_lets_the_cost_rise_and_returns_the_best_point() -> None:
    problem = rosenbrock().problem()  # its second full step climbs to a cost of about 1e3
    minimizer = Minimizer(problem, SolveOptions(method="gn", max_iterations=1, eta=0, r_tolerance=1e-13))
    summary = minimizer.run()
    assert summary.iterations[1].accepted
    assert summary.iterations[1].cost > summary.initial.total
    assert summary.final == summary.initial
    assert "best point" in summary.message
    np.testing.assert_array_equal(problem.x, rosenbrock().start)
    assert problem.evaluate() == summary.final


def test_gauss_newton_keeps_the_last_point_when_it_is_the_best() -> None:
    problem = rosenbrock().problem()
    summary = solve(problem, method="gn", eta=0, r_tolerance=1e-13)
    costs = [r.cost for r in summary.iterations]
    assert max(costs) > costs[0]
    assert summary.final.total == min(costs) == costs[-1]
    np.testing.assert_allclose(problem.x, 1, atol=1e-10)
    assert "best point" not in summary.message


def test_gauss_newton_that_ends_at_a_worse_point_has_not_converged() -> None:
    # Full steps on the arc tangent overshoot ever further, to where its slope and so the gradient vanish.
    problem = scalar(np.arctan, lambda x: 1 / (1 + x**2), 2.0)
    summary = solve(problem, method="gn", gradient_tolerance=1e-6)
    assert summary.iterations[-1].gradient_norm <= 1e-6
    assert summary.status is Status.FAILURE
    assert not summary.status.success
    assert "no minimum" in summary.message
    assert problem.x[0] == 2.0


def test_gauss_newton_has_no_trust_region() -> None:
    record = solve(rosenbrock().problem(), method="gn").iterations[1]
    assert math.isinf(record.tr_radius)
    assert math.isnan(record.tr_ratio)


def test_gauss_newton_stops_before_a_point_that_is_not_finite() -> None:
    problem = scalar(lambda x: np.log(x) + 5, lambda x: 1 / x, 3.0)  # the full step leads to x < 0
    summary = solve(problem, method="gn")
    assert summary.status is Status.FAILURE
    assert "'fit'" in summary.message
    assert problem.x[0] == 3.0
    assert summary.final == summary.initial
    assert not summary.iterations[-1].accepted


def test_gauss_newton_that_goes_back_and_forth_ends() -> None:
    # The full step from x leads to -1 / x, and from there back.
    problem = scalar(lambda x: math.sqrt(x * x + 1), lambda x: x / math.sqrt(x * x + 1), 2.0)
    summary = solve(problem, method="gn", max_iterations=1000)
    assert summary.status is Status.FAILURE
    assert "back and forth between costs of 6.250000e-01 and 2.500000e+00" in summary.message
    assert len(summary.iterations) < 50
    assert problem.x[0] == pytest.approx(-0.5)
    assert summary.final.total == pytest.approx(0.625)


def test_gauss_newton_may_go_back_and_forth_while_it_comes_nearer() -> None:
    # The full step from x leads to x - 1.9 x.
    problem = scalar(lambda x: abs(x) ** (1 / 1.9), lambda x: math.copysign(abs(x) ** (1 / 1.9 - 1) / 1.9, x), 2.0)
    summary = solve(problem, method="gn", max_iterations=200, function_tolerance=0, parameter_tolerance=0)
    xs = [r.step_norm for r in summary.iterations[1:]]
    np.testing.assert_allclose(np.divide(xs[1:100], xs[:99]), 0.9, rtol=1e-6)
    assert abs(problem.x[0]) < 1e-8


# Levenberg-Marquardt


def test_lm_comes_back_from_a_step_that_was_made_without_damping() -> None:
    problem = scalar(lambda x: math.sqrt(x * x + 1), lambda x: x / math.sqrt(x * x + 1), 0.1)
    method = LevenbergMarquardt(SolveOptions(), 3.0)
    cost = problem.evaluate().total
    problem.linearise()
    method.widen(1e15)
    assert method.radius == 1e15
    assert not method.propose(problem, cost, LinearLimits(max_iterations=10)).accepted
    assert method.radius == 3.0
    assert not method.propose(problem, cost, LinearLimits(max_iterations=10)).accepted
    assert method.radius == 1.5


def test_lm_never_lets_the_cost_rise_and_rejected_steps_leave_x_alone() -> None:
    problem = rosenbrock().problem()
    minimizer = Minimizer(problem, SolveOptions())
    rejected = 0
    while not minimizer.status.finished:
        x, cost = problem.x.copy(), minimizer.cost.total
        record = minimizer.step()
        if not record.accepted and record.iteration:
            rejected += 1
            np.testing.assert_array_equal(problem.x, x)
            assert record.cost_change < 0 or record.tr_ratio <= 1e-3
        assert math.isnan(cost) or record.cost <= cost
    assert rejected


def test_the_radius_follows_ceres() -> None:
    records = solve(rosenbrock().problem()).iterations
    radius, factor = 1e4, 2.0
    for record in records[1:]:
        if record.accepted:
            radius = min(1e16, radius / max(1 / 3, 1 - (2 * min(record.tr_ratio, 1) - 1) ** 3))
            factor = 2.0
        else:
            radius, factor = radius / factor, 2 * factor
        assert record.tr_radius == pytest.approx(radius)


def test_lm_gets_past_candidates_that_are_not_finite() -> None:
    def log(x: float) -> float:
        return float(np.log(x)) + 5

    problem = scalar(log, lambda x: 1 / x, 3.0)
    summary = solve(problem, max_iterations=100)
    assert summary.status.success
    assert problem.x[0] == pytest.approx(math.exp(-5), rel=1e-3)
    assert any(not r.accepted and not math.isfinite(r.cost_change) for r in summary.iterations[1:])


# Callbacks and steps


def test_callback_sees_every_iteration_and_ends_the_solve() -> None:
    problem = rosenbrock().problem()
    seen: list[IntermediateResult] = []

    def callback(intermediate_result: IntermediateResult) -> None:
        seen.append(intermediate_result)
        assert intermediate_result.x["x"] is intermediate_result.x["x"]
        np.testing.assert_array_equal(intermediate_result.x["x"], problem.x)
        if intermediate_result.nit == 4:
            raise StopIteration("enough")

    options = SolveOptions(callback=callback)
    summary = Minimizer(problem, options, read_x=lambda: {"x": problem.x.copy()}).run()
    assert summary.status is Status.CALLBACK
    assert "enough" in summary.message
    assert [s.nit for s in seen] == [1, 2, 3, 4]
    assert [s.iteration for s in seen] == list(summary.iterations[1:])
    assert seen[-1].cost == summary.final.total
    assert seen[-1].cost_by_term == summary.final.by_term


def test_callback_that_stops_a_converged_solve_leaves_it_converged() -> None:
    def callback(intermediate_result: IntermediateResult) -> None:
        if intermediate_result.iteration.gradient_norm < 1e-10:
            raise StopIteration

    summary = solve(
        linear().problem(), callback=callback, gradient_tolerance=1e-10, r_tolerance=1e-14, initial_radius=1e16
    )
    assert summary.status.success


def test_errors_of_a_callback_go_through() -> None:
    def callback(intermediate_result: IntermediateResult) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        solve(rosenbrock().problem(), callback=callback)


def test_a_callback_without_a_reader_is_told_so() -> None:
    def callback(intermediate_result: IntermediateResult) -> None:
        assert intermediate_result.x

    with pytest.raises(AttributeError, match="unknowns"):
        solve(rosenbrock().problem(), callback=callback)


def test_x_is_not_read_after_its_callback() -> None:
    kept: list[IntermediateResult] = []
    Minimizer(rosenbrock().problem(), SolveOptions(callback=kept.append), read_x=lambda: {"x": 1}).run()
    with pytest.raises(OptpyError, match="not read in the callback"):
        assert kept[0].x
    read: list[IntermediateResult] = []

    def reading(now: IntermediateResult) -> None:
        read.append(now)
        assert now.x

    Minimizer(rosenbrock().problem(), SolveOptions(callback=reading), read_x=lambda: {"x": len(read)}).run()
    assert [now.x["x"] for now in read] == list(range(1, len(read) + 1))


def test_stepping_is_running() -> None:
    a, b = rosenbrock().problem(), rosenbrock().problem()
    stepped = Minimizer(a, SolveOptions())
    while not stepped.status.finished:
        record = stepped.step()
        assert record is stepped.iterations[-1]
    ran = Minimizer(b, SolveOptions()).run()
    assert [r.cost for r in stepped.iterations] == [r.cost for r in ran.iterations]
    assert (stepped.status, stepped.message) == (ran.status, ran.message)
    np.testing.assert_array_equal(a.x, b.x)
