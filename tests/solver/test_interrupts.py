"""Ctrl-C out of any call of a solve."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from optpy.solver import IntermediateResult, Minimizer, SolveOptions, Status
from optpy.solver.reference import ReferenceProblem
from tests.support.known_problems import ReferenceProblemWith, rosenbrock, scalar


class Interrupted(ReferenceProblemWith):
    """Ctrl-C arrives at the n-th call, before or after it has done its work."""

    def __init__(self, inner: ReferenceProblem, at: int, before: bool) -> None:
        super().__init__(inner)
        self.at, self.before, self.calls = at, before, 0
        self.name = ""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if not callable(method):
            return method

        def call(*args: Any) -> Any:
            self.calls += 1
            if self.calls == self.at and self.before:
                self.name = name
                raise KeyboardInterrupt
            out = method(*args)
            if self.calls == self.at:
                self.name = name
                raise KeyboardInterrupt
            return out

        return call


@pytest.mark.parametrize("method", ["lm", "gn"])
@pytest.mark.parametrize("before", [True, False])
def test_an_interrupt_out_of_any_call_leaves_the_best(method: str, before: bool) -> None:
    interrupted = set()
    for at in range(2, 28):
        problem = rosenbrock().problem()
        broken = Interrupted(problem, at, before)
        summary = Minimizer(broken, SolveOptions.of(method=method, max_iterations=4)).run()
        interrupted.add(broken.name)
        if broken.name and broken.name != "restore":
            assert summary.status is Status.INTERRUPTED
            assert not summary.status.success
            assert "interrupted" in summary.message
        assert summary.final == problem.evaluate(), (at, broken.name)
        assert summary.final.total <= min(r.cost for r in summary.iterations)
    assert {"linearise", "damp", "solve_linear", "try_step", "accept"} <= interrupted
    assert ("save" in interrupted) == (method == "gn")


@pytest.mark.parametrize("method", ["lm", "gn"])
@pytest.mark.parametrize("before", [True, False])
def test_an_interrupt_goes_through_a_step_and_the_next_one_goes_on(method: str, before: bool) -> None:
    interrupted = set()
    for at in range(1, 60):
        problem = rosenbrock().problem()
        broken = Interrupted(problem, at, before)
        minimizer = Minimizer(broken, SolveOptions.of(method=method, max_iterations=100))
        heard = 0
        while not minimizer.status.finished:
            try:
                minimizer.step()
            except KeyboardInterrupt:
                heard += 1
                assert minimizer.status is not Status.INTERRUPTED
                if minimizer.iterations:
                    assert minimizer.cost == problem.evaluate(), (at, broken.name)
        assert heard == bool(broken.name)
        interrupted.add(broken.name)
        assert minimizer.status.success, (at, broken.name, minimizer.message)
        np.testing.assert_allclose(problem.x, rosenbrock().minimum, rtol=1e-5)
        assert minimizer.summary().final == problem.evaluate()
    assert {"evaluate", "linearise", "damp", "solve_linear", "try_step", "accept"} <= interrupted
    assert ("save" in interrupted) == (method == "gn")


def test_an_interrupt_while_the_best_point_is_restored_goes_through_too() -> None:
    """The copy is whole, and the solve has ended."""
    options = SolveOptions.of(method="gn", max_iterations=1)  # the first step of Gauss-Newton overshoots
    calls = Interrupted(rosenbrock().problem(), 0, False)
    Minimizer(calls, options).run()
    for before in (True, False):
        problem = rosenbrock().problem()
        broken = Interrupted(problem, calls.calls, before)
        minimizer = Minimizer(broken, options)
        with pytest.raises(KeyboardInterrupt):
            minimizer.step()
        assert broken.name == "restore"
        assert minimizer.status.finished
        assert minimizer.cost == problem.evaluate() == minimizer.summary().initial
        assert minimizer.step() == minimizer.iterations[-1]


def test_a_run_goes_on_after_an_interrupted_step() -> None:
    problem = rosenbrock().problem()
    minimizer = Minimizer(Interrupted(problem, 9, True), SolveOptions())
    minimizer.step()
    with pytest.raises(KeyboardInterrupt):
        minimizer.step()
    assert minimizer.run().status.success
    np.testing.assert_allclose(problem.x, rosenbrock().minimum, rtol=1e-5)


def test_an_interrupt_before_the_first_cost_goes_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        Minimizer(Interrupted(rosenbrock().problem(), 1, True), SolveOptions()).run()


def test_an_interrupt_in_a_callback() -> None:
    def callback(intermediate_result: IntermediateResult) -> None:
        raise KeyboardInterrupt

    summary = Minimizer(rosenbrock().problem(), SolveOptions(callback=callback)).run()
    assert (summary.status, summary.nit) == (Status.INTERRUPTED, 1)
    minimizer = Minimizer(rosenbrock().problem(), SolveOptions(callback=callback))
    for n in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            minimizer.step()
        assert (minimizer.status, minimizer.summary().nit) == (Status.RUNNING, n)


# -- the point at which the next step finds the problem ----------------------------------------------------------------


class InterruptedAfter(ReferenceProblemWith):
    """Ctrl-C arrives when a call of a name, of that number, has done its work; each of several such in turn."""

    def __init__(self, inner: ReferenceProblem, *interrupts: tuple[str, int]) -> None:
        super().__init__(inner)
        self.left = list(interrupts)
        self.counts: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if not callable(method):
            return method

        def call(*args: Any) -> Any:
            self.counts[name] = self.counts.get(name, 0) + 1
            out = method(*args)
            if self.left and self.left[0] == (name, self.counts[name]):
                self.left.pop(0)
                raise KeyboardInterrupt
            return out

        return call


def stepped_to_the_end(minimizer: Minimizer) -> int:
    """Steps until the solve has ended; how often Ctrl-C was heard."""
    heard = 0
    while not minimizer.status.finished:
        try:
            minimizer.step()
        except KeyboardInterrupt:
            heard += 1
    return heard


def one_step() -> ReferenceProblem:
    """Without damping one step leads to the minimum, from where no linear solve gives a usable one."""
    return scalar(lambda x: x, lambda x: 1.0, 1.0)


def test_a_minimum_reached_by_an_interrupted_step_is_one_to_the_next_step() -> None:
    options = SolveOptions(initial_radius=1e30, max_radius=1e32)
    whole = Minimizer(one_step(), options).run()
    assert (whole.status, whole.nit) == (Status.GRADIENT_TOLERANCE, 1)
    minimizer = Minimizer(InterruptedAfter(one_step(), ("linearise", 2)), options)
    assert stepped_to_the_end(minimizer) == 1
    assert (minimizer.status, minimizer.message) == (whole.status, whole.message)
    assert minimizer.cost == whole.final
    assert minimizer.step() == minimizer.iterations[-1]


def pit() -> ReferenceProblem:
    """The full step from 2 leads to 0.978; below 1 the gradient is NaN, though the cost is finite."""
    return scalar(lambda x: math.log(x / 1.2), lambda x: 1 / x if x >= 1 else math.nan, 2.0)


@pytest.mark.parametrize(
    "interrupts",
    [
        [("accept", 1)],
        [("linearise", 2)],
        [("withdraw", 1)],
        [("linearise", 3)],
        [("accept", 1), ("linearise", 2), ("withdraw", 1), ("linearise", 4)],
    ],
)
def test_a_point_without_a_gradient_is_left_by_the_next_step(interrupts: list[tuple[str, int]]) -> None:
    problem = pit()
    minimizer = Minimizer(InterruptedAfter(problem, *interrupts), SolveOptions(initial_radius=1e16))
    assert stepped_to_the_end(minimizer) == len(interrupts)
    assert minimizer.status.success, minimizer.message
    np.testing.assert_allclose(problem.x, 1.2, rtol=1e-3)
    assert all(math.isfinite(r.gradient_norm) for r in minimizer.iterations)


@pytest.mark.parametrize("again", [True, False])
def test_a_starting_point_without_a_gradient_ends_also_an_interrupted_solve(
    again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been recorded when Ctrl-C comes, and there is no point before it."""
    problem = pit()
    problem.x[:] = 0.5
    minimizer = Minimizer(problem, SolveOptions(verbose=2))

    def interrupted(*_: Any) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("optpy.solver.minimizer.table_row", interrupted)
        with pytest.raises(KeyboardInterrupt):
            minimizer.step()
    record = minimizer.run().iterations[-1] if again else minimizer.step()
    assert record.iteration == 0
    assert minimizer.status is Status.FAILURE
    assert "starting point the gradient is not finite" in minimizer.message
    assert problem.x == 0.5


