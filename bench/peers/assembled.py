"""An energy as general solvers want it: a vector of free unknowns, residuals and a sparse Jacobian.

Fixed elements are left out of the vector, so that no peer carries unknowns that cannot move. Of poses in the plane, the
vector has how far they have turned and shifted since the start.
"""

from __future__ import annotations

import time
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import optpy as op
from bench.case import Data
from bench.peers import PeerMissingError
from optpy import ir
from optpy.energy.tangent import moved

Vector = NDArray[np.float64]


@final
class AssembledProblem:
    """F(x) and J(x) of an energy in float64; counts the seconds it takes itself.

    Args:
        energy: its unknowns are in vector spaces, op.SO2 or op.SE2.
        data: its unknowns are the start.

    Raises:
        PeerMissingError: the unknowns are elsewhere, where no single vector describes them.
    """

    def __init__(self, energy: op.Energy, data: Data) -> None:
        for u in energy.unknown_fields:
            if u.manifold is not None and u.manifold.name not in ("SO2", "SE2"):
                raise PeerMissingError(f"a vector solver cannot take {u.manifold} {u.name!r}")
        self._energy = energy
        self._data = {name: np.array(value, np.float64) if name in _names(energy) else value
                      for name, value in data.items()}  # fmt: skip
        self.seconds = 0.0
        begin = time.perf_counter()
        pattern = energy.jacobian(self._data).tocsc()
        self._free = np.flatnonzero(np.diff(pattern.indptr))
        self._all = np.concatenate([self._coordinates(u) for u in energy.unknown_fields])
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
        for u in self._energy.unknown_fields:
            count = self._coordinates(u).size
            data[u.name] = self._placed(u, values[used : used + count])
            used += count
        return data

    def _coordinates(self, u: ir.Field) -> Vector:
        """Of the start."""
        x = self._data[u.name]
        return x.ravel() if u.manifold is None else np.zeros(x.size // u.channels * u.manifold.dimension)

    def _placed(self, u: ir.Field, coordinates: Vector) -> Vector:
        x = self._data[u.name]
        return coordinates.reshape(x.shape) if u.manifold is None else moved(u, x, coordinates)


def _names(energy: op.Energy) -> list[str]:
    return [unknown.name for unknown in energy.unknowns]
