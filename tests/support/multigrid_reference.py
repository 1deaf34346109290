"""A V-cycle in NumPy on the assembled matrix, and problems to compare with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import optpy as op
from optpy.api.problem import CompiledProblem
from optpy.ir import VectorKind
from optpy.linear.multigrid.record import PATIENCE
from optpy.solver.pcg import FloatArray, PCGScalars, pcg
from optpy.solver.protocol import Damping, LinearLimits, LinearStatus, LinearSummary
from tests.support.multigrid_cases import bending, chain, poisson, quads, volume

Real = NDArray[np.float64]

DAMPED = Damping(10.0, 1e-6, 1e32, jacobi_scaling=True)
UNDAMPED = Damping(math.inf, 1e-6, 1e32, jacobi_scaling=True)

DAMPINGS = {"damped": DAMPED, "undamped": UNDAMPED}
CASES = {
    "chain 300": (chain, (300,)),
    "chain 7": (chain, (7,)),
    "bending 11x14": (bending, (11, 14)),
    "bending 1x64": (bending, (1, 64)),
    "bending 40x2": (bending, (40, 2)),
    "quads 11x14": (quads, (11, 14)),
    "quads 40x5": (quads, (40, 5)),
    "volume 6x5x8": (volume, (6, 5, 8)),
    "volume 1x30x2": (volume, (1, 30, 2)),
}


def each_damping_of_half() -> list[Any]:
    """Cases with dampings, as parameters: one of both in each run, in turns; both where most is coupled."""
    made = []
    for number, case in enumerate(CASES):
        for turn, (name, damping) in enumerate(DAMPINGS.items()):
            deep = [pytest.mark.deep] if number % 2 != turn and case != "bending 11x14" else []
            optimised = [pytest.mark.optimised] if "bending" in case else []
            made.append(pytest.param(case, damping, id=f"{case}-{name}", marks=deep + optimised))
    return made


def interpolation(n: int) -> Real:
    """(n, n // 2 + 1): linear, from every other point; the identity for n <= 2."""
    if n <= 2:
        return np.eye(n)
    P = np.zeros((n, n // 2 + 1))
    for i in range(n):
        P[i, i // 2] += 0.5
        P[i, (i + 1) // 2] += 0.5
    return P


class ReferenceCycle:
    """A and a V-cycle for it, dense, with the damping factors that the native code found."""

    def __init__(self, A: Real, sizes: tuple[int, ...], channels: int, finest_omega: float, omegas: list[float]):
        self.levels: list[tuple[Any, Any, float]] = [(A, _diagonal_inverse(A, 1), finest_omega)]
        self.P: list[Any] = []
        free = np.diag(A) != 0
        for omega in omegas:
            P: Any = np.eye(1)
            for n in sizes:
                P = np.kron(P, interpolation(n))
            P = np.kron(P, np.eye(channels))
            if not self.P:
                P *= free[:, None]
            A = P.T @ A @ P
            self.P.append(P)
            self.levels.append((A, _diagonal_inverse(A, channels), omega))
            sizes = tuple(n // 2 + 1 if n > 2 else n for n in sizes)

    def apply(self, p: FloatArray) -> FloatArray:
        return np.asarray(self.levels[0][0] @ p)

    def precondition(self, r: FloatArray) -> FloatArray:
        return self._cycle(0, r)

    def _cycle(self, level: int, b: FloatArray) -> FloatArray:
        A, inverse, omega = self.levels[level]
        if level == len(self.levels) - 1:
            return np.asarray(np.linalg.lstsq(A, b, rcond=1e-10)[0])
        x = omega * (inverse @ b)
        x = x + self.P[level] @ self._cycle(level + 1, self.P[level].T @ (b - A @ x))
        return np.asarray(x + omega * (inverse @ (b - A @ x)))


def _diagonal_inverse(A: Real, block: int) -> Real:
    inverse = np.zeros_like(A)
    for at in range(0, len(A), block):
        here = slice(at, at + block)
        inverse[here, here] = np.linalg.pinv(A[here, here], hermitian=True, rcond=1e-9)
    return inverse


def interleaved(energy: op.Energy, sizes: tuple[int, ...]) -> NDArray[np.intp]:
    """The columns of the Jacobian, point by point."""
    points, start, columns = math.prod(sizes), 0, []
    for u in energy.problem.unknowns:
        columns.append(start + np.arange(points * u.channels).reshape(points, u.channels))
        start += points * u.channels
    return np.concatenate(columns, axis=1).ravel()


def assert_same_solve(
    energy: op.Energy,
    values: dict[str, Any],
    damping: Damping,
    limits: LinearLimits,
    omegas: list[float],
    ours: tuple[LinearSummary, list[PCGScalars], Real],
) -> None:
    """Conjugate gradients with the cycle are those that were run, iteration by iteration.

    Args:
        energy, values, damping, limits: what was solved.
        omegas: the damping factors that the code under test has found, of the finest level first.
        ours: what it has come to: the summary, the trace, and delta, unknown after unknown.
    """
    sizes = values[energy.problem.unknowns[0].name].shape[: len(energy.problem.unknowns[0].dims)]
    order = interleaved(energy, sizes)
    F = np.concatenate([r.ravel() for r in energy.residuals(values).values()])
    J = energy.jacobian(values).toarray()[:, order]
    c = (J**2).sum(axis=0)
    A = J.T @ J + np.diag(np.where(c > 0, damping.diagonal(c), 0))
    cycle = ReferenceCycle(A, sizes, len(order) // math.prod(sizes), omegas[0], omegas[1:])
    scaled = np.sqrt(np.diag(cycle.levels[0][1]))
    assert omegas[0] * np.linalg.eigvalsh(scaled[:, None] * A * scaled).max() < 2  # else M is not positive
    trace: list[Any] = []
    summary, found, delta = ours
    expected, theirs = pcg(cycle, -(J.T @ F), limits, trace)
    assert (summary.iterations, summary.status) == (theirs.iterations, theirs.status)
    for name in ("rho", "pAp", "Q"):
        a, b = ([getattr(s, name) for s in t] for t in (found, trace))
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-13 * max(map(abs, b)), err_msg=name)
    np.testing.assert_allclose(delta[order], expected, atol=1e-8 * np.abs(expected).max())


def check_take_over(
    compiled: Callable[[op.Energy, dict[str, Any]], CompiledProblem], to_host: Callable[[Any], NDArray[Any]]
) -> None:
    """Where Jacobi has no patience left, multigrid goes on with the same solve, whose model falls throughout."""
    energy, data = poisson(60)
    problem = compiled(energy, data)
    problem.set_preconditioner("auto")
    problem.trace = []
    problem.linearise()
    problem.damp(UNDAMPED)
    summary = problem.solve_linear(LinearLimits(500, r_tolerance=1e-10))
    assert summary.status is LinearStatus.CONVERGED
    assert PATIENCE < summary.iterations < PATIENCE + 25
    assert [s.k for s in problem.trace] == list(range(1, summary.iterations + 1))
    Q = [s.Q for s in problem.trace]
    assert all(b <= a for a, b in pairwise(Q))
    delta = to_host(problem.read_vector(VectorKind.DELTA, energy.problem.unknowns[0]))
    np.testing.assert_allclose(data["X"] + delta[..., 0], data["B"], atol=1e-6)
