"""The proposal that a method (Gauss-Newton, Levenberg-Marquardt) makes in one iteration."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, final

from optpy.solver.protocol import LinearLimits, LinearSummary, NonlinearProblem, Step
from optpy.solver.result import Ending


@final
class Proposal(NamedTuple):
    """A step, tried but not yet taken.

    linear: how the linear solve went.
    step: the candidate, None if the linear solve gave nothing to try.
    accepted: take the step.
    tr_ratio: cost change / model cost change (NaN where the method has no model).
    model_cost_change: what the model promises of the step (NaN where nobody has asked).
    radius: of the trust region that the step was made for.
    longer: whether a longer step is worth trying: not where the trust region had to stay as small as it is.
    ending: the method itself can go no further.
    """

    linear: LinearSummary
    step: Step | None = None
    accepted: bool = False
    tr_ratio: float = float("nan")
    model_cost_change: float = float("nan")
    radius: float = float("inf")
    longer: bool = True
    ending: Ending | None = None

    @property
    def lengthening(self) -> float:
        """The factor by which the step would be longer without damping, whether or not it is worth trying.

        Of an error c along an eigenvector of J^T J with eigenvalue a, damped by d, a step removes a / (a + d). Its
        delta.D delta is the share q = d / (a / 2 + d) of what the model gains, so that with x = d / a = q / (2 - 2 q)
        the full step is 1 + x times as long, and gains (1 + x)^2 / (1 + 2 x) times as much. Over several eigenvectors
        q is a mean, by what the model gains along each: the gain is then a lower bound, the length an estimate.
        """
        return 1 + self._damping

    @property
    def full_gain(self) -> float:
        """The least gain of the model without damping, if that is worth trying; see `lengthening`."""
        x = self._damping if self.longer else 0.0
        return math.inf if math.isinf(x) else self.model_cost_change * (1 + x) ** 2 / (1 + 2 * x)

    @property
    def _damping(self) -> float:
        """d / a."""
        damped, gain = self.step.damped_square if self.step is not None else 0.0, self.model_cost_change
        if not damped > 0 or math.isnan(gain):
            return 0.0
        return damped / (2 * (gain - damped)) if gain > damped else math.inf


class Method(Protocol):
    """A method: proposes a step from a linearised problem, and decides whether to take it."""

    @property
    def radius(self) -> float:
        """Of the trust region as it is now; infinite if there is none."""

    def propose(self, problem: NonlinearProblem, cost: float, limits: LinearLimits) -> Proposal:
        """One linear solve and the trial of its step; `cost` is that of the current point."""

    def widen(self, radius: float) -> None:
        """Make the next step with a trust region at least that large."""

    def restart(self) -> None:
        """As at the start: x is where another step has led."""

    def refuse(self, proposal: Proposal) -> Proposal:
        """Refuses an accepted step after which the gradient is not finite."""
