"""Ctrl-C during any call of a solve: it is heard at the next safe point, and what was reached stands."""

from __future__ import annotations

import math
import signal
from typing import Any

import numpy as np
import pytest

from optpy.solver import IntermediateResult, Minimizer, SolveOptions, Status
from optpy.solver.protocol import LinearLimits, LinearSummary
from optpy.solver.reference import ReferenceProblem
from tests.support.known_problems import ReferenceProblemWith, rosenbrock, scalar


def control_c() -> None:
    signal.raise_signal(signal.SIGINT)


class Interrupted(ReferenceProblemWith):
    """Ctrl-C arrives within the calls of some numbers."""

    def __init__(self, inner: ReferenceProblem, *at: int) -> None:
        super().__init__(inner)
        self.at, self.calls = at, 0
        self.names: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if not callable(method):
            return method

        def call(*args: Any) -> Any:
            self.calls += 1
            if self.calls in self.at:
                self.names.append(name)
                control_c()
            return method(*args)

        return call


class InterruptedAt(ReferenceProblemWith):
    """Ctrl-C arrives within the call of a name, of that number."""

    def __init__(self, inner: ReferenceProblem, name: str, number: int) -> None:
        super().__init__(inner)
        self.name, self.left = name, number

    def __getattr__(self, name: str) -> Any:
        if name == self.name:
            self.left -= 1
            if self.left == 0:
                control_c()
        return getattr(self.inner, name)


@pytest.mark.parametrize("method", ["lm", "gn"])
def test_a_run_that_is_interrupted_in_any_call_leaves_the_best(method: str) -> None:
    options = SolveOptions.of(method=method, max_iterations=6)
    whole = Minimizer(rosenbrock().problem(), options).run()
    interrupted = set()
    for at in range(1, 28):
        problem = rosenbrock().problem()
        broken = Interrupted(problem, at)
        summary = Minimizer(broken, options).run()
        if summary.nit < whole.nit:
            assert summary.status is Status.INTERRUPTED, (at, broken.names)
            assert f"interrupted in iteration {summary.nit + 1}" in summary.message
            interrupted.update(broken.names)
        else:  # in the last step, which has ended the solve
            assert (summary.status, summary.message) == (whole.status, whole.message)
        assert summary.final == problem.evaluate(), (at, broken.names)
        assert summary.final.total <= min(r.cost for r in summary.iterations)
    assert {"evaluate", "linearise", "damp", "solve_linear", "try_step", "accept"} <= interrupted


@pytest.mark.parametrize("method", ["lm", "gn"])
def test_an_interrupt_goes_through_a_step_and_the_steps_after_it_are_as_without(method: str) -> None:
    options = SolveOptions.of(method=method, max_iterations=100)
    whole = Minimizer(rosenbrock().problem(), options).run()
    interrupted = set()
    for at in range(1, 60):
        problem = rosenbrock().problem()
        broken = Interrupted(problem, at)
        minimizer = Minimizer(broken, options)
        heard = 0
        while not minimizer.status.finished:
            try:
                minimizer.step()
            except KeyboardInterrupt:
                heard += 1
                assert minimizer.status is not Status.INTERRUPTED
                assert minimizer.cost == problem.evaluate(), (at, broken.names)
        assert heard == len(broken.names)
        interrupted.update(broken.names)
        assert (minimizer.status, minimizer.message) == (whole.status, whole.message)
        assert [r.cost for r in minimizer.iterations] == [r.cost for r in whole.iterations]
        assert minimizer.summary().final == problem.evaluate()
    assert {"evaluate", "linearise", "damp", "solve_linear", "try_step", "accept"} <= interrupted
    assert ("save" in interrupted) == (method == "gn")


def test_a_linear_solve_is_left_at_its_safe_points() -> None:
    class Long(ReferenceProblemWith):
        """Its linear solves end with an interrupt alone, the first time."""

        interrupted = False

        def solve_linear(self, limits: LinearLimits) -> LinearSummary:
            while not self.interrupted:
                self.interrupted = True
                control_c()
                limits.safe_point.poll()
                raise AssertionError("it is not heard")
            return self.inner.solve_linear(limits)

    problem = rosenbrock().problem()
    minimizer = Minimizer(Long(problem), SolveOptions())
    start = problem.evaluate()
    with pytest.raises(KeyboardInterrupt):
        minimizer.step()
    assert minimizer.cost == problem.evaluate() == start
    assert [r.iteration for r in minimizer.iterations] == [0]
    expected = Minimizer(rosenbrock().problem(), SolveOptions()).run()
    assert [r.cost for r in minimizer.run().iterations] == [r.cost for r in expected.iterations]


