"""Endings at the precision of the arithmetic: x is as good as rounding lets it be, or rounding hides the way down."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, final

from optpy.solver.proposal import Proposal
from optpy.solver.protocol import Hidden, LinearStatus, LinearSummary, NonlinearProblem
from optpy.solver.result import Ending, Status
from optpy.solver.rounding import DOUBLE, NOTABLE
from optpy.solver.safe_point import SafePoint
from optpy.solver.termination import is_unsolved

ROUNDINGS: Final = 4
"""A residual is the result of several operations, each of which rounds."""
_ROUNDED: Final = 50.0
"""So many squares of the precision may be left by rounding where the cost can be 0: of the cost at the start, and so
many times as much as rounding x alone leaves."""
_SOLVED: Final = 1e-16
"""Of the cost far from a solution: residuals that are 1e8 times smaller are solved. Where they can be 0, each step
gains nearly all that is left."""
_AWAY: Final = 1e3
"""An x so many times longer than the first step has made it has been led away; and so has a full step that makes the
cost so many times larger."""
_MIXED: Final = 0.1
"""Of a cost that is rounding may stand in terms that rounding x does not change: what is minimised weighs all terms."""
_WORTH: Final = 1e-6
"""Of the cost a step is worth taking that `NonlinearProblem.hidden` has found."""


@final
class Precision:
    """The judge of steps that lead no further down, by what the arithmetic can tell.

    Args:
        problem: see `NonlinearProblem`.
        unit: a step this small, relative to x, is rounding; 0: exact arithmetic, and no ending here.
        initial: the cost at the start, once that is known.
    """

    def __init__(self, problem: NonlinearProblem, unit: float, initial: float = math.nan) -> None:
        self._problem = problem
        self._unit = unit
        self.initial = initial
        self._noise: Ending | None = None  # what to say of x if none of the steps from it proves usable
        self._scale = self._x_norm = 0.0  # ||x|| as the first step found it, with that step; and at the last one
        self._least = math.inf  # the lowest cost from which a step was made
        self.asks = False  # for a step by the residuals, from here
        self._hidden: Hidden | None = None  # what was found here, while its step is the problem's
        self._reached = math.inf  # by such steps: Gauss-Newton may leave it for a higher cost, and come back for ever
        self._in_vain = math.nan  # the cost from which such a step has gained too little

    @property
    def nothing(self) -> float:
        """The cost that rounding leaves where the minimum is 0, judged by the start."""
        return _ROUNDED * self._unit**2 * self.initial

    @property
    def doubts(self) -> bool:
        """Whether steps may be short elsewhere than at the minimum: there was one by residuals, or may have to be."""
        return self._reached < math.inf or self._problem.is_stiff()

    @property
    def advice(self) -> str:
        """Advice against rounding, as a sentence; empty in float64."""
        return "" if self._unit < DOUBLE else " dtype=np.float64 can go further."

    def ending(self, proposal: Proposal, cost: float) -> Ending | None:
        """The ending at a step that is not worth taking; None where the precision does not decide.

        Args:
            cost: at x.
        """
        if not self._unit or proposal.linear.status is LinearStatus.TIME_LIMIT:
            return None
        self._noise = self._noise_of(proposal, cost)
        if proposal.step is not None:
            self._x_norm = proposal.step.x_norm
            self._scale = self._scale or proposal.step.x_norm + proposal.step.step_norm
        self._least = min(self._least, cost)
        found = self._standstill(proposal, cost) or self._leading_away(proposal, cost)
        return found or self._no_way_down(proposal, cost)

    def resort(self, proposal: Proposal, cost: float, safe_point: SafePoint) -> Ending | None:
        """The ending where the method gives up; None: nothing, or that `step_by_residuals` may go on."""
        if proposal.ending is None or not self._unit:
            return None
        no_decrease = proposal.step is None and proposal.linear.status is not LinearStatus.FAILURE
        may_be_rounding = no_decrease or proposal.ending.status is Status.MIN_RADIUS
        found = self._noise or self._by_rounding(proposal, cost) or self._solved(cost, self._far(cost))
        if may_be_rounding and self._problem.hidden_is_exact:
            found = found or self._converged("no step that can be told from rounding lowers the cost")
            found = self.certain(found, cost, safe_point)
            if found is None or found.status.success:
                return found and replace(found, hinges=False)
            found = None
        if found is None and may_be_rounding:
            self.seek(cost, safe_point)
        if found is not None or not self.advice or not may_be_rounding:
            return found
        return Ending(proposal.ending.status, f"{proposal.ending.message} Rounding may hide the way down:{self.advice}")

    def seek(self, cost: float, safe_point: SafePoint) -> None:
        """Ask for a step by residuals if there is one that gains a notable part of the cost; not after one in vain."""
        if not self._unit or not math.isnan(self._in_vain) or not self._problem.is_stiff():
            return
        self._hidden = self._problem.hidden(cost, self._unit, safe_point, of_rounding=False)
        self.asks = self._may_gain(self._hidden, cost, NOTABLE)

    def _may_gain(self, hidden: Hidden, cost: float, part: float) -> bool:
        """Whether the step by residuals promises more than a part of the cost, and has not been tried from here."""
        new = cost <= self._reached and cost != self._in_vain
        return hidden.is_next and new and hidden.left > part * cost

    def step_by_residuals(self, cost: float, safe_point: SafePoint) -> Proposal | None:
        """The step that `certain` has asked for, if it has: where the normal equations have lost to rounding."""
        if not self.asks:
            return None
        hidden = self._hidden or self._problem.hidden(cost, self._unit, safe_point, of_rounding=False)
        self._hidden, self.asks = None, False
        step = self._problem.try_step()._replace(damped_square=0.0) if hidden.is_next else None
        accepted = step is not None and cost - step.cost.total > _WORTH / 2 * cost
        linear = LinearSummary(0, LinearStatus.CONVERGED, "Solved by its eigenvectors.")
        return Proposal(linear, step, accepted, model_cost_change=hidden.left)

    def stepped(self, taken: bool, before: float, now: float) -> None:
        """Whether the step by residuals was taken; the cost before it, and now."""
        if taken:
            self._reached, self._noise = now, None
        else:
            self._in_vain = before

    def certain(self, ending: Ending, cost: float, safe_point: SafePoint) -> Ending | None:
        """An ending that hinges on a short step, if no notable part of the cost is left, as far as that can be told.

        That is asked where the ending is by the precision, or the problem stiff. Success needs one of these:

            left <= 1e-3 cost
            cost or left <= 1e-16 of the cost at the start
            cost <= 16 times what rounding x makes of a cost of 0, and nearly all of it in terms of which the same
                holds: with x the solution, and data that are rounded; 50 times where it has come from far above

        Where steps have led to an x so large that rounding makes more than there was at the start, costs say nothing.

        None: there is a step that might gain what is left, `step_by_residuals`.
        """
        if not self._unit or not (ending.status is Status.PRECISION or self._problem.is_stiff()):
            return ending
        if cost == 0:  # while the gradient is not
            cure = "Scale the residuals up, or start elsewhere."
            return Ending(Status.ROUNDING, f"{Status.ROUNDING.value}: all residuals square to 0. {cure}{self.advice}")
        rounded = ending.status is Status.PRECISION
        made = self._unit**2 * self._problem.rounding(cost).cost
        self._hidden = hidden = self._problem.hidden(cost, self._unit, safe_point, of_rounding=rounded)
        lost = made > _ROUNDED * self.initial and self._is_led_away()
        times, solved = _ROUNDED if cost <= self._unit * self.initial else ROUNDINGS**2, _SOLVED * self.initial
        if not lost:
            if cost <= solved or self._is_rounding(cost, made, times):
                return ending
            if self._may_gain(hidden, cost, _WORTH):
                self.asks = True
                return None
            if hidden.left <= max(NOTABLE * cost, solved):
                return ending
        how_much = "all" if lost else f"up to {hidden.left:.3e}" if math.isfinite(hidden.left) else "an unknown part"
        numbers = f"{how_much} of the cost, {cost:.3e}, may be left"
        if ending.status is Status.PRECISION or self.advice:
            return Ending(Status.ROUNDING, f"{Status.ROUNDING.value}: {numbers}.{self.advice}")
        cure = "Another preconditioner, or a smaller eta, may go further."
        if self._problem.is_fit:
            cure = "Subtract offsets from what x is multiplied by, or choose parameters that depend less on each other."
        return Ending(Status.LINEAR_LIMIT, f"{Status.LINEAR_LIMIT.value}: {numbers}. {cure}")

    def _is_rounding(self, cost: float, made: float, times: float) -> bool:
        """Whether rounding x could make what each term costs: a stiff term's rounding says nothing of the others."""
        if cost > times * made:
            return False
        self._hidden = None  # the step is another from now on
        there = self._problem.change_by_rounding(self._unit)
        costs = self._problem.evaluate().by_term
        return sum(c for term, c in costs.items() if c > times * there[term]) <= _MIXED * cost

    def _standstill(self, proposal: Proposal, cost: float) -> Ending | None:
        """||full step|| <= precision ||x||: rounding alone moves x as far, so that the cost says nothing about it.

        A step that lowers the cost, though, may be that short by what its linear solve has left: it is taken.
        """
        if proposal.linear.status is LinearStatus.FAILURE or (is_unsolved(proposal) and lowers(proposal, cost)):
            return None
        # A step of which the model predicted no decrease was not tried; its length tells whether that is rounding.
        step = proposal.step or self._problem.try_step()
        if step.step_norm > self._unit * step.x_norm or self._gains(proposal, cost):
            return None
        relative = step.step_norm / step.x_norm if step.x_norm else 0.0
        numbers = f"relative step norm = {relative:.3e} <= {self._unit:.3e}"
        converged = replace(self._converged(numbers), hinges=True)
        if proposal.lengthening * step.step_norm <= self._unit * step.x_norm:
            return converged
        if proposal.accepted:
            return None
        stuck = Ending(Status.MIN_RADIUS, f"{Status.MIN_RADIUS.value}: {numbers}.{self.advice}")
        found = self._by_rounding(proposal, cost) or self._solved(cost, self._far(cost))
        return found or (converged if self._problem.hidden_is_exact else stuck)

    def _gains(self, proposal: Proposal, cost: float) -> bool:
        """Whether the step lowers the cost by a notable part, which is more than rounding: however short it is."""
        if not lowers(proposal, cost) or proposal.step is None:
            return False
        return cost > self.nothing and cost - proposal.step.cost.total > NOTABLE * cost

    def _leading_away(self, proposal: Proposal, cost: float) -> Ending | None:
        """The ending where rounding makes a full step of a singular J^T J longer than x, and the cost much larger."""
        step = proposal.step
        if step is None:
            return None
        if step.step_norm > step.x_norm > 0 and cost <= self.nothing:
            return replace(self._converged(f"cost = {cost:.3e}, and full steps lead away"), hinges=True)
        there = step.cost.total
        if not proposal.accepted or self._problem.reweights or not there > _AWAY * self._least:
            return None  # not too far from the best point
        if there > _AWAY * cost and cost <= self._unit * (far := self._far(cost)):
            numbers = f"a full step would raise the cost from {cost:.3e} to {there:.3e}"
            if self._problem.hidden_is_exact:
                return replace(self._converged(numbers), hinges=True)
            return self._solved(cost, far) or self._led_away(numbers)
        return self._led_away(f"full steps have led to a cost of {there:.3e}") if self._is_led_away() else None

    def _is_led_away(self) -> bool:
        return self._x_norm > _AWAY * self._scale

    def _led_away(self, numbers: str) -> Ending:
        cure = f"J^T J is singular, or nearly: method='lm' would shorten the steps.{self.advice}"
        return Ending(Status.ROUNDING, f"{Status.ROUNDING.value}: {numbers}. {cure}")

    def _far(self, cost: float) -> float:
        """A cost far from a solution: that at the start or, where that is less, of x with entries of other signs."""
        return min(self.initial, self._problem.rounding(cost).cost)

    def _solved(self, cost: float, far: float) -> Ending | None:
        """Residuals 1e8 times smaller than far from the solution, where the method can go no further."""
        return self._converged(f"cost = {cost:.3e}, far from here {far:.3e}") if 0 < cost <= _SOLVED * far else None

    def _no_way_down(self, proposal: Proposal, cost: float) -> Ending | None:
        """There is no step, or none that lowers the cost, and the gradient at x is rounding."""
        if lowers(proposal, cost):
            return None
        step, root = proposal.step, math.sqrt(self._unit)
        if step is not None:
            length = step.step_norm * (proposal.lengthening if proposal.longer else 1.0)
            short = length <= root * step.x_norm
            if not (short or proposal.full_gain <= root * cost or cost <= self.nothing):
                return None  # far from any minimum; a shorter step will do
        return self._by_rounding(proposal, cost)

    def _by_rounding(self, proposal: Proposal, cost: float) -> Ending | None:
        unit, rounding, gain = self._unit, self._problem.rounding(cost), self._gain(proposal)
        if cost <= _ROUNDED * unit**2 * rounding.cost:
            return replace(self._converged(f"cost = {cost:.3e}, which rounding x could make"), hinges=True)
        found = rounding_test(rounding.relative_gradient, unit)
        if found is not None and not gain > math.sqrt(unit) * cost:  # also where no step was tried
            return Ending(found.status, found.message + self.advice, hinges=True)
        # To first order the rounding of x changes the cost by F.J (s x), by Cauchy and Schwarz at most this.
        noise = unit * cost + 2 * unit * math.sqrt(cost * rounding.cost)
        if abs(gain) <= min(noise, math.sqrt(unit) * cost):
            numbers = f"a full step would gain {gain:.3e}, rounding changes the cost by {noise:.3e}"
            return replace(self._converged(numbers), hinges=True)
        return None

    def _gain(self, proposal: Proposal) -> float:
        """The gain of a full step: by the residuals, or where they promise nothing, by the gradient."""
        if proposal.step is not None or proposal.linear.status is LinearStatus.FAILURE:
            return proposal.full_gain
        problem = self._problem
        return proposal._replace(step=problem.try_step(), model_cost_change=problem.promised_change()).full_gain

    def _noise_of(self, proposal: Proposal, cost: float) -> Ending | None:
        """One of the last steps, all unusable, followed the rounding of the gradient more than the gradient."""
        if proposal.step is not None:
            return None
        if self._noise is not None or proposal.linear.status is not LinearStatus.CONVERGED:
            return self._noise
        problem = self._problem
        promised, found = problem.promised_change(), problem.model_cost_change()
        noise = noise_test(promised, found, problem.try_step().damped_square, cost, self._unit)
        return None if noise is None else Ending(noise.status, noise.message + self.advice)

    def _converged(self, numbers: str) -> Ending:
        return Ending(Status.PRECISION, f"{Status.PRECISION.value}, {numbers}.{self.advice}")


