"""When a gradient counts as rounding, and when it does not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from optpy.solver import Minimizer, SolveOptions, Status, Summary
from optpy.solver.precision import ROUNDINGS, noise_test, rounding_test
from optpy.solver.reference import ReferenceProblem, ReferenceTerm
from optpy.solver.rounding import Everything, Real, changes_by_rounding, left_in, rounding
from tests.support.known_problems import ReferenceProblemWith

EPS = float(np.finfo(np.float64).eps)
OFF = dict(function_tolerance=0.0, gradient_tolerance=0.0, parameter_tolerance=0.0, max_iterations=300)


def at(A: Real, y: Real, x: Any, step: Real | None = None) -> float:
    """The relative gradient of 1/2 ||A x - y||^2 at x, computed in float64."""
    F = A @ x - y
    c = np.sum(A * A, axis=0)
    step = np.zeros_like(x) if step is None else step
    changes = changes_by_rounding(c, np.abs(x), 0.5 * float(F @ F), lambda p: A.T @ (A @ p))
    return rounding(A.T @ F, c, step, changes).relative_gradient


def random(rows: int, columns: int, seed: int) -> tuple[Real, Real]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, columns)), rng.normal(size=rows)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_at_a_minimum_the_gradient_is_rounding_and_beside_it_not(seed: int, scale: float) -> None:
    A, y = random(40, 12, seed)
    x = np.linalg.lstsq(A, y, rcond=None)[0]
    exact = y - A.astype(np.longdouble) @ x.astype(np.longdouble)
    x = x + np.linalg.lstsq(A, exact.astype(np.float64), rcond=None)[0]
    assert at(A, y * scale, x * scale) <= ROUNDINGS * EPS
    assert at(A * scale, y, x / scale) <= ROUNDINGS * EPS
    beside = x * (1 + 1e-12 * np.arange(12))
    assert at(A, y * scale, beside * scale) > 100 * EPS


@pytest.mark.parametrize("seed", range(5))
def test_residuals_that_are_rounding_have_a_gradient_that_is(seed: int) -> None:
    A, _ = random(40, 12, seed)
    A[:, -1] = A[:, :-1].sum(axis=1)  # singular
    x = np.random.default_rng(seed).normal(size=12)
    y = A @ x
    assert at(A, y, x * (1 + EPS)) <= ROUNDINGS * EPS
    assert at(A, y, x * (1 + 1e3 * EPS * np.arange(12))) > ROUNDINGS * EPS


def test_a_slope_that_no_entry_shows_counts_along_the_step() -> None:
    n, x = 500, np.ones(500)
    stiff = 1e4 * (np.eye(n) - np.roll(np.eye(n), 1, axis=0))  # blind to constants
    A, y = np.concatenate([stiff, np.eye(n)]), np.concatenate([np.zeros(n), x + 1e-7])
    assert at(A, y, x) <= ROUNDINGS * EPS
    assert at(A, y, x, step=np.full(n, 1e-7)) > ROUNDINGS * EPS


def test_what_overflows_or_depends_on_nothing() -> None:
    A, y = random(5, 3, 0)
    with np.errstate(all="ignore"):
        assert rounding_test(at(1e200 * A, y, np.ones(3)), EPS) is None
    assert rounding_test(math.nan, EPS) is None
    assert rounding_test(math.inf, EPS) is None
    assert rounding_test(0.0, 0.0) is None
    assert at(np.zeros((5, 3)), y, np.ones(3)) == 0


# -- in a solve ------------------------------------------------------------------------------------------------------


def cycle(n: int, offset: float) -> tuple[ReferenceProblem, Real]:
    """Differences around a cycle, which can all be met, from a point that is ``offset`` away."""
    rng = np.random.default_rng(n)
    A = np.concatenate([np.eye(n) - np.roll(np.eye(n), k, axis=0) for k in (1, 2)])
    x = rng.normal(size=n)
    y = A @ x
    return ReferenceProblem({"fit": ReferenceTerm(lambda x: A @ x - y, lambda x: A)}, offset + rng.normal(size=n)), x


def solve(problem: ReferenceProblem, precision: float, **options: Any) -> Summary:
    return Minimizer(problem, SolveOptions.of(**options), precision=precision).run()


@pytest.mark.parametrize("method", ["lm", "gn"])
@pytest.mark.parametrize("n", [3, 5, 20, 60])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_a_singular_problem_that_can_be_met_ends_converged(method: str, n: int, offset: float) -> None:
    problem, x = cycle(n, offset)
    summary = solve(problem, EPS, method=method, **OFF)
    assert summary.status in (Status.PRECISION, Status.GRADIENT_TOLERANCE), summary.message
    np.testing.assert_allclose(problem.x - problem.x.mean(), x - x.mean(), atol=1e-10 * (1 + offset))


def test_a_step_that_is_refused_at_the_end_is_no_step() -> None:
    problem, _ = cycle(5, 1e3)
    summary = solve(problem, EPS, method="gn", **OFF)
    assert summary.status is Status.PRECISION, summary.message
    last, before = summary.iterations[-1], summary.iterations[-2]
    assert not last.accepted
    assert last.cost_change <= 0 or last.step_norm > np.linalg.norm(problem.x)
    assert (last.cost, last.gradient_norm) == (before.cost, before.gradient_norm)
    assert summary.final.total == last.cost == problem.evaluate().total


def test_gauss_newton_that_climbs_elsewhere_goes_on() -> None:
    valley = ReferenceTerm(
        lambda x: np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]]), lambda x: np.array([[-20 * x[0], 10.0], [-1.0, 0.0]])
    )
    problem = ReferenceProblem({"valley": valley}, [-1.2, 1.0])
    summary = solve(problem, EPS, method="gn", eta=0, r_tolerance=1e-13)
    assert max(r.cost for r in summary.iterations) > summary.initial.total
    np.testing.assert_allclose(problem.x, 1, atol=1e-10)


class NoisyGradient(ReferenceProblemWith):
    """Every linearisation adds other noise to the gradient, of a size of its own in the norm of (J^T J)^-1."""

    def __init__(self, inner: ReferenceProblem, root: Real, noise: float) -> None:
        super().__init__(inner)
        self._root, self._noise, self._rng = root, noise, np.random.default_rng(0)

    def linearise(self) -> float:
        self.inner.linearise()
        direction = self._rng.normal(size=len(self._root))
        self.inner.g = self.inner.g + self._noise * self._root @ (direction / np.linalg.norm(direction))
        return float(np.max(np.abs(self.inner.g)))


def noisy(noise: float) -> tuple[Summary, float]:
    """A linear fit with such noise, and the least cost; no test of convergence but those of the precision."""
    A, y = random(60, 12, 1)
    inner = ReferenceProblem({"fit": ReferenceTerm(lambda x: A @ x - y, lambda x: A)}, np.zeros(12))
    least = y - A @ np.linalg.lstsq(A, y, rcond=None)[0]
    problem = NoisyGradient(inner, np.asarray(np.linalg.cholesky(A.T @ A), np.float64), noise)
    options = OFF | dict(eta=0.0, r_tolerance=1e-10, initial_radius=1e12)
    return solve(problem, EPS, **options), 0.5 * float(least @ least)  # type: ignore[arg-type]


@pytest.mark.parametrize("noise", [1e-6, 1e-5])
def test_steps_that_follow_the_rounding_of_the_gradient_alone_end_converged(noise: float) -> None:
    summary, least = noisy(noise)
    assert summary.status is Status.PRECISION, summary.message
    assert "by the residuals" in summary.message
    assert summary.final.total - least <= noise**2
    assert summary.iterations[-1].linear_status is not None
    assert not summary.iterations[-1].accepted


def test_a_gradient_that_is_wrong_by_a_notable_part_of_the_cost_is_a_failure() -> None:
    summary, _ = noisy(0.1)
    assert summary.status is Status.FAILURE
    assert "no decrease" in summary.message


@pytest.mark.parametrize(
    ("promised", "found", "damped"),
    [(1e-4, 1e-9, 0.0), (-1e-4, -2e-4, 0.0), (1e-4, -1e-4, 6e-5), (2e-2, -1e-4, 0.0), (math.nan, -1e-4, 0.0),
     (1e-4, math.nan, 0.0)],
)  # fmt: skip
def test_what_the_gradient_s_noise_does_not_explain(promised: float, found: float, damped: float) -> None:
    assert noise_test(1e-4, -1e-4, 4e-5, 1.0, 1e-4) is not None
    assert noise_test(promised, found, damped, 1.0, 1e-4) is None


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e7, 1e9])
def test_what_a_full_step_gains_is_found_however_ill_conditioned(condition: float) -> None:
    """In float64, to which J^T J is singular from a condition of J of 1e8 on."""
    rng = np.random.default_rng(3)
    U, V = (np.linalg.qr(rng.normal(size=(m, 4)))[0] for m in (12, 4))
    J = U @ np.diag(np.geomspace(1, 1 / condition, 4)) @ V.T * [1e3, 1, 1e-3, 1]
    F = rng.normal(size=12)
    cost, c = 0.5 * float(F @ F), np.sum(J**2, axis=0)
    everything = Everything(c > 0)
    found, step = left_in(
        everything, c, cost, len(F), lambda p: J.T @ (J @ p), lambda d: -float((J @ d) @ (F + J @ d / 2)), EPS
    )
    assert found == pytest.approx(0.5 * float(np.sum((U.T @ F) ** 2)), rel=0.05)
    there = F + J @ step
    assert cost - 0.5 * float(there @ there) == pytest.approx(found, rel=0.05)


def test_directions_that_change_nothing_but_rounding_gain_nothing() -> None:
    rng = np.random.default_rng(4)
    column = rng.normal(size=12)
    J, F = np.stack([column, column], axis=1), rng.normal(size=12)
    F -= J[:, 0] * (J[:, 0] @ F) / (J[:, 0] @ J[:, 0])  # at the minimum
    found, step = left_in(
        Everything(np.ones(2, bool)),
        np.sum(J**2, axis=0),
        0.5 * float(F @ F),
        len(F),
        lambda p: J.T @ (J @ p),
        lambda d: -float((J @ d) @ (F + J @ d / 2)),
        EPS,
    )
    assert found < 1e-20
    assert np.abs(step).max() < 1e-10
