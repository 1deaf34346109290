"""Generated routines against the dense Jacobian, on random energies at many sizes."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray

import optpy as op
from optpy import ir
from optpy.energy.evaluation import solved_elements
from optpy.energy.binding import bind
from optpy.energy.vectors import block_channel, block_channels, vector
from optpy.kernels import library
from optpy.kernels.compiler import compile_c
from optpy.problem import CompiledProblem
from optpy.solver.protocol import Damping
from tests.random_energies import RandomEnergy, random_energies

Real = NDArray[np.float64]

SIZES = [(1, 1, 1), (1, 4, 2), (3, 1, 5), (5, 3, 4), (2, 7, 3)]
"""Also smaller than the stencils, which reach 3 to each side."""
LONG = [(70, 2, 3), (2, 70, 3), (2, 3, 70)]
"""A row longer than the chunks that are skipped where everything is fixed."""


@pytest.fixture(autouse=True)
def _no_task_is_too_small_for_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_POINTS_PER_THREAD", 1)


class Operators:
    """The routines of an energy at some data, as functions on stacked vectors."""

    def __init__(self, energy: op.Energy, data: dict[str, Any], dtype: Any = np.float64, threads: int = 1) -> None:
        solver = op.compile(energy, "cpu", dtype)
        bound = bind(energy, data, dtype)
        self.energy, self.bound = energy, bound
        self.unknowns = energy.unknown_fields
        self.problem = CompiledProblem(
            solver._program, solver._compiled.library, energy.residual_terms, self.unknowns, bound.sizes, threads
        )
        self.problem.bind(bound.arrays, bound.params)

    def stack(self, kind: str) -> Real:
        """One of the solver's vectors, over all unknowns."""
        return np.concatenate([self.problem.read_vector(kind, u).ravel() for u in self.unknowns]).astype(np.float64)

    def put(self, kind: str, value: Real) -> None:
        start = 0
        for u in self.unknowns:
            f = vector(kind, u)
            n = self.problem._buffers.read(f).size
            self.problem._buffers.write(f, value[start : start + n])
            start += n

    def blocks(self) -> dict[ir.Field, Real]:
        """Each unknown's blocks of J^T J as linearise left them: (elements, channels, channels)."""
        found = {}
        for u in self.unknowns:
            packed = self.problem._buffers.read(vector("C", u, block_channels(u)))
            n = range(u.channels)
            full = [[packed[..., block_channel(u, a, b)].ravel() for b in n] for a in n]
            found[u] = np.moveaxis(np.array(full, np.float64), -1, 0)
        return found

    def apply(self, p: Real, damped: bool = False) -> tuple[Real, float]:
        """(J^T J + D) p and p.Ap."""
        self.put("p", p)
        total = self.problem._bound.run("applyJTJ_damped" if damped else "applyJTJ")["pAp"]
        return self.stack("Ap"), total

    def model_cost_change(self, delta: Real) -> float:
        self.put("delta", delta)
        return self.problem.model_cost_change()

    def solved(self) -> NDArray[np.bool_]:
        """Which entries of the stacked unknowns are solved for."""
        parts = [np.repeat(solved_elements(self.energy, u, self.bound).ravel(), u.channels) for u in self.unknowns]
        return np.concatenate(parts)


def dense(energy: op.Energy, data: dict[str, Any]) -> tuple[Real, Real]:
    """F and J by the interpreter."""
    F = np.concatenate([r.ravel() for r in energy.residuals(data).values()])
    return F, energy.jacobian(data).toarray()


def close(actual: Any, expected: Any, scale: float, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * (1 + scale))


def check_everything(energy: op.Energy, data: dict[str, Any], dtype: Any = np.float64, tolerance: float = 1e-10) -> None:
    """Every routine against F and J."""
    F, J = dense(energy, data)
    ops = Operators(energy, data, dtype, threads=2)
    rng = np.random.default_rng(0)
    JtJ, g = J.T @ J, J.T @ F
    scale = float(np.abs(JtJ).sum() + np.abs(J.T) @ np.abs(F) @ np.ones(1) if False else np.abs(JtJ).sum())
    _check_residuals(ops, energy, data, F, tolerance)
    _check_gradient(ops, J, F, tolerance)
    _check_blocks(ops, JtJ, tolerance)
    solved = ops.solved()
    assert not J[:, ~solved].any()
    for damping in (math.inf, 3.0):
        ops.problem.set_preconditioner("jacobi")
        ops.problem.linearise()
        ops.problem.damp(Damping(damping, 1e-6, 1e32, True))
        D = Damping(damping, 1e-6, 1e32, True).diagonal(np.diag(JtJ)) * solved
        p, u = rng.standard_normal((2, len(g))) * solved
        Ap, pAp = ops.apply(p, damped=damping < math.inf)
        Au, _ = ops.apply(u, damped=damping < math.inf)
        close(Ap, JtJ @ p + D * p, scale, tolerance)
        close(pAp, p @ Ap, scale * len(g), tolerance)
        close(u @ Ap, p @ Au, scale * len(g), tolerance)
        assert pAp >= -tolerance * (1 + scale)
    delta = rng.standard_normal(len(g)) * solved
    predicted = 0.5 * F @ F - 0.5 * np.sum((F + J @ delta) ** 2)
    close(ops.model_cost_change(delta), predicted, scale + F @ F, 10 * tolerance)