def test_an_interrupted_step_counts_towards_the_limit_on_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> str:
        raise KeyboardInterrupt

    minimizer = Minimizer(rosenbrock().problem(), SolveOptions(max_iterations=2, verbose=2))
    minimizer.step()
    with monkeypatch.context() as patch:
        patch.setattr("optpy.solver.minimizer.table_row", interrupted)  # its record is there by then
        with pytest.raises(KeyboardInterrupt):
            minimizer.step()
    minimizer.step()
    assert (minimizer.status, minimizer.summary().nit) == (Status.MAX_ITERATIONS, 2)


@pytest.mark.parametrize("run", [True, False])
def test_the_cost_belongs_to_x_however_often_control_c_comes(run: bool) -> None:
    """Which of two points x is at is found out by evaluating the cost: Ctrl-C may come then, too."""
    problem = pit()
    broken = InterruptedAfter(problem, ("accept", 1), ("evaluate", 2), ("evaluate", 3))
    minimizer = Minimizer(broken, SolveOptions(initial_radius=1.0))
    with pytest.raises(KeyboardInterrupt):
        minimizer.run() if run else minimizer.step()
    for _ in range(2 - run):
        with pytest.raises(KeyboardInterrupt):
            minimizer.summary()
    assert broken.left == []
    assert minimizer.cost == minimizer.summary().final == problem.evaluate() != minimizer.summary().initial
    assert minimizer.run().status.success
    np.testing.assert_allclose(problem.x, 1.2, rtol=1e-3)


@pytest.mark.parametrize("call", ["evaluate", "linearise"])
def test_control_c_while_the_start_is_evaluated_for_a_summary(call: str) -> None:
    minimizer = Minimizer(InterruptedAfter(pit(), (call, 1)), SolveOptions(initial_radius=1.0))
    with pytest.raises(KeyboardInterrupt):
        minimizer.summary()
    assert minimizer.status is Status.RUNNING
    assert minimizer.summary().nit == 0
    expected = Minimizer(pit(), SolveOptions(initial_radius=1.0)).run()
    assert minimizer.run().final == expected.final