def lowers(proposal: Proposal, cost: float) -> bool:
    """Whether the step is to be taken and leads down."""
    return proposal.accepted and proposal.step is not None and proposal.step.cost.total < cost


def rounding_test(relative_gradient: float, precision: float) -> Ending | None:
    """relative gradient <= ROUNDINGS precision: neither the gradient nor the slope along the step can be told from 0.

    Asked where the step from x leads no further down: then x is as good as the arithmetic can make it, whether J has
    full rank or not. See `rounding.rounding`.
    """
    if not precision or not relative_gradient <= ROUNDINGS * precision:  # NaN fails too
        return None
    numbers = f"relative gradient = {relative_gradient:.3e} <= {ROUNDINGS * precision:.3e}"
    return Ending(Status.PRECISION, f"{Status.PRECISION.value}, {numbers}.")


def noise_test(promised: float, found: float, damped_square: float, cost: float, precision: float) -> Ending | None:
    """0 < promised <= sqrt(precision) cost, but found <= 0: what is left to gain is less than the gradient's rounding.

    Let g be the gradient and g + n the one computed, and ``|v|^2 = v.(J^T J + D)^-1 v``. A step
    ``delta = -(J^T J + D)^-1 (g + n)`` changes the model by

        promised = 1/2 (|g + n|^2 + delta.D delta)        according to the gradient
        found = 1/2 (|g|^2 - |n|^2 + delta.D delta)       according to the residuals

    so that found <= 0 says |g| <= |n|. Nothing is said where the damping has kept the step short, as |g|^2 / 2 is then
    not all that is left, nor where the rounding is a notable part of the cost.

    Args:
        promised: -(g + n).delta - 1/2 delta.J^T J delta.
        found: -(J delta).(F + J delta / 2).
        damped_square: delta.D delta.
    """
    if not (0 < promised <= math.sqrt(precision) * cost and found <= 0 and damped_square <= promised / 2):
        return None
    numbers = f"model cost change = {promised:.3e} of {cost:.3e} by the gradient, {found:.3e} by the residuals"
    return Ending(Status.PRECISION, f"{Status.PRECISION.value}, {numbers}.")
