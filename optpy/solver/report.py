"""The text of a solve: progress lines while it runs, the report afterwards."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optpy.solver.result import IterationRecord, SolveResult

TABLE_HEADER = (
    "iter          cost   cost_change  |gradient|      |step|    tr_ratio   tr_radius  linear   time (s)  total (s)"
)


def table_row(record: IterationRecord) -> str:
    """One line under TABLE_HEADER; a step that was not taken is marked with an x."""
    first = record.iteration == 0
    mark = " " if record.accepted or first else "x"
    return (
        f"{record.iteration:4d} {record.cost:13.6e} {_cell(record.cost_change, 13)} "
        f"{_cell(record.gradient_norm, 11)} {_cell(record.step_norm, 11)} "
        f"{_cell(record.tr_ratio, 11)} {_cell(record.tr_radius, 11)} "
        f"{record.linear_iterations:7d} {record.time:10.3g} {record.total_time:10.3g} {mark}"
    ).rstrip()


def full_report(result: SolveResult, *, table: bool = True) -> str:
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
    linear = (
        "conjugate gradients, "
        + {
            None: "no preconditioner",
            "jacobi": "Jacobi preconditioner",
            "block_jacobi": "block-Jacobi preconditioner",
            "multigrid": "multigrid preconditioner",
            "cholesky": "Cholesky preconditioner",
            "auto": "preconditioner chosen as it goes",
        }[options.preconditioner]
    )
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
        f"  {'bind':<26}{timing.bind:14.4f}",
        f"  {'residual, queueing' if gpu else 'residual':<26}{timing.residual:14.4f}",
        f"  {'linearise, queueing' if gpu else 'linearise':<26}{timing.linearise:14.4f}",
        f"  {'linear solve, all waiting' if gpu else 'linear solve':<26}{timing.linear_solve:14.4f}",
        f"  {'solve in all':<26}{timing.total:14.4f}",
    ]


def _cell(value: float, width: int) -> str:
    """A number, or a dash where there is none (no candidate, no trust region)."""
    if math.isnan(value):
        return f"{'-':>{width}}"
    return f"{value:{width}.{6 if width > 11 else 3}e}"
