"""Compiled problems bound to data: what a session is made around, without its loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api.backend import Backend
from optpy.api.compiled import CompiledEnergy
from optpy.api.problem import CompiledProblem
from optpy.energy.data.binding import BoundData, bind


def bound_problem(
    solver: op.Solver, values: dict[str, Any], dtype: Any = np.float64, threads: int = 1
) -> CompiledProblem:
    """A problem of the solver's energy at the values."""
    bound = bind(solver.compiled.problem, values, dtype, solver.compiled.choice.xp)
    problem = solver.compiled.instance(bound, threads)
    problem.bind(bound.arrays, bound.params, solver.compiled.connectivity(bound))
    return problem


def record_problems(monkeypatch: pytest.MonkeyPatch) -> list[CompiledProblem]:
    """The problems that sessions bind from now on, in their order."""
    found: list[CompiledProblem] = []
    instance = CompiledEnergy.instance

    def recorded(
        self: CompiledEnergy, bound: BoundData, threads: int, backend: Backend | None = None
    ) -> CompiledProblem:
        found.append(instance(self, bound, threads, backend))
        return found[-1]

    monkeypatch.setattr(CompiledEnergy, "instance", recorded)
    return found
