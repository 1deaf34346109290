"""The course of a solve as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optpy.drawing.figures import new_figure
from optpy.solver.iteration import IterationRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def convergence_figure(records: Sequence[IterationRecord], title: str) -> Figure:
    """Cost and gradient over iterations and over seconds, and the linear iterations of each step.

    Steps that were rejected are marked by a cross, at the cost that was kept.

    Args:
        records: of all iterations, the starting point first.
        title: over the picture.

    Raises:
        OptpyError: Matplotlib is not installed.
    """
    figure = new_figure(11, 6.5)
    figure.suptitle(title, fontsize="medium")
    panels: Any = figure.subplots(2, 3, gridspec_kw={"width_ratios": (1, 1, 0.8)})
    over: dict[str, Sequence[float]] = {
        "iteration": [r.iteration for r in records],
        "seconds": [r.total_time for r in records],
    }
    shown = {"cost": [r.cost for r in records], "max |gradient|": [r.gradient_norm for r in records]}
    for row, (what, values) in zip(panels, shown.items(), strict=True):
        for axes, (unit, at) in zip(row, over.items(), strict=False):
            axes.plot(at, values, ".-", color="C0")
            _mark_rejected(axes, records, at, values)
            axes.set(xlabel=unit, ylabel=what, yscale=_scale(values))
            axes.grid(alpha=0.3)
    _linear_iterations(panels[0, 2], records)
    _trust_region(panels[1, 2], records)
    return figure


def _mark_rejected(axes: Any, records: Sequence[IterationRecord], at: Sequence[float], values: Sequence[float]) -> None:
    rejected = [n for n, r in enumerate(records) if n and not r.accepted]
    if rejected:
        axes.plot([at[n] for n in rejected], [values[n] for n in rejected], "x", color="C3", label="step rejected")
        axes.legend()


def _scale(values: Sequence[float]) -> str:
    """Logarithmic where all is above 0: a cost that has fallen to 0, and what is not finite, have no logarithm."""
    return "log" if all(v > 0 for v in values) else "linear"


def _linear_iterations(axes: Any, records: Sequence[IterationRecord]) -> None:
    steps = records[1:]
    colours = ["C0" if r.accepted else "C3" for r in steps]
    axes.bar([r.iteration for r in steps], [r.linear_iterations for r in steps], color=colours)
    axes.set(xlabel="iteration", ylabel="linear iterations")


def _trust_region(axes: Any, records: Sequence[IterationRecord]) -> None:
    radii = [r.tr_radius for r in records]
    axes.plot([r.iteration for r in records], [r.step_norm for r in records], ".-", label="|step|")
    if all(0 < radius < float("inf") for radius in radii):
        axes.plot([r.iteration for r in records], radii, ".-", label="trust region")
    lengths = [r.step_norm for r in records[1:]]
    axes.set(xlabel="iteration", yscale=_scale(lengths) if lengths else "linear")
    axes.legend()
    axes.grid(alpha=0.3)
