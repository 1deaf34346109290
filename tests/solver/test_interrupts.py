"""Ctrl-C out of any call of a solve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optpy.solver import IntermediateResult, Minimizer, SolveOptions, Status
from optpy.solver.reference import ReferenceProblem
from tests.solver.known_problems import ReferenceProblemWith, rosenbrock


class Interrupted(ReferenceProblemWith):
    """Ctrl-C arrives at the n-th call, before or after it has done its work."""

    def __init__(self, inner: ReferenceProblem, at: int, before: bool) -> None:
        super().__init__(inner)
        self.at, self.before, self.calls = at, before, 0
        self.name = ""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

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
