"""What products with J^T J take in each way of storing, beside what the decider counts for it.

`python -m bench.schedules [CASE ...] [--size N]`: nanoseconds for each pixel or edge, and the counted additions, of
each way in which residuals may enter products with J^T J: what the constants of optpy/scheduling/costs.py are held to.
They are right where the way that is counted cheapest is among the fastest.
The time is that of the processor, on one thread: so the ratios hold on a busy machine, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

from bench.case import Case
from bench.decisions import chosen, parser, processor_seconds
from optpy.api.pipeline import derive
from optpy.api.plan import build
from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.linearised_problem import linearised_problem
from optpy.energy.derive.materialised import over_edges
from optpy.ir import Domain, Group, ResidualSchedule
from optpy.scheduling.costs import kept_cost
from optpy.scheduling.residuals import costs, gathers
from optpy.scheduling.residuals import stencils as normal_stencils
from optpy.scheduling.stencils import is_stencil

ENOUGH = 0.2
"""Seconds of a run, of which the fastest of several counts."""
_REPEAT = 5


@final
@dataclass(frozen=True, slots=True)
class Way:
    """All residuals of a case in one way.

    Attributes:
        way: in which they enter products, all of them or each.
        counted: additions for each edge; None of stencils, where the decider counts differences.
        nanoseconds: of a product, for each pixel or edge.
        is_chosen: whether it is the decider's.
    """

    way: str
    counted: int | None
    nanoseconds: float
    is_chosen: bool


def measure(case: Case, size: int, dtype: str) -> Iterator[Way]:
    """Every way: over graphs all gathers, on grids J, or J^T J, or nothing stored; and the decider's, if it is none."""
    sources = linearised_problem(case.energy.problem).residuals
    edges = [s for s in sources if over_edges(s.residual)]
    stencils = [s for s in sources if not over_edges(s.residual) and is_stencil(s)]
    data = case.data(size)
    points, unit = case.elements(data), 1 if case.unit == "edge" else 0
    decided = {s.label: s for s in derive(case.energy.problem, dtype).schedule.residuals}
    chosen = [decided[s.residual.label] for s in edges or stencils if s.residual.label in decided]
    all_ways = {
        str(way).partition(": ")[2]: [replace(way, label=s.label) for s in chosen]
        for way in [*(gathers("") if edges else gathers("")[::2]), *normal_stencils("")]
    }
    if chosen not in all_ways.values():
        all_ways["each residual in its own"] = chosen
    for name, given in all_ways.items():
        counted = _counted(edges, given) if edges else None
        nanoseconds = 1e9 * _seconds(case, dtype, given, data) / points[unit]
        yield Way(name, counted, nanoseconds, given == chosen)


def _counted(edges: list[LinearisedResidual], given: list[ResidualSchedule]) -> int:
    """Of a product with J^T J, in additions for each edge."""
    kept: dict[Domain, list[LinearisedResidual]] = {}
    total = 0.0
    for s, way in zip(edges, given, strict=True):
        if way.normal:
            kept.setdefault(s.residual.domain, []).append(s)
        else:
            total += costs(s, [way])[way]
    return round(total + sum(kept_cost(group, gpu=False) for group in kept.values()))


def _seconds(case: Case, dtype: str, given: list[ResidualSchedule], data: dict[str, object]) -> float:
    session = build(case.energy, dtype, given).start(data, method=case.method, threads=1)
    problem = session._problem
    problem.linearise()
    return min(processor_seconds(problem, Group.PRODUCT, ENOUGH) for _ in range(_REPEAT))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The settings of a run."""
    return parser("bench.schedules", __doc__).parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Measures, and prints a line for each way."""
    settings = parse(arguments)
    for case, size in chosen(settings):
        print(f"{case.name}, {size}², {settings.dtype}: a product with J^T J, for each {case.unit}", flush=True)
        for w in measure(case, size, settings.dtype):
            counted = "" if w.counted is None else f"{w.counted:6d} additions, "
            print(f"  {w.way:32s} {counted}{w.nanoseconds:8.2f} ns{'  (chosen)' if w.is_chosen else ''}", flush=True)


if __name__ == "__main__":
    main()
