"""The tables of a run on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from bench.gpu.beside import Beside
from bench.gpu.kernels import KernelTime
from bench.gpu.overhead import Overhead
from bench.gpu.solves import Solve
from bench.gpu.targets import Target


def kernel_table(rows: Sequence[KernelTime]) -> Table:
    """One line for each routine and size."""
    unit = rows[0].unit
    columns = ("size", "MiB", "µs", f"G{unit}/s", "GB/s", "copy GB/s", "of copy", "of copy of same size")
    table = _table(f"{rows[0].case}, {rows[0].dtype}", ("routine",), (*columns, "launches", "host reads"))
    for row in rows:
        table.add_row(
            row.routine,
            f"{row.size}",
            f"{row.bytes_moved / 2**20:.2f}",
            f"{1e6 * row.seconds:.2f}",
            f"{row.billions_per_second:.3f}",
            f"{1e-9 * row.bandwidth:.0f}",
            f"{1e-9 * row.memory.bandwidth:.0f}",
            f"{row.fraction:.0%}",
            f"{row.fraction_same_size:.0%}",
            f"{row.launches:.2f}",
            f"{row.host_reads:.2f}",
        )
    starts = [row for row in rows if row.routine == "pcg"]
    table.caption = "\n".join(
        f"a linear solve at {row.size}²: {1e6 * row.start_seconds:.1f} µs, {row.start_launches:.0f} launches and "
        f"{row.start_host_reads:.0f} host reads beside its iterations, with what is queued after it"
        for row in starts
    )
    return table


def overhead_table(rows: Sequence[Overhead]) -> Table:
    """One line for each size."""
    columns = ("size", "iteration", "direction", "apply", "update", "the rest", "a solve beside")
    title = f"{rows[0].case}, {rows[0].dtype}: an iteration of conjugate gradients in µs"
    table = _table(title, (), (*columns, "as"))
    for row in rows:
        times = (row.iteration, row.direction, row.apply, row.update, row.overhead, row.start)
        table.add_row(
            f"{row.size}", *(f"{1e6 * t:.2f}" for t in times), "one kernel" if row.cooperative else "launches"
        )
    return table


def beside_table(rows: Sequence[Beside]) -> Table:
    """One line for each peer and size."""
    title = f"{rows[0].case}, {rows[0].dtype}: J^T J p"
    table = _table(title, ("peer",), ("size", "optpy µs", "peer µs", "times faster", "error", "matrix MiB"))
    for row in rows:
        table.add_row(
            escape(row.peer),
            f"{row.size}",
            f"{1e6 * row.optpy_seconds:.2f}",
            "" if row.seconds is None else f"{1e6 * row.seconds:.2f}",
            "" if row.times_faster is None else f"{row.times_faster:.2f}",
            "" if row.error is None else f"{row.error:.1e}",
            f"{row.nbytes / 2**20:.1f}" if row.nbytes else "",
        )
    # A cure such as pip install 'jax[cuda12]' has brackets, which the table would take for a style.
    notes = dict.fromkeys(f"{row.size}², {row.peer}: {row.note}" for row in rows if row.note)
    table.caption = escape("\n".join(notes))
    return table


def solve_table(rows: Sequence[Solve]) -> Table:
    """One line for each solve."""
    numbers = ("size", "seconds", "cost", "nonlinear", "linear", "launches", "host reads", "times faster")
    table = _table(f"{rows[0].case}, {rows[0].dtype}: whole solves", ("device",), numbers)
    for row in rows:
        ours = next(r for r in rows if r.size == row.size and r.device == "cuda, auto")
        counts = (f"{row.launches}", f"{row.host_reads}") if row.device.startswith("cuda") else ("", "")
        faster = "" if row is ours else f"{row.seconds / ours.seconds:.1f}"
        table.add_row(
            row.device,
            f"{row.size}",
            f"{row.seconds:.4f}",
            f"{row.cost:.6g}",
            f"{row.nonlinear}",
            f"{row.linear}",
            *counts,
            faster,
        )
    return table


def target_table(found: Sequence[Target]) -> Table:
    """One line for each target."""
    table = _table("targets", ("target",), ("wanted", "found", "reached"))
    for target in found:
        sign = "≥" if target.at == "least" else "≤"
        reached = {True: "yes", False: "NO", None: "not measured"}[target.reached]
        shown = "" if target.found is None else f"{target.found:.2f} {target.unit}"
        table.add_row(target.what, f"{sign} {target.wanted:g} {target.unit}", shown, reached)
    return table


def _table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(title=title)
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table
