"""Ctrl-C out of any call of a solve."""

from __future__ import annotations

from typing import Any

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
@pytest.mark.parametrize("stepwise", [True, False])
def test_an_interrupt_out_of_any_call_leaves_the_best(method: str, before: bool, stepwise: bool) -> None:
    interrupted = set()
    for at in range(2, 28):
        problem = rosenbrock().problem()
        broken = Interrupted(problem, at, before)
        minimizer = Minimizer(broken, SolveOptions.of(method=method, max_iterations=4))
        while stepwise and not minimizer.status.finished:
            minimizer.step()
        summary = minimizer.run()
        interrupted.add(broken.name)
        if broken.name and broken.name != "restore":
            assert summary.status is Status.INTERRUPTED
            assert not summary.status.success
            assert "interrupted" in summary.message
        assert summary.final == problem.evaluate(), (at, broken.name)
        assert summary.final.total <= min(r.cost for r in summary.iterations)
    assert {"linearise", "damp", "solve_linear", "try_step", "accept"} <= interrupted
    assert ("save" in interrupted) == (method == "gn")


def test_an_interrupt_before_the_first_cost_goes_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        Minimizer(Interrupted(rosenbrock().problem(), 1, True), SolveOptions()).run()


def test_an_interrupt_in_a_callback() -> None:
    def callback(intermediate_result: IntermediateResult) -> None:
        raise KeyboardInterrupt

    summary = Minimizer(rosenbrock().problem(), SolveOptions(callback=callback)).run()
    assert (summary.status, summary.nit) == (Status.INTERRUPTED, 1)
