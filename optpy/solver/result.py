"""The result of a solve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, final

from optpy.solver.iteration import IterationRecord
from optpy.solver.options import SolveOptions
from optpy.solver.report import TABLE_HEADER, table_row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Status(Enum):
    """The ending of a solve; the value is the sentence, without the numbers.

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
class Timing:
    """Seconds in each stage.

    compile: of the schedule that is solved with.
    measure: where the schedule is "measured" and none was kept: compiling and timing all that was tried.
    residual: costs, of the point and of the candidates, and the model's.
    linearise: the gradient, what the Jacobian needs, and the preconditioner.
    linear_solve: conjugate gradients.
    total: of the solve, callbacks included; compiling, measuring and binding are not.
    cache: whether the compiled routines came from the cache; None where nothing was compiled.

    These are times of the host. On a GPU all work is queued, and nearly all of it is waited for where a linear solve is
    read: there ``residual`` and ``linearise`` are what queueing takes and say nothing of how long the GPU works on
    them; their work is in ``linear_solve``. ``total`` means the same everywhere.
    """

    compile: float = 0.0
    measure: float = 0.0
    bind: float = 0.0
    residual: float = 0.0
    linearise: float = 0.0
    linear_solve: float = 0.0
    total: float = 0.0
    cache: Literal["hit", "miss"] | None = None


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
        return _report(self, table)

    def plot(self) -> Figure:
        """The course of the solve: cost and gradient over iterations and seconds, linear iterations, lengths of steps.

        Steps that were rejected are marked. Notebooks show the figure; ``savefig`` writes it to a file.

        Raises:
            OptpyError: Matplotlib is not installed (``optpy[plot]``).
        """
        from optpy.drawing.convergence import convergence_figure

        return convergence_figure(self.iterations, self.message)

    def _repr_html_(self) -> str:
        from optpy.drawing.markup import findings_html

        return findings_html(self.report(), self.success)


def _report(result: SolveResult, table: bool) -> str:
    """Problem, method, costs, times, iterations (if a table is wanted) and ending, one section each."""
    sections = [
        ["optpy solve", *_facts(result)],
        _costs(result),
        _times(result),
        [TABLE_HEADER, *map(table_row, result.iterations)] if table else [],
        [f"{result.status.name}: {result.message}"],
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def _facts(result: SolveResult) -> Iterable[str]:
    options = result.options
    method = {"lm": "Levenberg-Marquardt", "gn": "Gauss-Newton"}[options.method]
    asked = options.preconditioner
    named = {None: "no preconditioner", "auto": "preconditioner chosen as it goes"}
    linear = f"conjugate gradients, {named.get(asked, f'preconditioner {asked}')}"
    reason = result.facts.get("Device")
    device = f"{result.device}: {reason}" if reason else result.device
    facts = {**result.facts, "Device": device, "Method": method, "Linear solver": linear}
    return (f"{label:<28}{text}" for label, text in facts.items())


def _costs(result: SolveResult) -> list[str]:
    header = f"{'Cost':<28}{'initial':>14}{'final':>14}{'change':>14}"
    rows = [("total", result.initial_cost, result.cost)]
    if len(result.cost_by_term) > 1:
        rows += [(name, result.initial_cost_by_term[name], cost) for name, cost in result.cost_by_term.items()]
    return [
        header,
        *(f"  {name:<26}{start:14.6e}{end:14.6e}{start - end:14.6e}" for name, start, end in rows),
    ]


def _times(result: SolveResult) -> list[str]:
    timing, records = result.timing, result.iterations[1:]
    linear = sum(record.linear_iterations for record in records)
    taken = sum(record.accepted for record in records)
    counts = f"{len(records)} ({taken} taken, {len(records) - taken} rejected), {linear} linear"
    # What a GPU is told to do is not done yet; the host waits for all of it where it reads how a linear solve ended.
    gpu = result.device == "cuda"
    compiled = f"  (cache {timing.cache})" if timing.cache else ""
    return [
        f"{'Iterations':<28}{counts}",
        "Time (s)",
        f"  {'compile':<26}{timing.compile:14.4f}{compiled}",
        *([f"  {'measure schedules':<26}{timing.measure:14.4f}"] if timing.measure else []),
        f"  {'bind':<26}{timing.bind:14.4f}",
        f"  {'residual, queueing' if gpu else 'residual':<26}{timing.residual:14.4f}",
        f"  {'linearise, queueing' if gpu else 'linearise':<26}{timing.linearise:14.4f}",
        f"  {'linear solve, all waiting' if gpu else 'linear solve':<26}{timing.linear_solve:14.4f}",
        f"  {'solve in all':<26}{timing.total:14.4f}",
    ]
