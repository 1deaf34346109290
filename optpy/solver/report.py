"""Lines of a table of iterations: shown while a solve runs, and in its report."""

from __future__ import annotations

import math

from optpy.solver.iteration import IterationRecord

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


def _cell(value: float, width: int) -> str:
    """A number, or a dash where there is none (no candidate, no trust region)."""
    if math.isnan(value):
        return f"{'-':>{width}}"
    return f"{value:{width}.{6 if width > 11 else 3}e}"
