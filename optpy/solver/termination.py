"""When the minimisation ends, and the sentence that says why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

from optpy.solver.options import SolveOptions
from optpy.solver.protocol import Cost, Step
from optpy.solver.result import Status


@final
@dataclass(frozen=True, slots=True)
class Ending:
    """A status and the sentence, with the numbers, that goes with it."""

    status: Status
    message: str


NON_FINITE_GRADIENT: Final = "the gradient is not finite, though the cost is"


def gradient_test(gradient_norm: float, options: SolveOptions) -> Ending | None:
    """max_i |g_i| <= gradient_tolerance; a gradient that is not finite, as only the first may be, is the end, too."""
    if not math.isfinite(gradient_norm):
        return Ending(Status.FAILURE, f"At the starting point {NON_FINITE_GRADIENT}.")
    if gradient_norm > options.gradient_tolerance:
        return None
    message = f"{Status.GRADIENT_TOLERANCE.value} = {gradient_norm:.3e} <= {options.gradient_tolerance:.3e}."
    return Ending(Status.GRADIENT_TOLERANCE, message)


def function_test(cost: float, cost_change: float, options: SolveOptions) -> Ending | None:
    """|cost change| <= function_tolerance * cost, the cost before the step."""
    if options.function_tolerance == 0 or abs(cost_change) > options.function_tolerance * cost:
        return None
    relative = abs(cost_change) / cost if cost else 0.0
    message = f"{Status.FUNCTION_TOLERANCE.value} = {relative:.3e} <= {options.function_tolerance:.3e}."
    return Ending(Status.FUNCTION_TOLERANCE, message)


def parameter_test(step: Step, options: SolveOptions) -> Ending | None:
    """||step|| <= parameter_tolerance (||x|| + parameter_tolerance)."""
    scale = step.x_norm + options.parameter_tolerance
    if options.parameter_tolerance == 0 or step.step_norm > options.parameter_tolerance * scale:
        return None
    relative = step.step_norm / scale
    message = f"{Status.PARAMETER_TOLERANCE.value} = {relative:.3e} <= {options.parameter_tolerance:.3e}."
    return Ending(Status.PARAMETER_TOLERANCE, message)


def precision_test(step: Step, precision: float) -> Ending | None:
    """||step|| <= precision ||x||: rounding alone moves x as far, so that the cost says nothing about the step."""
    if not precision or step.step_norm > precision * step.x_norm:
        return None
    relative = step.step_norm / step.x_norm if step.x_norm else 0.0
    message = f"{Status.PRECISION.value}, relative step norm = {relative:.3e} <= {precision:.3e}."
    return Ending(Status.PRECISION, message)


ROUNDINGS: Final = 4
"""A residual is the result of several operations, each of which rounds."""


def rounding_test(relative_gradient: float, precision: float) -> Ending | None:
    """relative gradient <= ROUNDINGS precision: neither the gradient nor the slope along the step can be told from 0.

    Asked where the step from x leads no further down: then x is as good as the arithmetic can make it, whether J has
    full rank or not. See `rounding.relative_gradient`.
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


def limit_test(iteration: int, elapsed: float, options: SolveOptions) -> Ending | None:
    """The limits on iterations and on time."""
    if iteration >= options.max_iterations:
        return Ending(Status.MAX_ITERATIONS, f"{Status.MAX_ITERATIONS.value}: {options.max_iterations}.")
    if options.max_time is not None and elapsed >= options.max_time:
        return Ending(Status.TIME_LIMIT, f"{Status.TIME_LIMIT.value}: {elapsed:.3g} s >= {options.max_time:.3g} s.")
    return None


def non_finite(cost: Cost) -> str:
    """Which terms of a cost are not finite, as the subject of a sentence."""
    terms = cost.non_finite_terms
    if not terms:
        return f"the cost is {cost.total}"
    return f"the cost is {cost.total} (term{'s' * (len(terms) > 1)} {', '.join(map(repr, terms))})"
