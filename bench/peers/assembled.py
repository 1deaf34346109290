"""An energy as general solvers want it: a vector of free unknowns, residuals and a sparse Jacobian.

Fixed elements are left out of the vector, so that no peer carries unknowns that cannot move.
"""

from __future__ import annotations

import time
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import optpy as op
from bench.case import Data

Vector = NDArray[np.float64]


@final
class AssembledProblem:
    """F(x) and J(x) of an energy in float64; counts the seconds it takes itself.

    Args:
        energy: of any unknowns.
        data: its unknowns are the start.
    """

    def __init__(self, energy: op.Energy, data: Data) -> None:
        self._energy = energy
        self._data = {name: np.array(value, np.float64) if name in _names(energy) else value
                      for name, value in data.items()}  # fmt: skip
        self.seconds = 0.0
        begin = time.perf_counter()
        pattern = energy.jacobian(self._data).tocsc()
        self._free = np.flatnonzero(np.diff(pattern.indptr))
        self._all = np.concatenate([self._data[name].ravel() for name in _names(energy)])
        self.seconds += time.perf_counter() - begin

    @property
    def start(self) -> Vector:
        """The free unknowns in the data, (N,)."""
        return self._all[self._free].copy()

    def residuals(self, x: Vector) -> Vector:
        """F(x), (M,)."""
        begin = time.perf_counter()
        blocks = self._energy.residuals(self._with(x))
        F = np.concatenate([np.ravel(block) for block in blocks.values()])
        self.seconds += time.perf_counter() - begin
        return F

    def jacobian(self, x: Vector) -> Any:
        """J(x), (M, N), a CSR matrix."""
        begin = time.perf_counter()
        J = sparse.csr_matrix(self._energy.jacobian(self._with(x)).tocsc()[:, self._free])
        self.seconds += time.perf_counter() - begin
        return J

    def _with(self, x: Vector) -> Data:
        values = self._all.copy()
        values[self._free] = x
        data, used = dict(self._data), 0
        for name in _names(self._energy):
            shape = self._data[name].shape
            count = int(np.prod(shape))
            data[name] = values[used : used + count].reshape(shape)
            used += count
        return data


def _names(energy: op.Energy) -> list[str]:
    return [unknown.name for unknown in energy.unknowns]
