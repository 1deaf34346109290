"""The forcing follows what the model has foretold; a limit that linear solves run into is told at the end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from optpy.solver import SolveOptions, Status
from optpy.solver.confirmation import Confirmation
from optpy.solver.forcing import LOOSE, SECOND, TIGHT, Forcing
from optpy.solver.gauss_newton import GaussNewton
from optpy.solver.pcg import pcg
from optpy.solver.precision import Precision
from optpy.solver.proposal import Proposal
from optpy.solver.protocol import Cost, Damping, LinearLimits, LinearStatus, LinearSummary, Step
from optpy.solver.reference import ReferenceProblem, ReferenceTerm
from optpy.solver.result import Ending
from optpy.solver.safe_point import UNDISTURBED
from tests.support.known_problems import rosenbrock, solve


def proposal(
    after: float, promised: float, *, accepted: bool = True, gain: float = 0.0, iterations: int = 3
) -> Proposal:
    """A step from a cost of 100."""
    linear = LinearSummary(iterations, LinearStatus.CONVERGED, "", gain=gain)
    return Proposal(linear, Step(Cost(after, {}), 1.0, 1.0), accepted, model_cost_change=promised)


@pytest.mark.parametrize(
    ("step", "eta"),
    [
        (proposal(95, 5), SECOND),  # half of the last gain
        (proposal(94, 6), SECOND / 4),  # gains do not fall
        (proposal(99.1, 0.9), 4 * SECOND),  # gains fall fast
        (proposal(97, 4), 0.0625),  # the model is wrong by more than is hidden
        (proposal(95, 4), 0.0625),  # more than promised
        (proposal(98, 10), LOOSE),
        (proposal(105, 10, accepted=False), LOOSE),
        (proposal(math.inf, 10, accepted=False), LOOSE),
        (proposal(105, 10), TIGHT),  # a full step of Gauss-Newton that leads up
        (proposal(94, math.nan, gain=6), SECOND / 4),  # Gauss-Newton's model is that of the linear solve
        (proposal(100, 1e-4, accepted=False), SECOND / 4),  # rounding may have decided
        (proposal(50, 10, iterations=0), SECOND),  # not by conjugate gradients: as it was
    ],
)
def test_eta_follows_the_gains_and_whether_they_were_foretold(step: Proposal, eta: float) -> None:
    forcing = Forcing()
    assert forcing.term == TIGHT
    forcing.learn(proposal(90, 10), 100.0, little=1e-6)
    assert forcing.term == SECOND  # gains cannot be compared yet
    forcing.learn(step, 100.0, little=1e-6)
    assert forcing.term == pytest.approx(eta)


def test_eta_stays_within_its_limits() -> None:
    forcing = Forcing()
    falling = [10.0 * 0.05**k for k in range(4)]
    for gains, limit in ((falling, LOOSE), ([1.0] * 6, TIGHT)):
        for gain in gains:
            forcing.learn(proposal(100 - gain, gain), 100.0, little=1e-6)
        assert forcing.term == limit


def test_gains_are_not_compared_with_those_of_a_refused_step() -> None:
    forcing = Forcing()
    for step in (proposal(90, 10), proposal(105, 10, accepted=False), proposal(92, 8)):
        forcing.learn(step, 100.0, little=1e-6)
    assert forcing.term == LOOSE


def test_steps_that_promise_nothing_beside_the_start_are_solved_more_and_more_exactly() -> None:
    forcing = Forcing()
    forcing.learn(proposal(90, 10), 100.0, little=1e-6)
    for eta in (SECOND / 4, TIGHT, TIGHT):
        forcing.learn(proposal(99, 10), 100.0, little=50.0)
        assert forcing.term == eta


@pytest.fixture
def etas(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Of the linear solves that are made."""
    found: list[float] = []
    solve_linear = ReferenceProblem.solve_linear

    def noted(self: ReferenceProblem, limits: LinearLimits) -> LinearSummary:
        eta = limits.decided().eta
        assert eta is not None
        found.append(eta)
        return solve_linear(self, limits)

    monkeypatch.setattr(ReferenceProblem, "solve_linear", noted)
    return found


