"""Confirms an ending by a short step: neither the damping nor the linear solve must have made the step short."""

from __future__ import annotations

from typing import Final, final

from optpy.solver.forcing import TIGHT, Forcing
from optpy.solver.options import SolveOptions
from optpy.solver.precision import Precision
from optpy.solver.proposal import Method, Proposal
from optpy.solver.protocol import LinearLimits, LinearStatus
from optpy.solver.result import Ending, Status
from optpy.solver.rounding import NOTABLE, WIDE
from optpy.solver.safe_point import UNDISTURBED, SafePoint
from optpy.solver.termination import UNSOLVED, is_unsolved

_EXACT: Final = (1e-6, 1e-14)
"""Of its right-hand side the linear solve of a step that decides on a fit may leave so much: it has few unknowns, whose
units may differ by orders. Without a preconditioner r is in the units of g, and so small in some unknowns from the
beginning."""
_SOLVED: Final = 0.01
"""A linear solve that leaves no more of its right-hand side is as good as a tight one."""
_CREEPING: Final = 16
"""After so many steps in a row that gain little it is asked what is left."""
_UNSOLVED_STEPS: Final = 3
"""So many of those in a row, and the solve ends."""


@final
class Confirmation:
    """Lets an ending by a short step pass, or asks for another step before it.

    Args:
        options: see `SolveOptions`.
        method: makes the steps.
        precise: of the problem's arithmetic.
        unit: its precision; see `Minimizer`.
        is_fit: see `NonlinearProblem.is_fit`.
        is_small: whether linear iterations cost next to nothing: then all solves are tight.
    """

    def __init__(
        self, options: SolveOptions, method: Method, precise: Precision, unit: float, *, is_fit: bool, is_small: bool
    ) -> None:
        self._options = options
        self._method = method
        self._precise = precise
        self._unit = unit
        self._widest = WIDE / unit if unit else 0.0
        self._is_fit = is_fit
        self._is_small = is_small
        self._forcing = Forcing()
        self._tight_next = False
        self._undamped = False  # the step at hand is one without damping
        self._undamped_next = False
        self._refused = False  # a step without damping, from this x, was refused
        self._moved = False  # x is another since
        self._safe_point = UNDISTURBED
        self._creeping = 0  # full steps in a row that have gained little
        self._unsolved = 0  # steps in a row that are small, but perhaps only by the accuracy of their linear solves

    def begin_step(self, safe_point: SafePoint) -> LinearLimits:
        """The limits of its linear solve."""
        self._undamped, self._undamped_next = self._undamped_next, False
        self._refused &= not self._moved
        self._moved, self._safe_point = False, safe_point
        o = self._options
        exact = self._undamped and self._is_fit
        careful = exact or self._unsolved > 0
        decides, self._tight_next = self._undamped or self._tight_next or self._is_small, False
        suited = TIGHT if decides else self._forcing.term
        eta = 0.0 if careful else o.eta
        r_tolerance = o.r_tolerance
        if careful:
            enough = _EXACT[o.preconditioner is None] if exact else UNSOLVED
            r_tolerance = min(o.r_tolerance or enough, enough)
        return LinearLimits(
            max_iterations=o.linear_iterations,
            min_iterations=o.min_linear_iterations,
            eta=eta,
            r_tolerance=r_tolerance,
            residual_reset_period=o.residual_reset_period,
            safe_point=safe_point,
            suited=suited if eta is None else 0.0,
        )

    def made(self, proposal: Proposal, before: float) -> None:
        """The step at hand, once it is certain whether it was taken; the cost before it."""
        self._moved = proposal.accepted
        self._refused |= self._undamped and not proposal.accepted
        self._forcing.learn(proposal, before, self._unit * self._precise.initial)

    def damping(self, ending: Ending | None, proposal: Proposal, cost: float) -> Ending | None:
        """An ending that hinges on a short step, if that was made without notable damping, and its equations solved.

        Along directions that stiff residuals leave nearly free, a damped step gains next to nothing, however much is
        left there, and all else may have converged: the next step is made without damping, and decides. One whose
        linear solve has ended early, by an eta that is not tight, decides nothing either: that of the next one is.

        Args:
            cost: at x.
        """
        if ending is None or not ending.hinges:
            return ending
        if proposal.linear.suited > TIGHT and proposal.linear.reduction > _SOLVED:
            self._tight_next = True
            return None
        if not proposal.longer:
            return self._precise.certain(ending, cost, self._safe_point) if self._precise.doubts else ending
        wide = proposal.radius >= min(self._widest, self._options.max_radius)
        if wide or (self._refused and ending.status is Status.PRECISION):
            return self._precise.certain(ending, cost, self._safe_point)
        if self._refused:
            return ending if proposal.accepted and not self._is_fit else None
        self._undamped_next = True
        self._method.widen(self._widest)
        return None

    def creeping(self, proposal: Proposal, before: float, cost: float) -> None:
        """Look for a step by residuals where steps that no trust region shortens gain little, again and again.

        Args:
            before, cost: at x before the step and after it.
        """
        if not proposal.accepted or proposal.radius < self._options.max_radius or before - cost > NOTABLE * before:
            self._creeping = 0
            return
        self._creeping += 1
        if self._creeping % _CREEPING == 0:
            self._precise.seek(cost, self._safe_point)

    def linear_solve(self, small: Ending | None, proposal: Proposal) -> Ending | None:
        """An ending by a small step, if its linear equations were solved; after too many that were not, LINEAR_LIMIT.

        Until then the next step's are solved with care.
        """
        if small is None or proposal.linear.status is LinearStatus.TIME_LIMIT:
            self._unsolved = 0  # a step cut short says nothing by being small
            return None
        if not is_unsolved(proposal):
            return small
        self._unsolved += 1
        if self._unsolved < _UNSOLVED_STEPS:
            return None
        numbers = f"{self._unsolved} steps in a row were small, but not exact. The last linear solve: "
        return Ending(
            Status.LINEAR_LIMIT,
            f"{Status.LINEAR_LIMIT.value}: {numbers}{proposal.linear.message} Another preconditioner, or more "
            f"linear_iterations, would tell whether this is the minimum.{self._precise.advice}",
        )
