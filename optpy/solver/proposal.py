"""What a method (Gauss-Newton, Levenberg-Marquardt) makes of one iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final

from optpy.solver.protocol import LinearLimits, LinearSummary, NonlinearProblem, Step
from optpy.solver.termination import Ending


@final
@dataclass(frozen=True, slots=True)
class Proposal:
    """A step, tried but not yet taken.

    linear: how the linear solve went.
    step: the candidate, None if the linear solve gave nothing to try.
    accepted: take the step.
    tr_ratio: cost change / model cost change (NaN where the method has no model).
    held_back: a longer step, which the method will try next, may gain far more: this one's shortness is no convergence.
    ending: the method itself can go no further.
    """

    linear: LinearSummary
    step: Step | None = None
    accepted: bool = False
    tr_ratio: float = float("nan")
    held_back: bool = False
    ending: Ending | None = None


class Method(Protocol):
    """Which step to take from a linearised problem, and whether to take it."""

    @property
    def radius(self) -> float:
        """Of the trust region as it is now; infinite if there is none."""

    def propose(self, problem: NonlinearProblem, cost: float, limits: LinearLimits) -> Proposal:
        """One linear solve and the trial of its step; `cost` is that of the current point."""

    def refuse(self, proposal: Proposal) -> Proposal:
        """What becomes of an accepted step after which the gradient is not finite: it is not taken."""
