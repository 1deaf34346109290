"""Levenberg-Marquardt as a trust-region method."""

from __future__ import annotations

import math
from typing import final

from optpy.solver.options import SolveOptions
from optpy.solver.proposal import Proposal
from optpy.solver.protocol import Damping, LinearLimits, LinearStatus, LinearSummary, NonlinearProblem
from optpy.solver.result import Ending, Status
from optpy.solver.rounding import least_damping
from optpy.solver.termination import NON_FINITE_GRADIENT, non_finite
from optpy.solver.trust_region import TrustRegion


@final
class LevenbergMarquardt:
    """(J^T J + D) delta = -g with D ~ diag(J^T J) / radius; a step is taken only if the cost falls enough.

        model_cost_change = cost - 1/2 ||F + J delta||^2
        relative_decrease = (cost - cost(x + delta)) / model_cost_change
        relative_decrease > min_relative_decrease: take the step, adapt the radius
        otherwise: keep x, shrink the radius

    A candidate whose cost or gradient is not finite is rejected like any other bad one: a shorter step may be finite.
    A linear solve that gives no usable step (numerical failure, or a model that predicts no decrease) is
    *invalid*: the radius shrinks too, but `max_consecutive_invalid_steps` of these in a row end the solve.

    Reference: Ceres, trust_region_minimizer.cc and levenberg_marquardt_strategy.cc; N&W section 10.3.
    """

    def __init__(self, options: SolveOptions, initial_radius: float) -> None:
        self._options = options
        self._initial = TrustRegion(initial_radius, options.max_radius)
        self._region = self._initial
        self._narrow: TrustRegion | None = None  # the one before it was widened for the next step
        self._fallback = self._initial  # for the next step, if the one at hand is refused
        self._invalid_steps = 0
        self._least_damping: float | None = None  # not known before the problem is linearised
        self._non_finite = ""  # what of a candidate is not, as a sentence, until a finite one differs from x

    @property
    def radius(self) -> float:
        """See `Method.radius`."""
        return self._region.radius

    def propose(self, problem: NonlinearProblem, cost: float, limits: LinearLimits) -> Proposal:
        """See `Method.propose`."""
        self._fallback, self._narrow = self._narrow or self._region.rejected(), None
        problem.damp(self._damping(problem))  # D
        linear = problem.solve_linear(limits)  # (J^T J + D) delta = -g
        if linear.status is LinearStatus.FAILURE:
            return self._invalid(linear, f"The linear solve failed: {linear.message}")
        model_cost_change = problem.model_cost_change()
        if not 0 < model_cost_change < math.inf:
            reason = f"The model predicts no decrease: {model_cost_change:.3e} of {cost:.3e}."
            return self._invalid(linear, reason)
        self._invalid_steps = 0
        step = problem.try_step()  # x + delta
        if not step.cost.is_finite:
            self._non_finite = non_finite(step.cost)
        elif step.cost.total != cost:
            self._non_finite = ""
        relative_decrease = (cost - step.cost.total) / model_cost_change
        radius, accepted = self._region.radius, False
        if relative_decrease > self._options.min_relative_decrease and step.cost.is_finite:
            self._region, accepted = self._region.accepted(relative_decrease), True
        else:
            self._region = self._fallback
        longer = not accepted or self._region.radius >= self._options.max_radius or self._region.radius > radius
        ending = None if accepted else self._smallest_region()
        return Proposal(linear, step, accepted, relative_decrease, model_cost_change, radius, longer, ending)

    def widen(self, radius: float) -> None:
        """See `Method.widen`."""
        radius = min(max(radius, self._region.radius), self._options.max_radius)
        self._narrow = self._region
        self._region = TrustRegion(radius, self._options.max_radius)

    def restart(self) -> None:
        """See `Method.restart`."""
        self._region, self._narrow = self._initial, None
        self._invalid_steps = 0

    def refuse(self, proposal: Proposal) -> Proposal:
        """See `Method.refuse`: the radius is what a rejected step would have left."""
        self._region = self._fallback
        self._non_finite = NON_FINITE_GRADIENT
        return proposal._replace(accepted=False, ending=self._smallest_region())

    def _damping(self, problem: NonlinearProblem) -> Damping:
        o = self._options
        if self._least_damping is None:
            self._least_damping = least_damping(o.min_lm_diagonal, problem.curvature())
        return Damping(self._region.radius, self._least_damping, o.max_lm_diagonal, o.jacobi_scaling)

    def _invalid(self, linear: LinearSummary, reason: str) -> Proposal:
        proposal = Proposal(linear, radius=self._region.radius)
        self._region = self._fallback
        self._invalid_steps += 1
        retry = self._invalid_steps < self._options.max_consecutive_invalid_steps
        if retry and self._region.radius > self._options.min_radius:
            return proposal
        message = f"{self._invalid_steps} linear solves in a row gave no usable step. {reason}"
        return proposal._replace(ending=Ending(Status.FAILURE, message))

    def _smallest_region(self) -> Ending | None:
        """The radius is at its minimum: the cost and its gradient disagree, or nothing is finite."""
        radius, least = self._region.radius, self._options.min_radius
        if radius > least:
            return None
        if self._non_finite:
            message = f"However short the step, {self._non_finite} after it."
            return Ending(Status.FAILURE, message)
        message = f"{Status.MIN_RADIUS.value}: trust region radius = {radius:.3e} <= {least:.3e}."
        return Ending(Status.MIN_RADIUS, message)
