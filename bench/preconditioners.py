"""What preconditioners take, in iterations with the one that "auto" begins with.

`python -m bench.preconditioners [CASE ...] [--size N]`: of each one that applies, what making it takes, an iteration
with it, and a whole linear solve: what the rules stand on by which "auto" takes them (``patience`` and
``iteration_cost`` of the records in optpy/linear). The time is that of the processor, on one thread: so the ratios hold
on a busy machine, too. With `--matrix` J^T J is assembled on grids, too, where it stays matrix-free of itself: what
optpy/scheduling/normal.py stands on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from bench.case import Case
from bench.decisions import chosen, parser
from optpy.api.plan import build
from optpy.api.problem import CompiledProblem
from optpy.errors import OptionError
from optpy.ir import Schedule
from optpy.linear.registry import options
from optpy.solver.forcing import TIGHT
from optpy.solver.options import SolveOptions
from optpy.solver.protocol import Damping, LinearLimits

_FEW, _MANY = 2, 8
"""Iterations of two solves, between which nothing but iterations differs."""
_REPEAT = 3


@final
@dataclass(frozen=True, slots=True)
class Price:
    """Of a preconditioner, each in iterations with the one that "auto" begins with.

    Attributes:
        making: before the first iteration.
        iteration: one of its own.
        solve: the first linear solve of the case, with default options: what "auto" weighs.
        iterations: of that solve, its own.
    """

    preconditioner: str
    making: float
    iteration: float
    solve: float
    iterations: int


def measure(case: Case, size: int, dtype: str, *, matrix: bool = False) -> Iterator[Price]:
    """Of all that apply to a case; the first row is of what "auto" begins with."""
    given = _assembled(case, dtype) if matrix else ()
    session = build(case.energy, dtype, given).start(case.data(size), method=case.method, threads=1)
    problem = session._problem
    used = SolveOptions.of(method=case.method)
    radius = used.first_radius(is_fit=problem.is_fit) if case.method == "lm" else float("inf")
    first = str(problem.first_preconditioner)
    unit = 0.0
    for name in (first, *(name for name in options() if name != first)):
        try:
            problem.set_preconditioner(name)
        except OptionError:  # it does not apply
            continue
        problem.prepare(case.method == "lm", ahead=True)
        problem.linearise()
        problem.damp(Damping(radius, used.min_lm_diagonal, used.max_lm_diagonal, used.jacobi_scaling))
        few, many = (_seconds(problem, LinearLimits(n))[0] for n in (_FEW, _MANY))
        iteration = (many - few) / (_MANY - _FEW)
        seconds, iterations = _seconds(problem, LinearLimits(used.linear_iterations, eta=None, suited=TIGHT))
        unit = unit or iteration
        making = max(few - _FEW * iteration, 0.0)
        yield Price(name, making / unit, iteration / unit, seconds / unit, iterations)


def _assembled(case: Case, dtype: str) -> Schedule:
    """The schedule of a case, but for the form of J^T J."""
    return Schedule(normal="matrix")


def _seconds(problem: CompiledProblem, limits: LinearLimits) -> tuple[float, int]:
    """Of a linear solve whose preconditioner is made anew: the least of several, and its iterations."""
    times = []
    for _ in range(_REPEAT):
        problem.linear_solver.data_changed()
        started = time.process_time()
        summary = problem.solve_linear(limits)
        times.append(time.process_time() - started)
    return min(times), summary.iterations


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The settings of a run."""
    made = parser("bench.preconditioners", __doc__)
    made.add_argument("--matrix", action="store_true", help="J^T J is assembled on grids, too")
    return made.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Measures, and prints a line for each preconditioner."""
    settings = parse(arguments)
    for case, size in chosen(settings):
        print(f"{case.name}, {size}², {settings.dtype}, {case.method}: in iterations with the first", flush=True)
        for p in measure(case, size, settings.dtype, matrix=settings.matrix):
            own = f"{p.solve:7.0f} of a solve in {p.iterations} of its own"
            print(
                f"  {p.preconditioner:13s} {p.making:8.1f} to make it, {p.iteration:6.2f} an iteration, {own}",
                flush=True,
            )


if __name__ == "__main__":
    main()
