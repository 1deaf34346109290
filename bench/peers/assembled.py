"""An energy as general solvers want it: a vector of free unknowns, residuals and a sparse Jacobian.

Fixed elements are left out of the vector, so that no peer carries unknowns that cannot move. Of a rotation or a pose
the vector has the step that takes the start there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import optpy as op
from bench.case import Data
from optpy import ir
from optpy.energy.derive.retraction import moved

Vector = NDArray[np.float64]


@final
class AssembledProblem:
    """F(x) and J(x) of an energy in float64; counts the seconds it takes itself.

    Args:
        energy: what is minimised.
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
        self._all = np.concatenate([self._coordinates(u) for u in energy.problem.unknowns])
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
        J = self._energy.jacobian(self._with(x))
        if any(u.manifold is not None for u in self._energy.problem.unknowns):
            J = J @ sparse.block_diag([_chart(u, self._data[u.name], step) for u, step in self._steps(x)])
        J = sparse.csr_matrix(J.tocsc()[:, self._free])
        self.seconds += time.perf_counter() - begin
        return J

    def _with(self, x: Vector) -> Data:
        return self._data | {u.name: self._placed(u, step) for u, step in self._steps(x)}

    def _steps(self, x: Vector) -> Iterator[tuple[ir.Field, Vector]]:
        """The part of each unknown."""
        values, used = self._all.copy(), 0
        values[self._free] = x
        for u in self._energy.problem.unknowns:
            count = self._coordinates(u).size
            yield u, values[used : used + count]
            used += count

    def _coordinates(self, u: ir.Field) -> Vector:
        """Of the start."""
        x = self._data[u.name]
        return x.ravel() if u.manifold is None else np.zeros(x.size // u.channels * u.manifold.dimension)

    def _placed(self, u: ir.Field, coordinates: Vector) -> Vector:
        x = self._data[u.name]
        return coordinates.reshape(x.shape) if u.manifold is None else moved(u, x, coordinates)


def _chart(u: ir.Field, start: Vector, step: Vector) -> Any:
    """How the point `start` [+] step moves with the step, as the energy's Jacobian counts it: in steps from that point.

    Of a vector space the identity. Elsewhere a block K for each element with L K = M, where the columns of M and L are
    the derivatives of `start` [+] step and of the point [+] 0 by each number of the step; central differences.
    """
    if u.manifold is None:
        return sparse.identity(step.size)
    point = moved(u, start, step)
    M, L = _derivatives(u, start, step), _derivatives(u, point, np.zeros_like(step))
    K = np.linalg.solve(L.transpose(0, 2, 1) @ L, L.transpose(0, 2, 1) @ M)
    return sparse.bsr_matrix((K, np.arange(len(K)), np.arange(len(K) + 1)))


def _derivatives(u: ir.Field, x: Vector, step: Vector) -> Vector:
    """Of each element of x [+] step, by the numbers of its step: (elements, channels, dimension)."""
    assert u.manifold is not None
    h, n = 1e-5, u.manifold.dimension
    shifts = [np.tile(h * row, step.size // n) for row in np.eye(n)]
    columns = [(moved(u, x, step + shift) - moved(u, x, step - shift)) / (2 * h) for shift in shifts]
    return np.stack([column.reshape(-1, u.channels) for column in columns], axis=-1)


def _names(energy: op.Energy) -> list[str]:
    return [unknown.name for unknown in energy.unknowns]
