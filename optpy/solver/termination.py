"""The tests that end a minimisation, each with its sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self, final

from optpy.solver.iteration import IterationRecord
from optpy.solver.options import SolveOptions
from optpy.solver.proposal import Proposal
from optpy.solver.protocol import Cost, LinearStatus
from optpy.solver.result import Ending, Status
from optpy.solver.rounding import DOUBLE

NON_FINITE_GRADIENT: Final = "the gradient is not finite, though the cost is"

_LITTLE: Final = 1e-8
"""Of the cost may still be gained where the residuals are orthogonal to J: where more is, small cosines say nothing, as
stiff residuals alone make all of them small."""
_NEARLY_ORTHOGONAL: Final = 100
"""A largest cosine of so many times its tolerance leaves about one right digit less in x."""
_LONG: Final = 1e-4
"""Of the cost: a step that gains as much is not short, whatever its length beside x."""
_NO_COST: Final = 1e-20
"""Of the cost at the start: where the cost can be 0, each step gains nearly all that is left."""
UNSOLVED: Final = 0.1
"""A linear solve that leaves more than that of its right-hand side has not said how long the step should be."""
_AGAIN: Final = 3
"""So many linear solves that run into their limit, and they are half of all, are no accident."""
_WORK: Final = 2.5e7
_LEAST_ITERATIONS, _MOST_ITERATIONS = 50, 5000


@final
@dataclass(frozen=True, slots=True)
class Criteria:
    """The tolerances and limits of a solve, those that were left open filled in.

    Attributes:
        function, gradient, parameter, cosine: tolerances; see `SolveOptions`. 0 disables a test.
        max_iterations, max_time: limits.
    """

    function: float
    gradient: float
    parameter: float
    cosine: float
    max_iterations: int
    max_time: float | None

    @classmethod
    def of(cls, options: SolveOptions, precision: float, size: int) -> Self:
        """The tolerances that suit the arithmetic and the problem where the user has given none.

        Args:
            options: the user's.
            precision: of the arithmetic; see `Minimizer`.
            size: of the problem; see `NonlinearProblem.size`.
        """
        double = precision < DOUBLE
        function, cosine, most = options.function_tolerance, options.cosine_tolerance, options.max_iterations
        affordable = int(_WORK / max(size, 1))
        return cls(
            function=(1e-8 if double else 1e-6) if function is None else function,
            gradient=options.gradient_tolerance,
            parameter=options.parameter_tolerance,
            cosine=(1e-8 if double else 0.0) if cosine is None else cosine,
            max_iterations=min(max(affordable, _LEAST_ITERATIONS), _MOST_ITERATIONS) if most is None else most,
            max_time=options.max_time,
        )

    # -- of the point ----------------------------------------------------------------------------------------------

    def at_minimum(self, gradient_norm: float) -> Ending | None:
        """max_i |g_i| <= gradient_tolerance; a gradient that is not finite, as only the first may be, is the end."""
        if not math.isfinite(gradient_norm):
            return Ending(Status.FAILURE, f"At the starting point {NON_FINITE_GRADIENT}.")
        if gradient_norm > self.gradient:
            return None
        message = f"{Status.GRADIENT_TOLERANCE.value} = {gradient_norm:.3e} <= {self.gradient:.3e}."
        return Ending(Status.GRADIENT_TOLERANCE, message)

    def orthogonal(self, cosine: float) -> Ending | None:
        """max_i |g_i| / (||J_i|| ||F||) <= cosine_tolerance."""
        if not cosine <= self.cosine:
            return None
        message = f"{Status.COSINE_TOLERANCE.value} = {cosine:.3e} <= {self.cosine:.3e}."
        return Ending(Status.COSINE_TOLERANCE, message, True)

    def limit(self, iteration: int, elapsed: float) -> Ending | None:
        """The limits on iterations and on time."""
        if iteration >= self.max_iterations:
            return Ending(Status.MAX_ITERATIONS, f"{Status.MAX_ITERATIONS.value}: {self.max_iterations}.")
        if self.max_time is not None and elapsed >= self.max_time:
            return Ending(Status.TIME_LIMIT, f"{Status.TIME_LIMIT.value}: {elapsed:.3g} s >= {self.max_time:.3g} s.")
        return None

    # -- of an accepted step ---------------------------------------------------------------------------------------

    def asks_cosine(self, proposal: Proposal, cost: float) -> bool:
        """Whether so little is left to gain that the cosine says something."""
        return self.cosine > 0 and not is_unsolved(proposal) and proposal.full_gain <= _LITTLE * cost

    def looks_small(self, proposal: Proposal, cost: float) -> bool:
        """Whether the step, or its change of the cost, is small, whatever the model says."""
        step = proposal.step
        if step is None:
            return False
        short = step.step_norm <= self.parameter * (step.x_norm + self.parameter)
        return short or abs(cost - step.cost.total) <= self.function * cost

    def is_small(
        self, proposal: Proposal, cost: float, cosine: float, *, comparable: bool, initial: float = 0.0
    ) -> Ending | None:
        """The function test and the parameter test, of the step as it would be without damping.

            |cost change| <= function_tolerance * cost, and so is what a full step would gain by the model
            ||full step|| <= parameter_tolerance (||x|| + parameter_tolerance)

        A cost that changes little is no minimum where the residuals are far from orthogonal to the columns of J; nor is
        x one from which a step is short only beside an x of other units, and gains a notable part of the cost.

        Args:
            proposal: with a step.
            cost: before it.
            cosine: after it; NaN where it was not asked for.
            comparable: whether costs may be compared from one iteration to the next.
            initial: the cost at the start, beside which one that can be 0 is nothing in the end.
        """
        step = proposal.step
        assert step is not None
        if self.function > 0 and comparable:
            change = max(abs(cost - step.cost.total), abs(proposal.full_gain))
            if change <= self.function * cost and not cosine > _NEARLY_ORTHOGONAL * self.cosine:
                numbers = f"{change / cost if cost else 0.0:.3e} <= {self.function:.3e}"
                return Ending(Status.FUNCTION_TOLERANCE, f"{Status.FUNCTION_TOLERANCE.value} = {numbers}.", True)
        scale = step.x_norm + self.parameter
        length = step.step_norm * proposal.lengthening  # short as it had to be, too
        notable = proposal.full_gain > max(_LONG * cost, _NO_COST * initial)
        if self.parameter > 0 and length <= self.parameter * scale and not notable:
            numbers = f"{length / scale:.3e} <= {self.parameter:.3e}"
            return Ending(Status.PARAMETER_TOLERANCE, f"{Status.PARAMETER_TOLERANCE.value} = {numbers}.", True)
        return None


def is_unsolved(proposal: Proposal) -> bool:
    """Whether the linear solve left much of its equations, or did not come to its end: a longer one may gain more."""
    linear = proposal.linear
    return linear.status is not LinearStatus.CONVERGED or linear.reduction > UNSOLVED


def limited(iterations: Sequence[IterationRecord], options: SolveOptions, *, reweights: bool) -> str:
    """A sentence where linear solves have run into their limit step after step, with the cure; else nothing.

    Args:
        iterations: of the whole solve.
        options: whose limit it was.
        reweights: whether residuals hold weights constant within a step, which may differ by orders.
    """
    steps = [record.linear_status is LinearStatus.MAX_ITERATIONS for record in iterations[1:]]
    count = sum(steps)
    if count < _AGAIN or 2 * count < len(steps):
        return ""
    most = options.linear_iterations
    cure = "Another preconditioner or more of them would make longer steps"
    bound = "; so would a bound on weights that grow without one" if reweights else ""
    return f"{count} of {len(steps)} linear solves ran into linear_iterations = {most}. {cure}{bound}."


def non_finite(cost: Cost) -> str:
    """The terms of a cost that are not finite, as the subject of a sentence."""
    terms = cost.non_finite_terms
    if not terms:
        return f"the cost is {cost.total}"
    return f"the cost is {cost.total} (term{'s' * (len(terms) > 1)} {', '.join(map(repr, terms))})"
