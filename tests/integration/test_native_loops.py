"""The native conjugate gradients and the whole solve, held to the NumPy reference, iteration by iteration."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import optpy as op
import optpy.api.problem
from optpy.api.session import Session
from optpy.energy.check.evaluation import solved_elements
from optpy.energy.data.binding import bind
from optpy.solver.minimizer import Minimizer
from optpy.solver.options import SolveOptions
from optpy.solver.protocol import Damping, LinearLimits, LinearStatus
from optpy.solver.reference import ReferenceProblem, ReferenceTerm
from tests.support.bound_problem import bound_problem
from tests.support.warping import arap_data, arap_energy

pytestmark = [pytest.mark.native, pytest.mark.optimised]

ARAP = arap_energy()


def coupled_energy() -> op.Energy:
    """Channels that depend on one another, so that blocks are not diagonal; two unknowns on two grids."""
    H, W = op.dims("H W")
    i, j = op.indices(H, W)
    X, G = op.Unknown("X", (H, W), 3), op.Unknown("G", (W,))
    A = op.Array("A", (H, W), 3)
    x = X[i, j]
    return op.Energy(
        fit=x + 0.5 * op.cross(A[i, j], x) - G[j] * A[i, j],
        smooth=[0.7 * (x - X[i + 1, j]), 0.7 * (x - X[i, j + 1])],
        bend=op.sin(x[0]) * x[1] + G[j],
    )


def coupled_data(height: int, width: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return dict(X=rng.normal(size=(height, width, 3)), G=rng.normal(size=width), A=rng.normal(size=(height, width, 3)))


class Reference:
    """The energy as one big dense problem."""

    def __init__(self, energy: op.Energy, data: dict[str, Any], preconditioner: Any) -> None:
        self.energy, self.data = energy, data
        self.unknowns = [u.field for u in energy.unknowns]
        shapes = [np.shape(data[u.name]) for u in self.unknowns]
        self.sizes = [int(np.prod(s)) for s in shapes]
        self.shapes = shapes
        x = np.concatenate([np.ravel(data[u.name]) for u in self.unknowns])
        blocks = self._blocks() if preconditioner == "block_jacobi" else None
        self.problem = ReferenceProblem(
            {"all": ReferenceTerm(self._residual, self._jacobian)}, x, preconditioner=preconditioner, blocks=blocks
        )

    def _blocks(self) -> list[NDArray[np.intp]]:
        found, start = [], 0
        for u, size in zip(self.unknowns, self.sizes, strict=True):
            found += [np.arange(n, n + u.channels) for n in range(start, start + size, u.channels)]
            start += size
        return found

    def at(self, x: NDArray[np.float64]) -> dict[str, Any]:
        parts = np.split(x, np.cumsum(self.sizes)[:-1])
        return self.data | {u.name: p.reshape(s) for u, p, s in zip(self.unknowns, parts, self.shapes, strict=True)}

    def _residual(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([np.ravel(r) for r in self.energy.residuals(self.at(x)).values()])

    def _jacobian(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        J: NDArray[np.float64] = self.energy.jacobian(self.at(x)).toarray()
        return J


def started(energy: op.Energy, data: dict[str, Any], **options: Any) -> Session:
    return op.compile(energy, device="cpu", dtype=np.float64).start(data, **options)


def solved(energy: op.Energy, data: dict[str, Any]) -> NDArray[np.bool_]:
    """Which numbers of the stacked unknowns are not fixed."""
    bound = bind(energy.problem, data, np.float64)
    parts = [np.repeat(solved_elements(energy.problem, u, bound).ravel(), u.channels) for u in energy.problem.unknowns]
    return np.concatenate(parts)


CASES = [
    pytest.param(ARAP, arap_data(7, 9), id="arap"),
    pytest.param(coupled_energy(), coupled_data(5, 6), id="coupled"),
]
PRECONDITIONERS = [None, "jacobi", "block_jacobi"]


@pytest.mark.parametrize(("energy", "data"), CASES)
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
@pytest.mark.parametrize("radius", [10.0, float("inf")])
@pytest.mark.parametrize("period", [0, 3])
def test_conjugate_gradients_take_the_steps_of_the_reference(
    energy: op.Energy, data: dict[str, Any], preconditioner: Any, radius: float, period: int
) -> None:
    problem = bound_problem(op.compile(energy, "cpu", np.float64), data)
    problem.set_preconditioner(preconditioner)
    reference = Reference(energy, data, preconditioner).problem
    problem.trace = []
    limits = LinearLimits(max_iterations=12, residual_reset_period=period)
    for p in (problem, reference):
        p.linearise()
        p.damp(Damping(radius, 1e-6, 1e32, jacobi_scaling=True))
    ours, theirs = problem.solve_linear(limits), reference.solve_linear(limits)
    assert (ours.status, ours.iterations) == (theirs.status, theirs.iterations) == (LinearStatus.MAX_ITERATIONS, 12)
    for a, b in zip(problem.trace, reference.trace, strict=True):
        np.testing.assert_allclose(dataclasses.astuple(a), dataclasses.astuple(b), rtol=1e-6)
    assert problem.model_cost_change() == pytest.approx(reference.model_cost_change(), rel=1e-9)
    step, expected = problem.try_step(), reference.try_step()
    assert step.cost.total == pytest.approx(expected.cost.total, rel=1e-9)
    assert step.step_norm == pytest.approx(expected.step_norm, rel=1e-8)
    assert step.x_norm == pytest.approx(np.linalg.norm(reference.x[solved(energy, data)]), rel=1e-12)


@pytest.mark.parametrize(("energy", "data"), CASES)
@pytest.mark.parametrize("method", ["lm", "gn"])
def test_a_whole_solve_takes_the_path_of_the_reference(energy: op.Energy, data: dict[str, Any], method: Any) -> None:
    options = SolveOptions(method=method, max_iterations=6, eta=1e-8, preconditioner="jacobi")
    session = started(energy, data, method=method, max_iterations=6, eta=1e-8, preconditioner="jacobi")
    session.run()
    result = session.result()
    reference = Reference(energy, data, "jacobi")
    expected = Minimizer(reference.problem, options, precision=float(np.finfo(np.float64).eps)).run()
    assert [r.accepted for r in result.iterations] == [r.accepted for r in expected.iterations]
    np.testing.assert_allclose(
        [r.cost for r in result.iterations], [r.cost for r in expected.iterations], rtol=1e-5, atol=1e-12
    )
    assert result.status is expected.status


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_do_not_depend_on_the_number_of_threads(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optpy.kernels.runtime.executor.ACCESSES_PER_THREAD", 1)
    solver = op.compile(ARAP, device="cpu", dtype=dtype)
    data = arap_data(70, 90)
    first, *others = (solver.solve(data, max_iterations=4, threads=n) for n in (1, 2, 3, 5))
    for other in others:
        assert [r.cost for r in other.iterations] == [r.cost for r in first.iterations]
        for name, value in first.x.items():
            np.testing.assert_array_equal(value, other.x[name])
