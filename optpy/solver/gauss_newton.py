"""Gauss-Newton with full steps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import final

from optpy.solver.options import SolveOptions
from optpy.solver.proposal import Proposal
from optpy.solver.protocol import Damping, LinearLimits, LinearStatus, NonlinearProblem
from optpy.solver.result import Ending, Status
from optpy.solver.termination import NON_FINITE_GRADIENT, non_finite


@final
class GaussNewton:
    """J^T J delta = -g, x <- x + delta: every step is taken, whether or not the cost falls.

    Only a candidate whose cost or gradient is not finite is refused; that ends the solve, at the point before it.

    Reference: N&W section 10.3; Opt section 4.
    """

    radius = math.inf

    def __init__(self, options: SolveOptions) -> None:
        self._damping = Damping(math.inf, options.min_lm_diagonal, options.max_lm_diagonal, options.jacobi_scaling)

    def propose(self, problem: NonlinearProblem, cost: float, limits: LinearLimits) -> Proposal:
        """See `Method.propose`."""
        problem.damp(self._damping)  # D = 0
        linear = problem.solve_linear(limits)  # J^T J delta = -g
        if linear.status is LinearStatus.FAILURE:
            return Proposal(linear, ending=_failure(f"The linear solve failed: {linear.message}"))
        step = problem.try_step()  # x + delta
        if not step.cost.is_finite:
            message = f"After a full step {non_finite(step.cost)}; method='lm' would shorten the step."
            return Proposal(linear, step, ending=_failure(message))
        return Proposal(linear, step, accepted=True)

    def widen(self, radius: float) -> None:
        """See `Method.widen`: there is no trust region."""

    def restart(self) -> None:
        """See `Method.restart`: nothing is remembered."""

    def refuse(self, proposal: Proposal) -> Proposal:
        """See `Method.refuse`."""
        message = f"After a full step {NON_FINITE_GRADIENT}; method='lm' would shorten the step."
        return replace(proposal, accepted=False, ending=_failure(message))


def _failure(message: str) -> Ending:
    return Ending(Status.FAILURE, message)