def _check_residuals(ops: Operators, energy: op.Energy, data: dict[str, Any], F: Real, tolerance: float) -> None:
    got = ops.problem.residuals()
    assert list(got) == [r.label for r in energy.residual_terms]
    close(np.concatenate([r.ravel() for r in got.values()]), F, float(np.abs(F).max()), tolerance)
    cost = ops.problem.evaluate()
    close(cost.total, 0.5 * F @ F, F @ F, tolerance)
    residuals = energy.residuals(data)
    for term in energy.terms:
        own = [residuals[r.label] for r in energy.residual_terms if r.term == term]
        close(cost.by_term[term], sum(0.5 * np.sum(r**2) for r in own), F @ F, tolerance)


def _check_gradient(ops: Operators, J: Real, F: Real, tolerance: float) -> None:
    scale = float((np.abs(J).T @ np.abs(F)).max() + (J**2).sum(axis=0).max())
    for preconditioner in ("jacobi", "block_jacobi"):
        ops.problem.set_preconditioner(preconditioner)
        largest = ops.problem.linearise()
        g = J.T @ F
        close(ops.stack("g"), g, scale, tolerance)
        close(largest, np.abs(g).max(), scale, tolerance)
        if preconditioner == "jacobi":
            close(ops.stack("C"), (J**2).sum(axis=0), scale, tolerance)


def _check_blocks(ops: Operators, JtJ: Real, tolerance: float) -> None:
    ops.problem.set_preconditioner("block_jacobi")
    ops.problem.linearise()
    has_blocks = ops.problem._blocks
    start = 0
    for u in ops.unknowns:
        n = math.prod(ops.bound.sizes[d] for d in u.dims)
        own = JtJ[start : start + n * u.channels, start : start + n * u.channels].reshape(n, u.channels, n, u.channels)
        expected = own[np.arange(n), :, np.arange(n)]
        start += n * u.channels
        if has_blocks:
            close(ops.blocks()[u], expected, float(np.abs(JtJ).max()), tolerance)
        else:
            off_diagonal = expected * (1 - np.eye(u.channels))
            assert not off_diagonal.any()


def state(ops: Operators) -> list[Any]:
    """Everything that the routines compute, to be compared bit by bit."""
    cost = ops.problem.evaluate()
    largest = ops.problem.linearise()
    ops.problem.damp(Damping(3.0, 1e-6, 1e32, True))
    Ap, pAp = ops.apply(ops.stack("g"), damped=True)
    step = ops.problem.try_step()
    return [cost, largest, ops.stack("g"), ops.stack("C"), Ap, pAp, ops.model_cost_change(ops.stack("g")), step]


EXAMPLES = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@settings(EXAMPLES, max_examples=200)
@given(random_energies())
def test_the_jacobian_is_the_differences_of_the_residuals(random: RandomEnergy) -> None:
    if not random.smooth:
        return
    data = random.data(random.sizes(3, 2, 4))
    J = random.energy.jacobian(data).toarray()
    solved = Operators.solved
    h = 1e-6
    column = 0
    for u in random.energy.unknown_fields:
        fixed = ~np.repeat(
            solved_elements(random.energy, u, bind(random.energy, data)).ravel(), u.channels
        )
        for n in range(data[u.name].size):
            sides = []
            for sign in (1, -1):
                moved = data[u.name].copy()
                moved.ravel()[n] += sign * h
                sides.append(np.concatenate([r.ravel() for r in random.energy.residuals(data | {u.name: moved}).values()]))
            expected = np.zeros(len(J)) if fixed[n] else (sides[0] - sides[1]) / (2 * h)
            np.testing.assert_allclose(J[:, column], expected, rtol=1e-5, atol=1e-6)
            column += 1


@settings(EXAMPLES, max_examples=25)
@given(random_energies())
def test_every_routine_agrees_with_the_dense_jacobian(random: RandomEnergy) -> None:
    for cycle in (*SIZES, LONG[random.seed % 3]):
        check_everything(random.energy, random.data(random.sizes(*cycle)))
