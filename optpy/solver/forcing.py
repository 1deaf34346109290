"""The forcing of the inexact Newton method: how exactly the equations of each step are solved."""

from __future__ import annotations

import math
from typing import Final, final

from optpy.solver.proposal import Proposal

TIGHT: Final = 1e-3
"""Gains may be left that one iteration shows little of: with Ceres' 0.1 and Jacobi as-rigid-as-possible warps stall far
from the minimum, though the model holds."""
LOOSE: Final = 0.1
"""As Ceres."""
_TIGHTER: Final = 2.0
"""The forcing falls by no more from step to step. With 3 and 5 a made relief of shape_from_shading ends higher in
float32 (``python -m bench.forcing``)."""
_TOLD: Final = 1e-5
"""Of the cost: rounding in float32 may have made what a step gains that promises less."""


@final
class Forcing:
    """The eta that conjugate gradients stop by, from how well the model has foretold the last step:

        rho_k = cost change / model cost change
        eta_{k+1} = max((1 - rho_k)^2, eta_k / 2) within [TIGHT, LOOSE]; LOOSE where the step was refused

    What the equations still hide is not worth finding where the model is wrong by more. Choice 1 of Eisenstat and
    Walker compares norms of residuals; the test that eta is for compares gains, in which an error counts by its square.
    As with their safeguard eta falls by degrees: a loose step goes only where the equations are easy, and of those the
    model foretells more than of all.

    TIGHT as long as nothing is known: at the first step, as a loose one from far away may lead to a worse minimum;
    where the last one promised little, of which rounding may have made less; where a full step has led up.

    Reference: Eisenstat and Walker, Choosing the forcing terms in an inexact Newton method, SIAM J. Sci. Comput. 17,
    1996; N&W section 7.1.
    """

    def __init__(self) -> None:
        self.term = TIGHT
        """Of the next step."""

    def learn(self, proposal: Proposal, before: float, little: float) -> None:
        """Takes what became of a step.

        Args:
            proposal: the step.
            before: the cost at x before it.
            little: a gain that is nothing beside the cost at the start.
        """
        step, promised = proposal.step, proposal.model_cost_change
        if step is None or not proposal.linear.iterations:  # it was not made by conjugate gradients
            return
        if math.isnan(promised):  # nobody has asked: without damping that is what the linear solve gains
            promised = proposal.linear.gain
        last, self.term = self.term, TIGHT
        if promised > max(_TOLD * before, little):
            rho = (before - step.cost.total) / promised
            if not proposal.accepted:
                self.term = LOOSE
            elif rho > 0:
                self.term = min(max((1 - rho) ** 2, last / _TIGHTER, TIGHT), LOOSE)
