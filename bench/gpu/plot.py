"""The plots of a run on a GPU: fractions of the copy bandwidth over sizes, and the peers' times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench.gpu.beside import Beside
from bench.gpu.kernels import KernelTime


def plot_kernels(rows: Sequence[KernelTime], path: Path) -> None:
    """Each routine as a line over the size; dashed, the copy that moves as many bytes."""
    figure, axes = _figure()
    for routine in dict.fromkeys(row.routine for row in rows):
        of_routine = sorted((row for row in rows if row.routine == routine), key=lambda row: row.size)
        sizes = [row.size for row in of_routine]
        (line,) = axes.plot(sizes, [1e-9 * row.bandwidth for row in of_routine], "o-", label=routine)
        same = [1e-9 * row.same_size.bandwidth for row in of_routine]
        axes.plot(sizes, same, "--", color=line.get_color(), label=f"copy of as many bytes as {routine}")
    axes.axhline(1e-9 * rows[0].memory.bandwidth, color="black", lw=1, label="copy, memory")
    axes.set(ylabel="GB/s", ylim=(0, None))
    _finish(figure, axes, sorted({row.size for row in rows}), f"{rows[0].case}, {rows[0].dtype}", path)


def plot_besides(rows: Sequence[Beside], path: Path) -> None:
    """Seconds of J^T J p over the size."""
    figure, axes = _figure()
    ours = {row.size: row.optpy_seconds for row in rows}
    axes.plot(sorted(ours), [ours[size] for size in sorted(ours)], "o-", label="optpy")
    for peer in dict.fromkeys(row.peer for row in rows if row.seconds is not None):
        of_peer = sorted((row.size, row.seconds) for row in rows if row.peer == peer and row.seconds is not None)
        axes.plot([size for size, _ in of_peer], [seconds for _, seconds in of_peer], "o-", label=peer)
    axes.set(ylabel="seconds", yscale="log")
    _finish(figure, axes, sorted(ours), f"{rows[0].case}, {rows[0].dtype}: J^T J p", path)


def _figure() -> tuple[Any, Any]:
    figure = Figure(figsize=(8, 5), layout="constrained")
    return figure, figure.subplots()


def _finish(figure: Any, axes: Any, sizes: Sequence[int], title: str, path: Path) -> None:
    axes.set(xlabel="pixels (of a mesh: vertices) along a side", xscale="log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_title(title)
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
