"""The smallest energy there is: compiling it first also compiles what no energy changes, and warms the compiler."""

from __future__ import annotations

import numpy as np

import optpy as op
from bench.case import Case, Data
from bench.traffic import Traffic

N = op.dims("N")
i = op.indices(N)
X = op.Unknown("X", (N,))

energy = op.Energy(fit=X[i] - 1)


def zeros(size: int) -> Data:
    """The start; the solution is 1 everywhere."""
    return dict(X=np.zeros(size, np.float32))


CASE = Case("trivial", energy, zeros, Traffic(unknown_channels=1, operands=(), damped=False), method="gn")