def test_the_first_solve_is_tight_and_one_after_a_refused_step_loose(etas: list[float]) -> None:
    summary = solve(rosenbrock().problem(), initial_radius=1e4)
    assert summary.status.success
    assert etas[0] == TIGHT
    for eta, record in zip(etas[1:], summary.iterations[1:], strict=False):
        assert record.accepted or eta == LOOSE


def test_solves_of_small_problems_are_tight(etas: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReferenceProblem, "hidden_is_exact", True)
    summary = solve(rosenbrock().problem(), initial_radius=1e4, max_iterations=5)
    assert not all(record.accepted for record in summary.iterations[1:])
    assert set(etas) == {TIGHT}


def test_an_eta_that_is_given_stays(etas: list[float]) -> None:
    assert solve(rosenbrock().problem(), eta=0.03).status.success
    assert set(etas) <= {0.03, 0.0}  # 0 where an ending is decided


@pytest.mark.parametrize(
    ("suited", "reduction", "passes"), [(LOOSE, 0.5, False), (LOOSE, 1e-3, True), (0.0, 0.5, True)]
)
def test_an_ending_waits_for_a_tight_solve_where_the_last_was_loose(
    suited: float, reduction: float, passes: bool
) -> None:
    # With multigrid 0: its solves take no notice of the step, so that the next one would be as loose.
    options = SolveOptions()
    precise = Precision(rosenbrock().problem(), 0.0)
    confirmation = Confirmation(options, GaussNewton(options), precise, 0.0, is_fit=False, is_small=False)
    confirmation.made(proposal(98, 10), 100.0)
    assert confirmation.begin_step(UNDISTURBED).suited == LOOSE
    last = proposal(99.9, 0.1)
    last = last._replace(linear=last.linear._replace(suited=suited, reduction=reduction), longer=False)
    ending = Ending(Status.FUNCTION_TOLERANCE, "", hinges=True)
    assert confirmation.damping(ending, last, 99.9) is (ending if passes else None)
    assert confirmation.begin_step(UNDISTURBED).suited == (LOOSE if passes else TIGHT)


@pytest.mark.parametrize(("default", "ended_by"), [(None, 0.05), (0.1, 0.0)])
def test_a_solve_tells_whether_it_has_ended_by_what_suits_the_step(default: float | None, ended_by: float) -> None:
    limits = LinearLimits(100, eta=None, suited=0.05).decided(default)
    assert limits.eta == (ended_by or 0.1)
    b = np.linspace(1, 2, 40)
    matrix = ill_conditioned()
    matrix.evaluate()
    matrix.linearise()
    matrix.damp(Damping(math.inf, 0.0, 1.0, jacobi_scaling=False))
    _, summary = pcg(matrix, b, limits)
    assert summary.status is LinearStatus.CONVERGED
    assert summary.suited == ended_by
    _, limited = pcg(matrix, b, limits._replace(max_iterations=1))
    assert limited.suited == 0.0


# Linear solves at their limit


def ill_conditioned(n: int = 40) -> ReferenceProblem:
    J = np.diag(np.geomspace(1, 1e-4, n)) @ np.linalg.qr(np.random.default_rng(0).normal(size=(n, n)))[0]
    term = ReferenceTerm(lambda x: J @ x - 1, lambda x: J)
    return ReferenceProblem({"fit": term}, np.zeros(n), preconditioner=None)


@pytest.mark.parametrize("method", ["lm", "gn"])
def test_linear_solves_that_run_into_their_limit_are_told_with_the_cure(method: Any) -> None:
    summary = solve(ill_conditioned(), method=method, linear_iterations=2, max_iterations=8)
    assert summary.status is Status.MAX_ITERATIONS
    assert "8 of 8 linear solves ran into linear_iterations = 2" in summary.message
    assert "Another preconditioner or more of them" in summary.message
    assert "weights" not in summary.message
    enough = solve(ill_conditioned(), method=method, max_iterations=8)
    assert "linear_iterations" not in enough.message


def test_a_single_linear_solve_at_its_limit_is_not_told() -> None:
    summary = solve(ill_conditioned(), linear_iterations=2, max_iterations=2)
    assert "linear_iterations" not in summary.message
