"""What comes out of a solve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Literal, final

from optpy.solver.options import SolveOptions
from optpy.solver.protocol import Cost, LinearStatus
from optpy.solver.report import full_report


class Status(Enum):
    """How a solve ended; the value is the sentence, without the numbers.

    RUNNING: it has not; only a session, or its result, says so.
    GRADIENT_TOLERANCE, COSINE_TOLERANCE, FUNCTION_TOLERANCE, PARAMETER_TOLERANCE: converged, by the tests of the
        options of these names.
    PRECISION: converged: rounding hides whatever could still be gained.
    MAX_ITERATIONS, TIME_LIMIT: the options' limits.
    LINEAR_LIMIT: steps were small, but their linear solves not exact.
    MIN_RADIUS: no step that was tried lowers the cost, though the gradient is not 0.
    ROUNDING: no step leads further down, but rounding may hide a notable part of the cost.
    PLATEAU: the residuals do not depend on any unknown at the start, or by now not on one without dims.
    CALLBACK, INTERRUPTED: a callback raised StopIteration; Ctrl-C.
    FAILURE: no usable steps, numbers that are not finite, or Gauss-Newton above the best point that it has met.
    """

    RUNNING = "Not ended yet"
    GRADIENT_TOLERANCE = "Converged: gradient tolerance reached, max |g|"
    COSINE_TOLERANCE = "Converged: residuals orthogonal to the columns of J, largest cosine"
    FUNCTION_TOLERANCE = "Converged: function tolerance reached, |cost change| / cost"
    PARAMETER_TOLERANCE = "Converged: parameter tolerance reached, relative step norm"
    PRECISION = "Converged to the precision of the arithmetic"
    MAX_ITERATIONS = "Not converged: iteration limit reached"
    TIME_LIMIT = "Not converged: time limit reached"
    LINEAR_LIMIT = "Not converged: the linear solves end before they are solved"
    MIN_RADIUS = "Not converged: no step that was tried lowers the cost, though the gradient is not 0"
    ROUNDING = "Not converged: rounding hides which way is down"
    PLATEAU = "Not converged: to first order the residuals do not depend on an unknown"
    CALLBACK = "Not converged: the callback raised StopIteration"
    INTERRUPTED = "Not converged: interrupted"
    FAILURE = "Failed"

    @property
    def success(self) -> bool:
        """The solve converged."""
        return self in (
            Status.GRADIENT_TOLERANCE,
            Status.COSINE_TOLERANCE,
            Status.FUNCTION_TOLERANCE,
            Status.PARAMETER_TOLERANCE,
            Status.PRECISION,
        )

    @property
    def finished(self) -> bool:
        """The solve has ended, well or not."""
        return self is not Status.RUNNING


@final
@dataclass(frozen=True, slots=True)
class Ending:
    """A status and the sentence, with the numbers, that goes with it.

    hinges: on a step that is short; damping alone may have made it so.
    """

    status: Status
    message: str
    hinges: bool = False


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
@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds in each stage.

    residual: costs, of the point and of the candidates, and the model's.
    linearise: the gradient, what the Jacobian needs, and the preconditioner.
    linear_solve: conjugate gradients.
    total: of the solve, callbacks included; compiling and binding are not.
    cache: whether the compiled routines came from the cache; None where nothing was compiled.

    These are times of the host. On a GPU all work is queued, and nearly all of it is waited for where a linear solve is
    read: there ``residual`` and ``linearise`` are what queueing takes and say nothing of how long the GPU works on
    them; their work is in ``linear_solve``. ``total`` means the same everywhere.
    """

    compile: float = 0.0
    bind: float = 0.0
    residual: float = 0.0
    linearise: float = 0.0
    linear_solve: float = 0.0
    total: float = 0.0
    cache: Literal["hit", "miss"] | None = None


@final
class IntermediateResult:
    """What a callback gets after every iteration.

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

    @cached_property
    def x(self) -> dict[str, Any]:
        """Name to a copy of the unknown's current values; fetched from the device when first asked for,
        so ask during the callback."""
        if self._read_x is None:
            raise AttributeError("this problem does not offer its unknowns to callbacks")
        return self._read_x()


@final
@dataclass(frozen=True, slots=True, eq=False)
class SolveResult:
    """The outcome of `solve`. Results are equal if they are the same object: they hold arrays.

    x: name to array, of the kind that came in: the best point met.
    cost, initial_cost, cost_by_term, initial_cost_by_term: 1/2 sum of squares, at x and at the start.
    success: converged; see `status` and the sentence in `message`.
    nit: nonlinear iterations, rejected ones included.
    iterations: a record each, the first for the starting point.
    facts: what the report says of the problem: label to text.
    """

    x: dict[str, Any] = field(repr=False)
    cost: float
    initial_cost: float
    cost_by_term: dict[str, float]
    initial_cost_by_term: dict[str, float]
    success: bool
    status: Status
    message: str
    nit: int
    iterations: tuple[IterationRecord, ...] = field(repr=False)
    timing: Timing
    device: str
    options: SolveOptions = field(repr=False)
    facts: Mapping[str, str] = field(default_factory=dict, repr=False)

    def report(self, *, table: bool = True) -> str:
        """The whole story as text: problem, costs, times, iterations, and how it ended.

        Args:
            table: with a line for each iteration; False where verbose=2 has shown them already.
        """
        return full_report(self, table=table)
