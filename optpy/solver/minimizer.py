"""The loop of nonlinear iterations: linearise, propose a step, take it or not, test for the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

from optpy.errors import DataError
from optpy.solver.gauss_newton import GaussNewton
from optpy.solver.levenberg_marquardt import LevenbergMarquardt
from optpy.solver.options import SolveOptions
from optpy.solver.proposal import Method, Proposal
from optpy.solver.protocol import Cost, LinearLimits, LinearStatus, NonlinearProblem, Step
from optpy.solver.report import TABLE_HEADER, table_row
from optpy.solver.result import IntermediateResult, IterationRecord, Status, Timing
from optpy.solver.summary import Summary
from optpy.solver.termination import (
    Ending,
    function_test,
    gradient_test,
    limit_test,
    noise_test,
    non_finite,
    parameter_test,
    precision_test,
    rounding_test,
)
from optpy.solver.timed import Timed

_ABOUT = 1.001
"""Costs are equal but for rounding where one is no more times the other, as far as endings at the precision go."""
_NOTHING = 100.0
"""So many squares of the precision, of the cost at the start, may be left by rounding where the cost can be 0."""

_RUNNING = Ending(Status.RUNNING, f"{Status.RUNNING.value}.")


@final
class Minimizer:
    """Minimises 1/2 ||F(x)||^2 from the problem's current point, one `step` at a time or in one `run`.

    At the end the problem stands at the best point met: with Levenberg-Marquardt that is the last one; with
    Gauss-Newton, whose cost may rise, the point is saved when it is about to be left for a worse one, and
    restored if nothing better came.

    Ctrl-C ends a `run` with `Status.INTERRUPTED`, and what was reached so far stands (before the initial
    cost is known there is nothing to return, and the KeyboardInterrupt goes through). Out of a `step` it always
    goes through, so that it also ends the loop that the step is in; the next step goes on from the point reached.

    After a change of the data make a new Minimizer: it starts from where the problem stands.

    Args:
        problem: see `NonlinearProblem`.
        options: see `SolveOptions`.
        read_x: gives callbacks the unknowns, by name, as copies.
        precision: of the problem's arithmetic: a step this small, relative to x, ends the solve, whether or not
            it was taken, and so does a step that leads no further down where the gradient is rounding; 0: never.
    """

    def __init__(
        self,
        problem: NonlinearProblem,
        options: SolveOptions,
        *,
        read_x: Callable[[], dict[str, Any]] | None = None,
        precision: float = 0.0,
    ) -> None:
        self._problem = Timed(problem)
        self._options = options
        self._read_x = read_x
        self._precision = precision
        self._method: Method = LevenbergMarquardt(options) if options.method == "lm" else GaussNewton(options)
        self._ending = _RUNNING
        self._iterations: list[IterationRecord] = []
        self._initial: Cost | None = None
        self._cost = Cost(math.nan, {})
        self._gradient_norm = math.nan
        self._noise: Ending | None = None  # what to say of x if none of the steps from it proves usable
        self._saved: Cost | None = None  # the cost of the point that the problem has saved
        self._moving = False  # x and self._cost may not belong together
        self._cut_short = False  # nor x and the gradient, since a step has begun and not come to its end
        self._elapsed = 0.0  # seconds in `step`, those in the running one excluded
        self._entered = 0.0

    @property
    def status(self) -> Status:
        """RUNNING until a test ends the solve."""
        return self._ending.status

    @property
    def message(self) -> str:
        """The status as a sentence, with the numbers."""
        return self._ending.message

    @property
    def cost(self) -> Cost:
        """At the problem's current point."""
        self._settle()
        return self._cost

    @property
    def iterations(self) -> tuple[IterationRecord, ...]:
        """The records so far; the first is the starting point's."""
        return tuple(self._iterations)

    def run(self) -> Summary:
        """Iterate to the end.

        Raises:
            DataError: the initial cost is not finite.
        """
        try:
            while not self.status.finished:
                self._step()
        except KeyboardInterrupt:
            if self._initial is None:
                raise
            self._interrupted()
            self._return_best()
        if self._options.verbose:
            print(f"{self.status.name}: {self.message}", flush=True)
        return self.summary()

    def step(self) -> IterationRecord:
        """One nonlinear iteration (the first call also evaluates the starting point).

        Once the solve has ended (`status.finished`) nothing is left to do, and the last record is returned.
        If the starting point already satisfies the gradient test, its record is what is returned; likewise the last
        record, if the point that an interrupted step has reached satisfies it.

        Raises:
            DataError: the initial cost is not finite.
            KeyboardInterrupt: Ctrl-C; x is whole, the point before this step or the one after it.
        """
        try:
            if not self.status.finished:
                self._step()
        except KeyboardInterrupt:
            self._return_best()
            raise
        return self._iterations[-1]

    def _step(self, *, iterate: bool = True) -> None:
        """A step with the clock running; Ctrl-C goes through."""
        self._entered = time.perf_counter()
        cut_short, self._cut_short = self._cut_short, True
        try:
            if not self._iterations:
                self._begin()
            elif cut_short:
                self._go_on()
            if iterate and not self.status.finished:
                self._iterate()
            self._cut_short = False
            if self._return_best():
                raise KeyboardInterrupt
        finally:
            self._elapsed, self._entered = self._now(), time.perf_counter()

    def _go_on(self) -> None:
        """After a step that Ctrl-C has cut short: the gradient at the point reached, and the tests of that point."""
        self._settle()
        gradient_norm = self._problem.linearise()
        if math.isfinite(self._gradient_norm) and not math.isfinite(gradient_norm):  # not where that step began
            self._moving = True
            self._problem.withdraw()
            self._settle()
            gradient_norm = self._problem.linearise()
        self._gradient_norm = gradient_norm
        self._ending = self._ending_without_a_step()

    def _ending_without_a_step(self) -> Ending:
        """What the tests say that look at the point alone, and at the limits."""
        at_minimum = gradient_test(self._gradient_norm, self._options)
        return at_minimum or limit_test(len(self._iterations) - 1, self._now(), self._options) or _RUNNING

    def summary(self) -> Summary:
        """The solve so far; before the first step the starting point is evaluated, as that step would."""
        if not self._iterations:
            self._step(iterate=False)
        assert self._initial is not None
        seconds = self._problem.seconds
        timing = Timing(
            residual=seconds["residual"],
            linearise=seconds["linearise"],
            linear_solve=seconds["linear_solve"],
            total=self._elapsed,
        )
        return Summary(self._initial, self.cost, self.status, self.message, tuple(self._iterations), timing)

    def _begin(self) -> None:
        """Iteration 0: the starting point."""
        cost = self._problem.evaluate()
        if not cost.is_finite:
            raise DataError(f"At the starting point {non_finite(cost)}.")
        self._initial = self._cost = cost
        self._gradient_norm = self._problem.linearise()
        self._record(None)
        self._ending = self._ending_without_a_step()

    def _iterate(self) -> None:
        before = self._cost.total
        proposal = self._method.propose(self._problem, before, self._limits())
        no_way_down = self._no_way_down(proposal, before)
        self._noise = self._rounding_leads(proposal, before)
        if no_way_down:
            proposal = replace(proposal, accepted=False)
        if proposal.accepted and proposal.step is not None and not self._take(proposal.step):
            proposal = self._method.refuse(proposal)
        self._record(proposal, before)
        self._ending = (
            no_way_down
            or self._convergence(proposal, before)
            or self._standstill(proposal)
            or (self._noise if proposal.ending else None)
            or proposal.ending
            or limit_test(self._iterations[-1].iteration, self._now(), self._options)
            or _RUNNING
        )
        self._call_back()

    def _take(self, step: Step) -> bool:
        """x <- x + delta and linearise; False, and x as it was, where the gradient is not finite.

        A point better than what comes next, and than what was saved, is saved first.
        """
        before = self._cost
        worse = step.cost.total > self._cost.total
        if worse and (self._saved is None or self._cost.total < self._saved.total):
            self._saved = None  # an interrupted copy must not count as one
            self._problem.save()
            self._saved = self._cost
        self._move(self._problem.accept, step.cost)
        gradient_norm = self._problem.linearise()
        if math.isfinite(gradient_norm):
            self._gradient_norm = gradient_norm
            return True
        self._move(self._problem.withdraw, before)
        self._problem.linearise()
        return False

    def _move(self, to: Callable[[], None], cost: Cost) -> None:
        """x and its cost change together."""
        self._moving = True
        to()
        self._cost = cost
        self._moving = False

    def _convergence(self, proposal: Proposal, before: float) -> Ending | None:
        """The tests that only an accepted step may pass."""
        if not proposal.accepted or proposal.step is None:
            return None
        if ending := gradient_test(self._gradient_norm, self._options):
            return ending
        if proposal.held_back or proposal.linear.status is LinearStatus.TIME_LIMIT:
            return None  # a step cut short says nothing by being small
        return function_test(before, before - self._cost.total, self._options) or parameter_test(
            proposal.step, self._options
        )

    def _standstill(self, proposal: Proposal) -> Ending | None:
        """x is as good as this arithmetic can make it: what is left of the step is rounding."""
        if not self._precision or proposal.linear.status in (LinearStatus.FAILURE, LinearStatus.TIME_LIMIT):
            return None
        # The model predicted no decrease, so the step was not tried; its length tells whether that is rounding.
        step = proposal.step or self._problem.try_step()
        return precision_test(step, self._precision)

    def _no_way_down(self, proposal: Proposal, before: float) -> Ending | None:
        """There is no step, or none worth taking, and the gradient at x is rounding.

        Not worth it is one that does not lower the cost, or, where the cost is nothing but rounding, one longer than x:
        where J^T J is singular, rounding alone leads that far along its null space, and there the cost means nothing.
        """
        step = proposal.step
        if not self._precision or (step is not None and not proposal.accepted):
            return None
        far, noise = step is not None and step.step_norm > step.x_norm > 0, before <= self._nothing
        if far and noise:
            return Ending(Status.PRECISION, f"{Status.PRECISION.value}, cost = {before:.3e}, and full steps lead away.")
        if step is not None and step.cost.total < before:
            return None
        return rounding_test(self._problem.relative_gradient(before), self._precision)

    def _rounding_leads(self, proposal: Proposal, cost: float) -> Ending | None:
        """One of the last steps, all unusable, followed the rounding of the gradient more than the gradient."""
        if proposal.step is not None or not self._precision:
            return None
        if self._noise is not None or proposal.linear.status is not LinearStatus.CONVERGED:
            return self._noise
        problem = self._problem
        promised, found = problem.promised_change(), problem.model_cost_change()
        return noise_test(promised, found, problem.try_step().damped_square, cost, self._precision)

    def _limits(self) -> LinearLimits:
        o = self._options
        deadline = None if o.max_time is None else self._entered + o.max_time - self._elapsed
        return LinearLimits(
            max_iterations=o.linear_iterations,
            min_iterations=o.min_linear_iterations,
            eta=o.eta,
            r_tolerance=o.r_tolerance,
            residual_reset_period=o.residual_reset_period,
            deadline=deadline,
        )

    def _record(self, proposal: Proposal | None, before: float = math.nan) -> None:
        step = proposal.step if proposal is not None else None
        now = self._now()
        last = self._iterations[-1].total_time if self._iterations else 0.0
        record = IterationRecord(
            iteration=len(self._iterations),
            cost=self._cost.total,
            cost_change=before - step.cost.total if step is not None else math.nan,
            gradient_norm=self._gradient_norm,
            step_norm=step.step_norm if step is not None else math.nan,
            tr_ratio=proposal.tr_ratio if proposal is not None else math.nan,
            tr_radius=self._method.radius,
            linear_iterations=proposal.linear.iterations if proposal is not None else 0,
            linear_status=proposal.linear.status if proposal is not None else None,
            accepted=proposal.accepted if proposal is not None else False,
            time=now - last,
            total_time=now,
        )
        self._iterations.append(record)
        if self._options.verbose == 2:
            if proposal is None:
                print(TABLE_HEADER)
            print(table_row(record), flush=True)

    def _call_back(self) -> None:
        if self._options.callback is None:
            return
        try:
            self._options.callback(IntermediateResult(self._iterations[-1], self._cost, self._read_x))
        except StopIteration as stop:
            if not self.status.finished:
                reason = f": {stop}." if str(stop) else "."
                self._ending = Ending(Status.CALLBACK, f"{Status.CALLBACK.value}{reason}")

    def _interrupted(self) -> None:
        self._settle()
        if not self._iterations:
            self._record(None)
        if not self.status.finished:
            at = f" in iteration {len(self._iterations)}"
            self._ending = Ending(Status.INTERRUPTED, f"{Status.INTERRUPTED.value}{at}.")

    def _settle(self) -> None:
        """The cost is that of x."""
        if self._moving:  # the cost is known, but of which of the two points is not
            self._cost = self._problem.evaluate()
            self._moving = False

    def _return_best(self) -> bool:
        """Where the solve has ended, to the best point met; whether Ctrl-C came meanwhile: the copy must be whole."""
        interrupted = False
        while self.status.finished and self._saved is not None and self._saved.total < self._cost.total:
            last = self._cost
            try:
                self._problem.restore()
                self._cost, self._saved = self._saved, None
            except KeyboardInterrupt:
                interrupted = True
                continue
            self._ending = self._ending_at_best(last)
        return interrupted

    def _is_rounding(self, last: Cost, best: Cost) -> bool:
        """Whether the last point has ended at the precision, and its cost is the best one's but for rounding."""
        if self._ending.status is not Status.PRECISION:
            return False
        return last.total <= max(_ABOUT * best.total, self._nothing)

    @property
    def _nothing(self) -> float:
        """What rounding leaves of a cost that can be 0."""
        return _NOTHING * self._precision**2 * self._initial.total if self._initial is not None else 0.0

    def _ending_at_best(self, last: Cost) -> Ending:
        """What a test said of the last point does not hold for the best one, unless their costs are about equal."""
        ending, best = self._ending, self._cost
        message = f"{ending.message} The best point is returned, not the last."
        as_good = last.total - best.total <= self._options.function_tolerance * best.total
        if as_good or self._is_rounding(last, best) or not ending.status.success:
            return Ending(ending.status, message)
        return Ending(
            Status.FAILURE,
            f"Gauss-Newton ended at a cost of {last.total:.6e}, above the best one met, {best.total:.6e}, which is "
            "returned but is no minimum; method='lm' never lets the cost rise.",
        )

    def _now(self) -> float:
        return self._elapsed + time.perf_counter() - self._entered
