"""Gauss-Newton with full steps."""

from __future__ import annotations

import math
from typing import Final, final

from optpy.solver.options import SolveOptions
from optpy.solver.proposal import Proposal
from optpy.solver.protocol import Damping, LinearLimits, LinearStatus, NonlinearProblem
from optpy.solver.result import Ending, Status
from optpy.solver.termination import NON_FINITE_GRADIENT, non_finite

_SAME: Final = 1e-3
"""Costs are the same if they differ by no more than so much of the last change, and that change is no less than so much
of the cost. Steps that come nearer to one another by so little at a time would need thousands more."""
_RETURNS: Final = 20
"""So many times in a row the cost is the same as two steps before, and full steps go back and forth for ever."""


@final
class GaussNewton:
    """J^T J delta = -g, x <- x + delta: every step is taken, whether or not the cost falls.

    Only a candidate whose cost or gradient is not finite is refused; that ends the solve, at the point before it. So
    do steps that go back and forth between two points.

    Reference: N&W section 10.3; Opt section 4.
    """

    radius = math.inf

    def __init__(self, options: SolveOptions) -> None:
        self._damping = Damping(math.inf, options.min_lm_diagonal, options.max_lm_diagonal, options.jacobi_scaling)
        self._costs = math.nan, math.nan  # at the two points before x
        self._returns = 0

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
        if self._goes_back_and_forth(cost):
            both = f"costs of {cost:.6e} and {self._costs[0]:.6e}"
            message = f"Full steps go back and forth between {both}; method='lm' would shorten them."
            return Proposal(linear, step, ending=_failure(message))
        return Proposal(linear, step, accepted=True)

    def _goes_back_and_forth(self, cost: float) -> bool:
        """Whether steps have come back, again and again, to where the last but one began."""
        before_last, last = self._costs
        self._costs = last, cost
        changed = abs(cost - last) > _SAME * cost
        self._returns = self._returns + 1 if changed and abs(cost - before_last) <= _SAME * abs(cost - last) else 0
        return self._returns >= _RETURNS

    def widen(self, radius: float) -> None:
        """See `Method.widen`: there is no trust region."""

    def restart(self) -> None:
        """See `Method.restart`."""
        self._returns = 0

    def refuse(self, proposal: Proposal) -> Proposal:
        """See `Method.refuse`."""
        message = f"After a full step {NON_FINITE_GRADIENT}; method='lm' would shorten the step."
        return proposal._replace(accepted=False, ending=_failure(message))


def _failure(message: str) -> Ending:
    return Ending(Status.FAILURE, message)
