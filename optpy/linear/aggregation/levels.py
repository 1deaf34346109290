"""The algebraic multigrid of one problem: smoothed aggregation on its assembled matrix."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.energy.derive.vectors import vector
from optpy.ir import Field, Preconditioning, VectorKind
from optpy.linear.aggregation.aggregation import Aggregation
from optpy.linear.assembled.assembly import Assembly
from optpy.linear.assembled.matrix import AssembledSolve
from optpy.linear.assembled.native import matrix_solvers
from optpy.linear.pcg.native import address, pcg_kernels
from optpy.linear.pcg.state import PcgKernels
from optpy.linear.safe_work import SafeWork

_AXES: Mapping[int, tuple[tuple[int, int], ...]] = {2: ((0, 1),), 3: ((1, 2), (2, 0), (0, 1))}
"""The planes of infinitesimal rotations of points with so many coordinates."""
_NO_COORDINATES = range(0)


@final
class AlgebraicMultigrid:
    """Smoothed aggregation on the assembled matrix (see ``Aggregation``).

    Attributes:
        turning: the channels of the unknown whose rotations are candidates; empty where none are, None before the first
            ``build``.
    """

    def __init__(self, assembly: Assembly, safe_work: SafeWork | None = None) -> None:
        self._assembly = assembly
        self._coordinates = dict(_coordinates(assembly.unknowns))
        self.turning: range | None = None
        levels = Aggregation(assembly.pattern, assembly.channels, assembly.executor.program.dtype, safe_work)
        self._levels = levels
        values = levels.matrix if levels.matrix.dtype == np.float64 else np.zeros(levels.matrix.shape)
        self.matrix = assembly.in_order(levels.order, levels.rows, levels.columns, values)
        finest = levels.state.level[0]
        self.matrix.state.b, self.matrix.state.x = finest.b, finest.x

    @property
    def nbytes(self) -> int:
        return self.matrix.nbytes + self._levels.nbytes

    def kernels(self, damped: bool) -> PcgKernels:
        """The kernels of conjugate gradients with the levels that were built last."""
        executor, matrix, levels = self._assembly.executor, self.matrix, self._levels
        solve = AssembledSolve(ctypes.pointer(matrix.state), ctypes.pointer(levels.state))
        found = pcg_kernels(
            executor,
            self._assembly.unknowns,
            damped,
            Preconditioning.ASSEMBLED,
            precondition=address(matrix_solvers(executor.library).optpy_apply_aggregation),
            preconditioner=ctypes.addressof(solve),
        )
        found.keeps = (solve, matrix, levels)
        return found

    def build(self, damped: bool, safe_work: SafeWork) -> None:
        """Levels for the matrix as it now is."""
        self._assembly.assemble(self.matrix, damped)
        if self._levels.matrix is not self.matrix.values:
            self._levels.matrix[...] = self.matrix.values
        self._levels.candidates[...] = self._near_nullspace()
        executor, state = self._assembly.executor, self._levels.state

        def work(safe: int) -> None:
            state.safe = safe
            matrix_solvers(executor.library).optpy_aggregate(ctypes.byref(state), executor.product_threads)

        safe_work.finish(work)

    def residual_norms(self) -> dict[str, float]:
        """See ``Assembly.residual_norms``."""
        return self._assembly.residual_norms()

    def _near_nullspace(self) -> NDArray[Any]:
        """Vectors whose energy is small, channels by candidates at each node.

        A constant in each channel; and where some unknown has the coordinates of points, or moves as they do,
        infinitesimal rotations of all points instead of constants in as many other channels, which follow as the energy
        asks: the rigid motions of Vanek, Mandel and Brezina (1996) for elasticity. Of several such unknowns, and the
        constants alone, what has the least energy when the levels are first built is taken.
        """
        diagonal = self._diagonal()
        if self.turning is None:
            choices = {x: self._candidates(x, diagonal) for x in [_NO_COORDINATES, *self._coordinates]}
            self.turning = min(choices, key=lambda x: self._energy(choices[x], diagonal))
            return choices[self.turning]
        return self._candidates(self.turning, diagonal)

    def _candidates(self, coordinates: range, diagonal: NDArray[Any]) -> NDArray[Any]:
        """The candidates with rotations of the unknown in the given channels, if any."""
        channels = self._assembly.channels
        candidates = np.array(np.broadcast_to(np.eye(channels, dtype=diagonal.dtype), self._levels.candidates.shape))
        if not coordinates:
            return candidates
        axes, others = _AXES[len(coordinates)], [a for a in range(channels) if a not in coordinates]
        turning = others[: len(axes)]
        u = self._coordinates[coordinates]
        x = self._assembly.executor.buffers.read(u).reshape(-1, u.channels)[self.matrix.order]
        x -= x.mean(axis=0)
        turned = np.zeros((len(x), channels, len(axes)), x.dtype)
        for k, (a, b) in enumerate(axes):
            turned[:, coordinates[a], k], turned[:, coordinates[b], k] = -x[:, b], x[:, a]
        # The energy is least in the other channels where D_oo x_o = -(A x)_o.
        pulled = self._times(turned)[:, others]
        turned[:, others] = -_inverses(diagonal[:, others][:, :, others]) @ pulled
        candidates[:, :, turning] = turned
        return candidates

    def _times(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """A x, of several vectors: (nodes, channels, vectors)."""
        A = self.matrix.as_scipy()
        return np.asarray(A @ vectors.reshape(A.shape[0], -1)).reshape(vectors.shape)

    def _diagonal(self) -> NDArray[Any]:
        """The blocks on the diagonal."""
        return self.matrix.values[self.matrix.diagonal]

    def _energy(self, candidates: NDArray[Any], diagonal: NDArray[Any]) -> float:
        """The mean of x^T A x / x^T D x over the candidates, D the diagonal of A."""
        top = np.einsum("nak,nak->k", candidates, self._times(candidates), dtype=np.float64)
        bottom = np.einsum("nak,naa->k", candidates**2, diagonal, dtype=np.float64)
        return float(np.mean(top / np.where(bottom > 0, bottom, 1)))


def _coordinates(unknowns: Sequence[Field]) -> Iterator[tuple[range, Field]]:
    """The unknowns that may be coordinates in the plane or in space, by their channels among those of all."""
    channels = [vector(VectorKind.R, u).channels for u in unknowns]
    for n, u in enumerate(unknowns):
        first, count = sum(channels[:n]), channels[n]
        if u.manifold is None and count in _AXES and sum(channels) - count >= len(_AXES[count]):
            yield range(first, first + count), u


def _inverses(blocks: NDArray[Any]) -> NDArray[Any]:
    """Of symmetric positive semidefinite blocks, each made regular by a little on its diagonal."""
    unit = np.eye(blocks.shape[-1], dtype=blocks.dtype)
    scale = blocks.trace(axis1=1, axis2=2)[:, None, None]
    return np.asarray(np.linalg.inv(blocks + unit * np.where(scale > 0, 10 * np.finfo(blocks.dtype).eps * scale, 1)))
