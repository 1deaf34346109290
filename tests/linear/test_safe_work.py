"""Ctrl-C, and time that is up, in conjugate gradients, factorisations, analyses and the set-up of multigrid."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from ctypes import byref
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import optpy as op
from optpy.energy.derive.updates import SOLVER_SCALARS
from optpy.kernels.runtime import executor
from optpy.linear.aggregation.aggregation import Aggregation
from optpy.linear.assembled.native import compiled_solvers
from optpy.linear.cholesky.factorisation import Factorisation
from optpy.linear.safe_work import SafeWork, Stop
from optpy.solver.protocol import LinearLimits, LinearStatus
from optpy.solver.safe_point import OutOfTime, SafePoint
from tests.linear.assembled.test_assembled import prepared, step, uneven, uneven_data
from tests.support.multigrid_cases import bending, values_of

pytestmark = pytest.mark.native

LATE = SafeWork(SafePoint(0.0))


def wide(n: int, seed: int = 0) -> Any:
    """A symmetric pattern whose factor is nearly full."""
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, n, (2, 4 * n))
    A = scipy.sparse.coo_matrix((np.ones(4 * n, bool), (i, j)), (n, n)).tocsr()
    pattern = (A + A.T + scipy.sparse.identity(n, bool)).tocsr()
    pattern.sort_indices()
    return pattern


def factorisation(n: int) -> tuple[Factorisation, Any]:
    """A factor with its memory, and the blocks of a positive definite matrix."""
    pattern = wide(n)
    factor = Factorisation(pattern.indptr.astype(np.int64), pattern.indices.astype(np.int32), 3)
    factor.allocate()
    rows = np.repeat(np.arange(n), np.diff(pattern.indptr))
    values = np.where((rows == pattern.indices)[:, None, None], 100.0 * np.eye(3), -0.5)
    return factor, np.ascontiguousarray(values)


def interrupt_after(seconds: float) -> threading.Timer:
    """Ctrl-C for this process."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


@pytest.mark.parametrize("threads", [1, 2])
def test_control_c_and_time_cut_a_factorisation_short(threads: int) -> None:
    factor, values = factorisation(2500)
    factorise = compiled_solvers(3, "float64", SOLVER_SCALARS).library.optpy_factorise
    ended: list[int] = []

    def work(safe: int) -> None:
        factor.state.safe = safe
        factorise(byref(factor.state), values.ctypes.data, threads)
        ended.append(safe)

    timer = interrupt_after(0.2)
    with pytest.raises(KeyboardInterrupt):
        SafeWork().finish(work)
    timer.join()
    assert len(ended) == 1  # out of the call itself, not of what follows it
    assert SafeWork(SafePoint(time.perf_counter() + 0.1)).run(work) is Stop.LATE
    with pytest.raises(OutOfTime):
        LATE.finish(work)
    assert len(ended) == 3


ANALYSES: dict[str, Callable[[Any], object]] = {
    "factorisation": lambda p: Factorisation(p.indptr.astype(np.int64), p.indices.astype(np.int32), 2, LATE),
    "aggregation": lambda p: Aggregation(p, 2, "float64", LATE),
}


@pytest.mark.parametrize("name", ANALYSES)
def test_an_analysis_ends_when_its_time_is_up(name: str) -> None:
    with pytest.raises(OutOfTime):
        ANALYSES[name](wide(500))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["multigrid", "cholesky", "multigrid of a grid"])
def test_what_is_not_made_in_time_leaves_an_iteration_without_it(
    name: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is that of one iteration with block-Jacobi, or Jacobi; and the next solve has time again."""
    monkeypatch.setattr(executor, "ACCESSES_PER_THREAD", 1)
    grid = name == "multigrid of a grid"
    energy, data = (bending(), values_of(bending(), (9, 11))) if grid else (uneven(), uneven_data(60, 150))
    problem = prepared(energy, data, "multigrid" if grid else name, threads)
    late = problem.solve_linear(LinearLimits(200, r_tolerance=1e-10, safe_point=SafePoint(0.0)))
    assert (late.status, late.iterations) == (LinearStatus.TIME_LIMIT, 1)
    other = prepared(energy, data, "jacobi" if grid else "block_jacobi", threads)
    other.solve_linear(LinearLimits(1))
    np.testing.assert_array_equal(step(problem), step(other))
    again = problem.solve_linear(LinearLimits(200, r_tolerance=1e-10))
    assert again.status is LinearStatus.CONVERGED
    assert problem.preconditioners.endswith(name.removesuffix(" of a grid"))


def test_a_solve_by_levels_that_are_never_made_in_time_ends_by_its_time() -> None:
    energy = bending()
    result = op.solve(energy, values_of(energy, (40, 50)), preconditioner="multigrid", max_time=1e-6, device="cpu")
    assert result.status is op.Status.TIME_LIMIT
    assert result.cost <= result.initial_cost
