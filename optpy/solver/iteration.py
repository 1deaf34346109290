"""The record of one nonlinear iteration, and the argument of a callback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from optpy.errors import OptpyError
from optpy.solver.protocol import Cost, LinearStatus


@final
@dataclass(frozen=True, slots=True)
class IterationRecord:
    """One nonlinear iteration. Iteration 0 is the starting point.

    cost: at x after the iteration.
    cost_change: cost before minus the candidate's, whether taken or not (NaN if there was no candidate).
    gradient_norm: max_i |g_i| at x after the iteration.
    step_norm: ||delta||_2 of the candidate (NaN if there was none).
    tr_ratio: cost change / model cost change; NaN for Gauss-Newton.
    tr_radius: of the trust region after the iteration; infinite for Gauss-Newton.
    time, total_time: seconds in this iteration, and since the solve began.
    accepted: the step was taken.
    """

    iteration: int
    cost: float
    cost_change: float
    gradient_norm: float
    step_norm: float
    tr_ratio: float
    tr_radius: float
    linear_iterations: int
    linear_status: LinearStatus | None
    accepted: bool
    time: float
    total_time: float


@final
class IntermediateResult:
    """The argument of a callback, after every iteration.

    Attributes:
        iteration: the record of the iteration.
        nit: its number.
        cost, cost_by_term: at the current point.
    """

    def __init__(self, iteration: IterationRecord, cost: Cost, read_x: Callable[[], dict[str, Any]] | None) -> None:
        self.iteration = iteration
        self.nit = iteration.iteration
        self.cost = cost.total
        self.cost_by_term = dict(cost.by_term)
        self._read_x = read_x
        self._is_over = False

    @cached_property
    def x(self) -> dict[str, Any]:
        """Name to a copy of the unknown's current values; fetched from the device when first asked for.

        Raises:
            OptpyError: it is first asked for after the callback.
        """
        if self._is_over:
            raise OptpyError("x was not read in the callback, and is another by now: read it there, and keep that")
        if self._read_x is None:
            raise AttributeError("this problem does not offer its unknowns to callbacks")
        return self._read_x()

    def end(self) -> None:
        """The callback has returned: from now on the unknowns are others."""
        self._is_over, self._read_x = True, None
