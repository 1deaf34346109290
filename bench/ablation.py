"""What each optimisation brings: J^T F and J^T J p with nothing, and with one more of them after the other.

`python -m bench.ablation [CASE ...] [--size N]`: figure 15 of the Opt paper on the energies here. J^T F is with all
that a linearisation stores, J^T J p a product. A table for each case; JSON and a plot in bench/results, or in
`--output`. The time is that of the processor on one thread, the least of several runs.

What a schedule decides is switched off by schedules (`PLAIN`). The compiler's own passes have no public switch: they
are replaced here by such as change nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final
from unittest.mock import patch

from rich.table import Table

from bench import machine, report
from bench.__main__ import CAN_PLOT
from bench.case import Case
from bench.decisions import chosen, parser, processor_seconds
from optpy.api import pipeline
from optpy.api.measured import LINEARISATION
from optpy.api.plan import build
from optpy.api.problem import CompiledProblem
from optpy.ir import Group, Schedule, loops
from optpy.kernels.codegen import arithmetic, functions
from optpy.kernels.codegen.passes.guard_reads import guard_reads
from optpy.symbolic.factor import factor

ENOUGH = 0.1
"""Seconds of a run, of which the fastest of several counts."""
_REPEAT = 5

PLAIN: Final[dict[str, dict[str, str]]] = {
    "values": {"*": "recomputed"},
    "funcs": {"*": "inline"},
    "residuals": {"*": "inline"},
    "splits": {"*": "together"},
    "conditions": {"*": "select"},
    "layouts": {"*": "planar"},
}
"""A schedule that keeps nothing in memory, and every channel in a plane."""


@final
@dataclass(frozen=True, slots=True)
class Step:
    """An optimisation that is added.

    Attributes:
        name: of it.
        without: turns the pass that does it off, and is left here; None: it is a part of PLAIN that is left out.
        decided: the parts of PLAIN that are left out.
    """

    name: str
    without: Callable[[ExitStack], None] | None = None
    decided: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Row:
    """With an optimisation, and all those before it: nanoseconds for each pixel or edge."""

    optimisation: str
    gradient: float
    product: float


def _unfactored(stack: ExitStack) -> None:
    """Polynomials stay sums of products, wherever they are made."""

    def as_it_is(roots: Iterable[Any]) -> list[Any]:
        return list(roots)

    for name, module in list(sys.modules.items()):
        if name.startswith("optpy.") and getattr(module, "factor", None) is factor:
            stack.enter_context(patch.object(module, "factor", as_it_is))


def _in_any_form(stack: ExitStack) -> None:
    """Equal expressions stay in the forms in which they were derived."""
    stack.enter_context(patch.object(pipeline, "in_one_form", dict))


def _checked(stack: ExitStack) -> None:
    """Every point checks every bound, as those at the border do."""

    def everywhere(function: loops.Function) -> loops.Function:
        guarded = guard_reads(function)
        (points,) = guarded.body
        assert isinstance(points, loops.Points)
        inside = loops.Points(points.domain, points.margins, points.border or points.interior, points.border)
        return loops.Function(guarded.name, (inside,), guarded.noinline)

    stack.enter_context(patch.object(functions, "guard_reads", everywhere))


def _unshared(stack: ExitStack) -> None:
    """Each quotient divides by itself, and what depends on params alone is computed at each point."""
    stack.enter_context(patch.object(arithmetic, "share_reciprocals", lambda function: function))
    stack.enter_context(patch.object(functions, "hoist", lambda function: function))


STEPS: Final = (
    Step("nothing"),
    Step("polynomials factored", _unfactored),
    Step("equal expressions in one form", _in_any_form),
    Step("bounds checked at the border only", _checked),
    Step("reciprocals shared, params hoisted", _unshared),
    Step("dear values and conditions stored", None, ("values",)),
    Step("Funcs stored", None, ("funcs",)),
    Step("J, Jp stored", None, ("residuals",)),
    Step("layouts, sums over edges apart", None, ("splits", "layouts")),
    Step("branches on conditions", None, ("conditions",)),
)


@contextmanager
def only(steps: Sequence[Step]) -> Iterator[Schedule]:
    """The schedule with some optimisations, within which the passes of the others are off."""
    with ExitStack() as stack:
        # No program without a pass may be kept, or found, under the name of the whole compiler's.
        stack.enter_context(patch.object(pipeline, "kept_program", lambda problem, dtype, given, derived: derived()))
        for step in STEPS:
            if step.without is not None and step not in steps:
                step.without(stack)
        decided = {name for step in steps for name in step.decided}
        yield Schedule(**{name: choices for name, choices in PLAIN.items() if name not in decided})  # type: ignore[arg-type]


def measure(case: Case, size: int, dtype: str) -> Iterator[Row]:
    """A row for each optimisation, with those before it."""
    data = case.data(size)
    points = case.elements(data)[1 if case.unit == "edge" else 0]
    for n, step in enumerate(STEPS):
        with only(STEPS[: n + 1]) as schedule:
            session = build(case.energy, dtype, schedule).start(data, method=case.method, threads=1)
            problem = session._problem
            problem.linearise()
        gradient, product = (_seconds(problem, groups) for groups in (LINEARISATION, (Group.PRODUCT,)))
        yield Row(step.name, 1e9 * gradient / points, 1e9 * product / points)


def _seconds(problem: CompiledProblem, groups: Iterable[Group]) -> float:
    """For one run of some groups, of which there need not be all."""
    there = [group for group in groups if group in problem.executor.groups]
    return sum(min(processor_seconds(problem, group, ENOUGH) for _ in range(_REPEAT)) for group in there)


def table(case: Case, size: int, dtype: str, rows: Sequence[Row]) -> Table:
    """Nanoseconds, and how many times faster than with nothing."""
    made = Table(title=f"{case.name}, {size}², {dtype}: nanoseconds for each {case.unit}, each with all before it")
    made.add_column("with")
    for name in ("J^T F", "faster", "J^T J p", "faster"):
        made.add_column(name, justify="right")
    for row in rows:
        faster = rows[0].gradient / row.gradient, rows[0].product / row.product
        cells = (f"{row.gradient:.2f}", f"{faster[0]:.1f}", f"{row.product:.2f}", f"{faster[1]:.1f}")
        made.add_row(row.optimisation, *cells)
    return made


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The settings of a run."""
    made = parser("bench.ablation", __doc__)
    made.add_argument("--output", type=Path, default=Path(__file__).with_name("results"))
    return made.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Measures, prints and plots one case after the other."""
    settings = parse(arguments)
    settings.output.mkdir(parents=True, exist_ok=True)
    for case, size in chosen(settings):
        rows = list(measure(case, size, settings.dtype))
        report.show(table(case, size, settings.dtype, rows))
        record = {"case": case.name, "size": size, "dtype": settings.dtype, "machine": machine.describe()}
        path = settings.output / f"{case.name}_ablation.json"
        path.write_text(json.dumps(record | {"rows": [asdict(row) for row in rows]}, indent=1))
        if CAN_PLOT:
            from bench.plot import plot_ablation

            plot_ablation(case, rows, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
