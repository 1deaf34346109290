"""The plots of a run: fractions of the copy bandwidth over sizes, and costs over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench.ablation import Row
from bench.case import Case
from bench.race import Race
from bench.throughput import Throughput


def plot_throughput(rows: Sequence[Throughput], path: Path) -> None:
    """Each routine as a line over the picture's size; dashed, the copy that moves as many bytes."""
    figure, axes = _figure()
    for routine in dict.fromkeys(row.routine for row in rows):
        of_routine = sorted((row for row in rows if row.routine == routine), key=lambda row: row.size)
        sizes = [row.size for row in of_routine]
        (line,) = axes.plot(sizes, [1e-9 * row.bandwidth for row in of_routine], "o-", label=routine)
        same = [1e-9 * row.same_size.bandwidth for row in of_routine]
        axes.plot(sizes, same, "--", color=line.get_color(), label=f"copy of as many bytes as {routine}")
    axes.axhline(1e-9 * rows[0].memory.bandwidth, color="black", lw=1, label="copy, memory")
    axes.set(xlabel="pixels (of a mesh: vertices) along a side", ylabel="GB/s", xscale="log", ylim=(0, None))
    sizes = sorted({row.size for row in rows})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_title(f"{rows[0].case}, {rows[0].dtype}, {rows[0].threads} threads")
    _save(figure, axes, path)


def plot_race(race: Race, path: Path) -> None:
    """Cost over time of every contender."""
    figure, axes = _figure()
    for curve in race.curves:
        seconds = [point.seconds for point in curve.points]
        axes.step(seconds, [point.cost for point in curve.points], where="post", marker=".", label=curve.name)
    axes.set(xlabel="seconds", ylabel="cost", xscale="log", yscale="log")
    axes.set_title(f"{race.case}, {race.problem}")
    _save(figure, axes, path)


def plot_ablation(case: Case, rows: Sequence[Row], path: Path) -> None:
    """How many times faster each optimisation makes J^T F and J^T J p, with all those before it."""
    figure, axes = _figure()
    names = [row.optimisation for row in reversed(rows)]
    for shift, (name, times) in zip(
        (0.2, -0.2),
        {"J^T F": [row.gradient for row in rows], "J^T J p": [row.product for row in rows]}.items(),
        strict=True,
    ):
        faster = [times[0] / t for t in reversed(times)]
        axes.barh([n + shift for n in range(len(names))], faster, 0.4, label=name)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="times faster than with nothing")
    axes.set_title(case.name)
    _save(figure, axes, path)


def _figure() -> tuple[Any, Any]:
    figure = Figure(figsize=(8, 5), layout="constrained")
    return figure, figure.subplots()


def _save(figure: Any, axes: Any, path: Path) -> None:
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