def test_an_interrupt_while_the_best_point_is_restored_goes_through_too() -> None:
    """The copy is whole, and the solve has ended."""
    options = SolveOptions.of(method="gn", max_iterations=1)  # the first step of Gauss-Newton overshoots
    problem = rosenbrock().problem()
    minimizer = Minimizer(InterruptedAt(problem, "restore", 1), options)
    with pytest.raises(KeyboardInterrupt):
        minimizer.step()
    assert minimizer.status.finished
    assert minimizer.cost == problem.evaluate() == minimizer.summary().initial
    assert minimizer.step() == minimizer.iterations[-1]


def test_a_run_goes_on_after_an_interrupted_step() -> None:
    problem = rosenbrock().problem()
    minimizer = Minimizer(Interrupted(problem, 9), SolveOptions())
    minimizer.step()
    with pytest.raises(KeyboardInterrupt):
        minimizer.step()
    assert minimizer.run().status.success
    np.testing.assert_allclose(problem.x, rosenbrock().minimum, rtol=1e-5)


def test_an_interrupt_in_a_run_that_ends_by_itself_in_that_step_is_over_with_it() -> None:
    options = SolveOptions(max_iterations=1)
    summary = Minimizer(InterruptedAt(rosenbrock().problem(), "accept", 1), options).run()
    assert (summary.status, summary.nit) == (Status.MAX_ITERATIONS, 1)


def test_an_interrupt_in_a_callback() -> None:
    """It is heard at once, as in all of the user's code."""

    def callback(intermediate_result: IntermediateResult) -> None:
        control_c()
        raise AssertionError("it is not heard")

    summary = Minimizer(rosenbrock().problem(), SolveOptions(callback=callback)).run()
    assert (summary.status, summary.nit) == (Status.INTERRUPTED, 1)
    minimizer = Minimizer(rosenbrock().problem(), SolveOptions(callback=callback))
    for n in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            minimizer.step()
        assert (minimizer.status, minimizer.summary().nit) == (Status.RUNNING, n)


def test_a_step_that_a_callback_interrupts_counts_towards_the_limit_on_iterations() -> None:
    def callback(intermediate_result: IntermediateResult) -> None:
        raise KeyboardInterrupt

    minimizer = Minimizer(rosenbrock().problem(), SolveOptions(max_iterations=2, callback=callback))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            minimizer.step()
    minimizer.step()
    assert (minimizer.status, minimizer.summary().nit) == (Status.MAX_ITERATIONS, 2)


def interrupts_of_steps(minimizer: Minimizer) -> int:
    """How often Ctrl-C goes through a step until the solve has ended."""
    heard = 0
    while not minimizer.status.finished:
        try:
            minimizer.step()
        except KeyboardInterrupt:
            heard += 1
    return heard


def pit() -> ReferenceProblem:
    """The full step from 2 leads to 0.978; below 1 the gradient is NaN, though the cost is finite."""
    return scalar(lambda x: math.log(x / 1.2), lambda x: 1 / x if x >= 1 else math.nan, 2.0)


@pytest.mark.parametrize(("name", "number"), [("accept", 1), ("linearise", 2), ("withdraw", 1), ("linearise", 3)])
def test_a_point_without_a_gradient_is_left_also_by_an_interrupted_step(name: str, number: int) -> None:
    problem = pit()
    minimizer = Minimizer(InterruptedAt(problem, name, number), SolveOptions(initial_radius=1e16))
    assert interrupts_of_steps(minimizer) == 1
    assert minimizer.cost == problem.evaluate()
    assert minimizer.run().status.success, minimizer.message
    np.testing.assert_allclose(problem.x, 1.2, rtol=1e-3)
    assert all(math.isfinite(r.gradient_norm) for r in minimizer.iterations)


@pytest.mark.parametrize("again", [True, False])
def test_a_starting_point_without_a_gradient_ends_also_an_interrupted_solve(again: bool) -> None:
    problem = pit()
    problem.x[:] = 0.5
    minimizer = Minimizer(InterruptedAt(problem, "linearise", 1), SolveOptions())
    with pytest.raises(KeyboardInterrupt):
        minimizer.step()
    record = minimizer.run().iterations[-1] if again else minimizer.step()
    assert record.iteration == 0
    assert minimizer.status is Status.FAILURE
    assert "starting point the gradient is not finite" in minimizer.message
    assert problem.x == 0.5


@pytest.mark.parametrize("call", ["evaluate", "linearise"])
def test_control_c_while_the_start_is_evaluated_for_a_summary(call: str) -> None:
    minimizer = Minimizer(InterruptedAt(pit(), call, 1), SolveOptions(initial_radius=1.0))
    with pytest.raises(KeyboardInterrupt):
        minimizer.summary()
    assert minimizer.status is Status.RUNNING
    assert minimizer.summary().nit == 0
    expected = Minimizer(pit(), SolveOptions(initial_radius=1.0)).run()
    assert minimizer.run().final == expected.final
