"""A problem with a clock on every call."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import final

from optpy.solver.protocol import Cost, Damping, Hidden, LinearLimits, LinearSummary, NonlinearProblem, Rounding, Step
from optpy.solver.safe_point import SafePoint


@final
class Clock:
    """Adds up the seconds that its blocks take."""

    __slots__ = ("_started", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._started


@final
class Timed:
    """The same problem; its clocks say how long its calls took, by stage (the fields of `Timing`)."""

    def __init__(self, problem: NonlinearProblem) -> None:
        self._problem = problem
        self.residual = Clock()
        self.linearising = Clock()
        self.linear_solve = Clock()

    @property
    def size(self) -> int:
        return self._problem.size

    @property
    def is_fit(self) -> bool:
        return self._problem.is_fit

    @property
    def reweights(self) -> bool:
        return self._problem.reweights

    def evaluate(self) -> Cost:
        with self.residual:
            return self._problem.evaluate()

    def linearise(self) -> float:
        with self.linearising:
            return self._problem.linearise()

    def damp(self, damping: Damping) -> None:
        with self.linearising:
            self._problem.damp(damping)

    def rounding(self, cost: float) -> Rounding:
        with self.linearising:
            return self._problem.rounding(cost)

    def curvature(self) -> float:
        with self.linearising:
            return self._problem.curvature()

    def sensitivities(self) -> Mapping[str, float]:
        with self.linearising:
            return self._problem.sensitivities()

    def is_stiff(self) -> bool:
        with self.linearising:
            return self._problem.is_stiff()

    @property
    def hidden_is_exact(self) -> bool:
        return self._problem.hidden_is_exact

    def hidden(self, cost: float, unit: float, safe_point: SafePoint, *, of_rounding: bool) -> Hidden:
        with self.linear_solve:
            return self._problem.hidden(cost, unit, safe_point, of_rounding=of_rounding)

    def change_by_rounding(self, unit: float) -> Mapping[str, float]:
        with self.residual:
            return self._problem.change_by_rounding(unit)

    def cosine(self, cost: float) -> float:
        with self.linearising:
            return self._problem.cosine(cost)

    def solve_linear(self, limits: LinearLimits) -> LinearSummary:
        with self.linear_solve:
            return self._problem.solve_linear(limits)

    def model_cost_change(self) -> float:
        with self.residual:
            return self._problem.model_cost_change()

    def promised_change(self) -> float:
        with self.linearising:
            return self._problem.promised_change()

    def try_step(self) -> Step:
        with self.residual:
            return self._problem.try_step()

    def accept(self) -> None:
        with self.residual:
            self._problem.accept()

    def withdraw(self) -> None:
        with self.residual:
            self._problem.withdraw()

    def save(self) -> None:
        with self.residual:
            self._problem.save()

    def restore(self) -> None:
        with self.residual:
            self._problem.restore()
