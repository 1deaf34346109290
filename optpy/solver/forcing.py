"""The forcing of the inexact Newton method: how exactly the equations of each step are solved."""

from __future__ import annotations

import math
from typing import Final, final

from optpy.solver.proposal import Proposal

TIGHT: Final = 1e-3
"""No step is solved more exactly: gains may be left that one iteration shows little of."""
LOOSE: Final = 0.1
"""As Ceres. With it alone and Jacobi as-rigid-as-possible deformations stall far from the minimum, though the model
holds; gains that do not fall tell."""
SECOND: Final = 0.01
"""From the second step on, as long as gains cannot be compared. If the first one is solved to that, too,
embedded_deformation ends in another minimum, at 1.5 times the cost; with 0.1 the plane pose graph does, at 5 times
(``python -m bench.forcing``)."""
_CREEPING: Final = 0.5
_FALLING: Final = 0.1
"""Of the last step's gain, a half is much, and a tenth as much as a loose step may leave."""
_FACTOR: Final = 4.0
"""Of one change. With 2 a long walk by block-Jacobi takes 1.2 times as long; other problems as long, within a few
percent."""
_TOLD: Final = 1e-5
"""Of the cost: rounding in float32 may have made what a step gains that promises less."""


@final
class Forcing:
    """The eta that conjugate gradients stop by, from what the model promises, step by step, and whether that holds:

        q_k = model cost change of step k / that of the step before
        rho_k = cost change / model cost change
        eta = eta_k / 4 where q_k > 1/2, 4 eta_k where q_k < 1/10, else eta_k
        eta_{k+1} = max(eta, (1 - rho_k)^2) within [TIGHT, LOOSE]; LOOSE where the step was refused

    Where equations are solved and the model holds, the next step has little left to gain. So where gains do not fall,
    the equations have hidden them, and more exact solves find more; where they fall fast, loose ones are enough. But
    what equations still hide is not worth finding where the model is wrong by more. Choice 2 of Eisenstat and Walker is
    of the same kind: eta follows the ratio of successive gradients. Here it is that of gains, as the test that eta is
    for compares gains, and eta goes up and down by factors, as slow errors show late with Jacobi.

    The first step is TIGHT, as a loose one from far away may lead to a worse minimum; then eta is SECOND until gains
    can be compared. Where a step promises so little that rounding may have made what became of it, eta falls. A full
    step that has led up is followed by a TIGHT one.

    Reference: Eisenstat and Walker, Choosing the forcing terms in an inexact Newton method, SIAM J. Sci. Comput. 17,
    1996; N&W section 7.1.
    """

    def __init__(self) -> None:
        self.term = TIGHT
        """Of the next step."""
        self._promised = math.nan  # of the last step that was taken, and told something

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
        if not promised > max(_TOLD * before, little):
            self.term = max(self.term / _FACTOR, TIGHT)
        elif not proposal.accepted:
            self.term, self._promised = LOOSE, math.nan
        else:
            self.term = self._after(promised, (before - step.cost.total) / promised)
            self._promised = promised

    def _after(self, promised: float, rho: float) -> float:
        """The eta after a step that was taken."""
        if not rho > 0:
            return TIGHT
        eta, q = self.term, promised / self._promised
        if math.isnan(q):
            eta = max(eta, SECOND)
        elif q > _CREEPING:
            eta /= _FACTOR
        elif q < _FALLING:
            eta *= _FACTOR
        return min(max(eta, (1 - rho) ** 2, TIGHT), LOOSE)
