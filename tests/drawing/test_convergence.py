"""The course of a solve as a picture."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from optpy.drawing.convergence import convergence_figure
from optpy.solver.iteration import IterationRecord

FIRST = IterationRecord(0, 8.0, math.nan, 4.0, math.nan, math.nan, 10.0, 0, None, False, 0.1, 0.1)
TAKEN = replace(FIRST, iteration=1, cost=2.0, gradient_norm=1.0, step_norm=3.0, linear_iterations=7, accepted=True)
REJECTED = replace(TAKEN, iteration=2, accepted=False, linear_iterations=9, total_time=0.4)


def test_costs_and_gradients_are_drawn_over_iterations_and_seconds() -> None:
    panels: list[Any] = convergence_figure([FIRST, TAKEN, REJECTED], "Converged").axes
    for axes, label, values in ((panels[0], "cost", [8, 2, 2]), (panels[3], "max |gradient|", [4, 1, 1])):
        assert axes.get_ylabel() == label
        assert list(axes.lines[0].get_xdata()) == [0, 1, 2]
        assert list(axes.lines[0].get_ydata()) == values
    assert list(panels[1].lines[0].get_xdata()) == [0.1, 0.1, 0.4]


def test_rejected_steps_are_marked() -> None:
    panels: list[Any] = convergence_figure([FIRST, TAKEN, REJECTED], "").axes
    assert [list(line.get_xdata()) for line in panels[0].lines[1:]] == [[2]]
    taken, rejected = (bar.get_facecolor() for bar in panels[2].patches)
    assert taken != rejected
    assert [bar.get_height() for bar in panels[2].patches] == [7, 9]
    assert len(convergence_figure([FIRST, TAKEN], "").axes[0].lines) == 1


@pytest.mark.parametrize("cost", [0.0, math.inf, math.nan])
def test_what_has_no_logarithm_is_drawn_too(cost: float) -> None:
    ended = replace(TAKEN, cost=cost, tr_radius=math.inf)
    convergence_figure([FIRST, ended], "").savefig("/dev/null", format="png")
    convergence_figure([replace(FIRST, cost=cost)], "").savefig("/dev/null", format="png")
