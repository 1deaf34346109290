"""A problem with a clock on every call."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import final

from optpy.solver.protocol import Cost, Damping, Hidden, LinearLimits, LinearSummary, NonlinearProblem, Rounding, Step
from optpy.solver.safe_point import SafePoint


@final
class Timed:
    """The same problem; `seconds` says how long its calls took, by stage (the fields of `Timing`)."""

    def __init__(self, problem: NonlinearProblem) -> None:
        self._problem = problem
        self.seconds = {"residual": 0.0, "linearise": 0.0, "linear_solve": 0.0}

    @property
    def size(self) -> int:
        return self._problem.size

    @property
    def is_fit(self) -> bool:
        return self._problem.is_fit

    @property
    def reweights(self) -> bool:
        return self._problem.reweights

    @contextmanager
    def _clock(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += time.perf_counter() - started

    def evaluate(self) -> Cost:
        with self._clock("residual"):
            return self._problem.evaluate()

    def linearise(self) -> float:
        with self._clock("linearise"):
            return self._problem.linearise()

    def damp(self, damping: Damping) -> None:
        with self._clock("linearise"):
            self._problem.damp(damping)

    def rounding(self, cost: float) -> Rounding:
        with self._clock("linearise"):
            return self._problem.rounding(cost)

    def curvature(self) -> float:
        with self._clock("linearise"):
            return self._problem.curvature()

    def sensitivities(self) -> Mapping[str, float]:
        with self._clock("linearise"):
            return self._problem.sensitivities()

    def is_stiff(self) -> bool:
        with self._clock("linearise"):
            return self._problem.is_stiff()

    @property
    def hidden_is_exact(self) -> bool:
        return self._problem.hidden_is_exact

    def hidden(self, cost: float, unit: float, safe_point: SafePoint, *, of_rounding: bool) -> Hidden:
        with self._clock("linear_solve"):
            return self._problem.hidden(cost, unit, safe_point, of_rounding=of_rounding)

    def change_by_rounding(self, unit: float) -> Mapping[str, float]:
        with self._clock("residual"):
            return self._problem.change_by_rounding(unit)

    def cosine(self, cost: float) -> float:
        with self._clock("linearise"):
            return self._problem.cosine(cost)

    def solve_linear(self, limits: LinearLimits) -> LinearSummary:
        with self._clock("linear_solve"):
            return self._problem.solve_linear(limits)

    def model_cost_change(self) -> float:
        with self._clock("residual"):
            return self._problem.model_cost_change()

    def promised_change(self) -> float:
        with self._clock("linearise"):
            return self._problem.promised_change()

    def try_step(self) -> Step:
        with self._clock("residual"):
            return self._problem.try_step()

    def accept(self) -> None:
        with self._clock("residual"):
            self._problem.accept()

    def withdraw(self) -> None:
        with self._clock("residual"):
            self._problem.withdraw()

    def save(self) -> None:
        with self._clock("residual"):
            self._problem.save()

    def restore(self) -> None:
        with self._clock("residual"):
            self._problem.restore()
