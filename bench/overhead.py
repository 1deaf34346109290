"""The time of a nonlinear iteration beside its kernels, for a fit so small that they take next to none.

`python -m bench.overhead` prints microseconds for each method, precision and preconditioner.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

import optpy as op
from bench.case import Data
from optpy.api.session import Session
from optpy.ir import Group

RESIDUALS = 10
RUNS = 200
REPEAT = 2000
_KERNELS = (Group.PRECOMPUTE, Group.JACOBIAN, Group.GRADIENT, Group.DAMPING, Group.MODEL_COST, Group.STEP, Group.COST)
"""Of an iteration, beside those of its linear solve; those that an energy has."""

N = op.dims("N")
i = op.indices(N)
t, y = op.Array("t", (N,)), op.Array("y", (N,))
a, b, c = op.Unknown("a", ()), op.Unknown("b", ()), op.Unknown("c", ())

energy = op.Energy(fit=a[()] * op.exp(b[()] * t[i]) + c[()] - y[i])


@final
@dataclass(frozen=True, slots=True)
class Overhead:
    """An iteration in the middle of a solve, in seconds."""

    method: str
    dtype: str
    preconditioner: str
    iteration: float
    kernels: float
    """Of it: the same kernels, each repeated in native code; without those of the linear solve."""

    @property
    def overhead(self) -> float:
        """What is not in its kernels."""
        return self.iteration - self.kernels


def data(dtype: str) -> Data:
    """A decay, slightly disturbed, and a start from which it takes some iterations."""
    at = np.linspace(0, 2, RESIDUALS)
    measured = 2.5 * np.exp(-1.3 * at) + 0.5 + 0.05 * np.cos(7 * at)
    return {name: np.asarray(v, dtype) for name, v in dict(t=at, y=measured, a=2.0, b=-0.8, c=0.2).items()}


def measure(method: Literal["gn", "lm"], dtype: str, preconditioner: Literal["jacobi", "auto"]) -> Overhead:
    """The fastest of many runs for each iteration; their median, without the first and the last."""
    solver = op.compile(energy, device="cpu", dtype=dtype)
    inputs = data(dtype)
    times = []
    for _ in range(RUNS):
        session = solver.start(inputs, method=method, preconditioner=preconditioner, threads=1)
        session.run()
        times.append([record.time for record in session.result().iterations[1:]])
    fastest = [min(of_one) for of_one in zip(*times, strict=True)]
    return Overhead(method, dtype, preconditioner, statistics.median(fastest[1:-1]), _kernels(session))


def _kernels(session: Session) -> float:
    """Seconds of an iteration's kernels in native code."""
    groups = session._backend.groups
    return sum(min(session.benchmark(k, REPEAT) for _ in range(5)) for k in _KERNELS if k in groups)


def measure_all() -> Iterator[Overhead]:
    """Each method, precision and preconditioner."""
    for method in ("lm", "gn"):
        for dtype in ("float32", "float64"):
            for preconditioner in ("jacobi", "auto"):
                yield measure(method, dtype, preconditioner)


if __name__ == "__main__":
    for row in measure_all():
        of = f"{row.method} {row.dtype} {row.preconditioner}"
        print(f"{of:20s} {1e6 * row.iteration:7.1f} us, {1e6 * row.kernels:5.1f} us of it in kernels")
