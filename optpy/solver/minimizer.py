"""The loop of nonlinear iterations: linearise, propose a step, take it or not, test for the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, final

from optpy.errors import DataError
from optpy.solver.confirmation import Confirmation
from optpy.solver.gauss_newton import GaussNewton
from optpy.solver.iteration import IntermediateResult, IterationRecord
from optpy.solver.levenberg_marquardt import LevenbergMarquardt
from optpy.solver.options import SolveOptions
from optpy.solver.precision import Precision, lowers
from optpy.solver.progress_line import ProgressLine
from optpy.solver.proposal import Method, Proposal
from optpy.solver.protocol import Cost, NonlinearProblem, Step
from optpy.solver.report import TABLE_HEADER, table_row
from optpy.solver.result import Ending, Status, Timing
from optpy.solver.safe_point import HeldBack, SafePoint
from optpy.solver.summary import Summary
from optpy.solver.termination import Criteria, limited, non_finite
from optpy.solver.timed import Timed

_ABOUT = 1.001
"""Costs are equal but for rounding where one is no more times the other, as far as endings at the precision go."""

_RUNNING = Ending(Status.RUNNING, f"{Status.RUNNING.value}.")


@final
class Minimizer:
    """Minimises 1/2 ||F(x)||^2 from the problem's current point, one `step` at a time or in one `run`.

    At the end the problem stands at the best point met: with Levenberg-Marquardt that is the last one; with
    Gauss-Newton, whose cost may rise, the point is saved when it is about to be left for a worse one, and
    restored if nothing better came.

    Ctrl-C is heard at safe points, within linear solves and at the end of each step. It ends a `run` with
    `Status.INTERRUPTED`, and what was reached so far stands. Out of a `step` it goes through, so that it also ends the
    loop that the step is in; the next step goes on from the point reached.

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
        self._method: Method = GaussNewton(options)
        if options.method == "lm":
            self._method = LevenbergMarquardt(options, options.first_radius(is_fit=problem.is_fit))
        self._ending = _RUNNING
        self._iterations: list[IterationRecord] = []
        self._criteria = Criteria.of(options, precision, problem.size)
        self._precise = Precision(self._problem, precision)
        self._confirmation = Confirmation(
            options, self._method, self._precise, precision, is_fit=problem.is_fit, is_small=problem.hidden_is_exact
        )
        self._sensitivities: Mapping[str, float] = {}
        self._initial: Cost | None = None
        self._cost = Cost(math.nan, {})
        self._gradient_norm = math.nan
        self._saved: Cost | None = None  # the cost of the point that the problem has saved
        self._interrupts = HeldBack()
        self._cut_short = False  # a step has begun and not come to its end
        self._elapsed = 0.0  # seconds in `step`, those in the running one excluded
        self._entered = 0.0

    @property
    def status(self) -> Status:
        """RUNNING until a test ends the solve."""
        return self._ending.status

    @property
    def message(self) -> str:
        """The status as a sentence, with the numbers; at the end, whether linear solves ran into their limit."""
        if not self.status.finished or self.status is Status.LINEAR_LIMIT:  # that says so itself
            return self._ending.message
        note = limited(self._iterations, self._options, reweights=self._problem.reweights)
        return f"{self._ending.message} {note}" if note else self._ending.message

    @property
    def cost(self) -> Cost:
        """At the problem's current point."""
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
        line = ProgressLine(self._criteria.max_iterations, self._options.verbose)
        with self._interrupts.held(), line as progress:
            try:
                while not self.status.finished:
                    self._step()
                    progress.show(self._iterations[-1])
            except KeyboardInterrupt:
                self._interrupted()
                self._return_best()
            self._interrupts.forget()
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
        with self._interrupts.held():
            try:
                if not self.status.finished:
                    self._step()
            except KeyboardInterrupt:
                self._return_best()
                raise
        return self._iterations[-1]

    def _step(self, *, iterate: bool = True) -> None:
        """A step with the clock running; Ctrl-C is held back, and goes through at its safe points and at its end."""
        self._entered = time.perf_counter()
        cut_short, self._cut_short = self._cut_short, True
        try:
            if not self._iterations:
                self._begin()
            elif cut_short:
                self._ending = self._ending_without_a_step()
            if iterate and not self.status.finished:
                self._iterate()
            self._cut_short = False
            self._return_best()
            self._interrupts.poll()
        finally:
            self._elapsed, self._entered = self._now(), time.perf_counter()

    def _ending_without_a_step(self) -> Ending:
        """The ending by the tests of the point alone, and of the limits."""
        at_minimum = self._criteria.at_minimum(self._gradient_norm)
        return at_minimum or self._criteria.limit(len(self._iterations) - 1, self._now()) or _RUNNING

    def summary(self) -> Summary:
        """The solve so far; before the first step the starting point is evaluated, as that step would."""
        if not self._iterations:
            with self._interrupts.held():
                self._step(iterate=False)
        assert self._initial is not None
        timing = Timing(
            residual=self._problem.residual.seconds,
            linearise=self._problem.linearising.seconds,
            linear_solve=self._problem.linear_solve.seconds,
            total=self._elapsed,
        )
        return Summary(self._initial, self.cost, self.status, self.message, tuple(self._iterations), timing)

    def _begin(self) -> None:
        """Iteration 0: the starting point."""
        cost = self._problem.evaluate()
        if not cost.is_finite:
            raise DataError(f"At the starting point {non_finite(cost)}.")
        self._initial = self._cost = cost
        self._precise.initial = cost.total
        self._gradient_norm = self._problem.linearise()
        self._sensitivities = self._problem.sensitivities()
        self._record(None)
        self._ending = self._flat_start(cost) or self._ending_without_a_step()

    def _flat_start(self, cost: Cost) -> Ending | None:
        """A cost that could fall, but a gradient of 0 since nothing depends on any unknown there."""
        if self._gradient_norm or not cost.total or self._problem.curvature():
            return None
        return Ending(Status.PLATEAU, f"{Status.PLATEAU.value}: none on any at the starting point. Start elsewhere.")

    def _iterate(self) -> None:
        before, confirmation = self._cost.total, self._confirmation
        limits = confirmation.begin_step(self._safe_point())
        by_residuals = self._precise.step_by_residuals(before, limits.safe_point)
        proposal, ending = by_residuals, None
        if proposal is None:
            proposal = self._weighed(self._method.propose(self._problem, before, limits), before)
            ending = confirmation.damping(self._precise.ending(proposal, before), proposal, before)
            if ending is not None or self._precise.asks:
                proposal = proposal._replace(accepted=False)
        if proposal.accepted and proposal.step is not None and not self._take(proposal.step):
            proposal = proposal._replace(accepted=False) if by_residuals else self._method.refuse(proposal)
        if by_residuals is not None:
            self._precise.stepped(proposal.accepted, before, self._cost.total)
            if proposal.accepted:
                self._method.restart()
        self._record(proposal, before)
        confirmation.made(proposal, before)
        if not self._precise.asks:
            ending = (
                ending
                or confirmation.damping(self._convergence(proposal, before), proposal, self._cost.total)
                or self._given_up(proposal, before, limits.safe_point)
            )
            if ending is None:
                confirmation.creeping(proposal, before, self._cost.total)
        ending = ending or self._criteria.limit(self._iterations[-1].iteration, self._now()) or _RUNNING
        at_end = ending.status.success or ending.status is Status.ROUNDING
        self._ending = (self._plateau() if at_end else None) or ending
        self._call_back()

    def _given_up(self, proposal: Proposal, before: float, safe_point: SafePoint) -> Ending | None:
        """The ending where the method itself can go no further."""
        if proposal.ending is None:
            return None
        resort = self._confirmation.damping(self._precise.resort(proposal, before, safe_point), proposal, before)
        return None if self._precise.asks else resort or proposal.ending

    def _plateau(self) -> Ending | None:
        """An unknown has gone to where changing it changes nothing, though at the start it did: it may be anything."""
        assert self._initial is not None

        def counts(sensitivity: float, cost: float) -> bool:
            return sensitivity > self._precision * math.sqrt(2 * cost)

        now, start = self._problem.sensitivities(), self._sensitivities
        lost = [x for x in now if not counts(now[x], self._cost.total) and counts(start[x], self._initial.total)]
        if not lost or not self._cost.total:
            return None
        shorter = "a smaller initial_radius" if self._options.method == "lm" else "method='lm'"
        cure = f"Start elsewhere, or with {shorter}."
        return Ending(Status.PLATEAU, f"{Status.PLATEAU.value}: {', '.join(lost)}. {cure}")

    def _weighed(self, proposal: Proposal, before: float) -> Proposal:
        """With what the model promises of the step, where that will be asked and the method did not need it.

        Where a fit's trust region stays small its steps follow a valley; elsewhere, as at a kink, no step is longer,
        unless rounding alone has decided that the last one was too long.
        """
        step = proposal.step
        told_by_rounding = step is not None and abs(before - step.cost.total) <= self._precision * before
        if not proposal.longer and (self._problem.is_fit or told_by_rounding):
            proposal = proposal._replace(longer=True)
        if proposal.step is None or not math.isnan(proposal.model_cost_change):
            return proposal
        if lowers(proposal, before) and not self._criteria.looks_small(proposal, before):
            return proposal
        return proposal._replace(model_cost_change=self._problem.model_cost_change())

    def _take(self, step: Step) -> bool:
        """x <- x + delta and linearise; False, and x as it was, where the gradient is not finite.

        A point better than what comes next, and than what was saved, is saved first.
        """
        before = self._cost
        worse = step.cost.total > self._cost.total and not self._problem.reweights
        if worse and (self._saved is None or self._cost.total < self._saved.total):
            self._problem.save()
            self._saved = self._cost
        self._problem.accept()
        self._cost = step.cost_there
        gradient_norm = self._problem.linearise()
        if math.isfinite(gradient_norm):
            self._gradient_norm = gradient_norm
            return True
        self._problem.withdraw()
        self._cost = before
        self._problem.linearise()
        return False

    def _convergence(self, proposal: Proposal, before: float) -> Ending | None:
        """The tests that only an accepted step may pass."""
        if not proposal.accepted or proposal.step is None:
            return None
        if ending := self._criteria.at_minimum(self._gradient_norm):
            return ending
        cosine = math.nan
        if self._criteria.asks_cosine(proposal, before):
            cosine = self._problem.cosine(self._cost.total)
            if ending := self._criteria.orthogonal(cosine):
                return ending
        assert self._initial is not None
        small = self._criteria.is_small(
            proposal, before, cosine, comparable=not self._problem.reweights, initial=self._initial.total
        )
        return self._confirmation.linear_solve(small, proposal)

    def _safe_point(self) -> SafePoint:
        """Of a step that begins now."""
        most = math.inf if self._options.max_time is None else self._options.max_time
        return SafePoint(self._entered + most - self._elapsed, self._interrupts.poll)

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
        now = IntermediateResult(self._iterations[-1], self._cost, self._read_x)
        try:
            with self._interrupts.heard():
                self._options.callback(now)
        except StopIteration as stop:
            if not self.status.finished:
                reason = f": {stop}." if str(stop) else "."
                self._ending = Ending(Status.CALLBACK, f"{Status.CALLBACK.value}{reason}")
        finally:
            now.end()

    def _interrupted(self) -> None:
        if not self._iterations:
            self._record(None)
        if not self.status.finished:
            at = f" in iteration {len(self._iterations)}"
            self._ending = Ending(Status.INTERRUPTED, f"{Status.INTERRUPTED.value}{at}.")

    def _return_best(self) -> None:
        """Goes back to the best point met."""
        if self.status.finished and self._saved is not None and self._saved.total < self._cost.total:
            last, self._cost, self._saved = self._cost, self._saved, None
            self._problem.restore()
            self._ending = self._ending_at_best(last)

    def _is_rounding(self, last: Cost, best: Cost) -> bool:
        """Whether the last point has ended at the precision, and its cost is the best one's but for rounding."""
        if self._ending.status is not Status.PRECISION:
            return False
        return last.total <= max(_ABOUT * best.total, self._precise.nothing)

    def _ending_at_best(self, last: Cost) -> Ending:
        """The ending at the best point: a test of the last one holds for it only if their costs are about equal."""
        ending, best = self._ending, self._cost
        message = f"{ending.message} The best point is returned, not the last."
        as_good = last.total - best.total <= self._criteria.function * best.total
        of_point = ending.status.success or ending.status in (Status.PLATEAU, Status.ROUNDING, Status.LINEAR_LIMIT)
        if as_good or self._is_rounding(last, best) or not of_point:
            return Ending(ending.status, message)
        return Ending(
            Status.FAILURE,
            f"Gauss-Newton ended at a cost of {last.total:.6e}, above the best one met, {best.total:.6e}, which is "
            "returned but is no minimum; method='lm' never lets the cost rise.",
        )

    def _now(self) -> float:
        return self._elapsed + time.perf_counter() - self._entered
