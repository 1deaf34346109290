"""Preconditioners that work on the assembled J^T J + D: an algebraic multigrid, and a factorisation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.energy.derive.vectors import vector
from optpy.ir import Field, Graph, NormalMatrix
from optpy.kernels.runtime.context import PcgKernels
from optpy.kernels.runtime.library import BoundProgram
from optpy.kernels.runtime.tables import Connectivity
from optpy.linear.aggregation.aggregation import Aggregation
from optpy.linear.assembled.assembly import AssembledMatrix, sparsity
from optpy.linear.assembled.nodes import Places, nodes_read
from optpy.linear.cholesky.factorisation import Factorisation
from optpy.linear.loop import directions_and_steps

_AXES: Mapping[int, tuple[tuple[int, int], ...]] = {2: ((0, 1),), 3: ((1, 2), (2, 0), (0, 1))}
"""The planes of infinitesimal rotations of places with so many coordinates."""
_NO_PLACE = range(0)


@final
class Assembly:
    """The assembled matrix of one problem in any order of its rows.

    Args:
        bound: the energy's program, which has a ``NormalMatrix``, with its memory.
        unknowns: of the energy, in order.
        graphs: as they are bound.
    """

    def __init__(self, bound: BoundProgram, unknowns: Sequence[Field], graphs: Mapping[Graph, Connectivity]) -> None:
        normal, sizes = bound.program.normal, bound.buffers.sizes
        assert isinstance(normal, NormalMatrix)
        self.bound, self.unknowns, self._normal = bound, unknowns, normal
        self.channels = len(normal.elements)
        self.nodes = prod(sizes[d] for d in normal.dims)
        places = Places(sizes, {g.name: c.edges for g, c in graphs.items()})
        self._reads = [nodes_read(term, normal.dims, places) for term in normal.terms]
        self.pattern = sparsity(self._reads, self.nodes)

    def in_order(
        self, order: NDArray[np.int64], rows: NDArray[np.int64], columns: NDArray[np.int32], values: NDArray[Any]
    ) -> AssembledMatrix:
        """The matrix with its rows in the given order; see ``AssembledMatrix``."""
        return AssembledMatrix(self._normal, self._reads, self.bound.buffers, order, rows, columns, values)

    def kernels(self, damped: bool, matrix: AssembledMatrix, solver: Aggregation) -> PcgKernels:
        """The lines of conjugate gradients with what was built from the matrix last."""
        return self.bound.assembled_kernels(directions_and_steps(self.unknowns), damped, matrix, solver)

    def residual_norms(self) -> dict[str, float]:
        """r.r, and g.g, which is that of the start; after a solve with the matrix."""
        return self.bound.run("residual_stored")


@final
class AlgebraicMultigrid:
    """Smoothed aggregation on the assembled matrix (``kernels.aggregation``)."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._places = dict(_places(assembly.unknowns))
        self._turning: range | None = None  # the channels of the unknown whose rotations are candidates
        levels = Aggregation(assembly.pattern, assembly.channels, assembly.bound.program.dtype)
        self._levels = levels
        values = levels.matrix if levels.matrix.dtype == np.float64 else np.zeros(levels.matrix.shape)
        self.matrix = assembly.in_order(levels.order, levels.rows, levels.columns, values)
        finest = levels.state.level[0]
        self.matrix.state.b, self.matrix.state.x = finest.b, finest.x

    @property
    def nbytes(self) -> int:
        return self.matrix.nbytes + self._levels.nbytes

    def kernels(self, damped: bool) -> PcgKernels:
        """The lines of conjugate gradients with the levels that were built last."""
        return self._assembly.kernels(damped, self.matrix, self._levels)

    def build(self, damped: bool) -> None:
        """Levels for the matrix as it now is."""
        self._assembly.bound.assemble(self.matrix, damped)
        if self._levels.matrix is not self.matrix.values:
            self._levels.matrix[...] = self.matrix.values
        self._levels.candidates[...] = self._near_nullspace()
        self._assembly.bound.aggregate(self._levels)

    def residual_norms(self) -> dict[str, float]:
        """See ``Assembly.residual_norms``."""
        return self._assembly.residual_norms()

    def _near_nullspace(self) -> NDArray[Any]:
        """Vectors whose energy is small, channels by candidates at each node.

        A constant in each channel; and where some unknown is a place, or moves as one, infinitesimal rotations of all
        places instead of constants in as many other channels, which follow as the energy asks: the rigid motions of
        Vanek, Mandel and Brezina (1996) for elasticity. Of several such unknowns, and the constants alone, what has
        the least energy when the levels are first built is taken.
        """
        diagonal = self._diagonal()
        if self._turning is None:
            choices = {place: self._candidates(place, diagonal) for place in [_NO_PLACE, *self._places]}
            self._turning = min(choices, key=lambda place: self._energy(choices[place], diagonal))
            return choices[self._turning]
        return self._candidates(self._turning, diagonal)

    def _candidates(self, place: range, diagonal: NDArray[Any]) -> NDArray[Any]:
        """The candidates with rotations of the unknown in the given channels, if any."""
        channels = self._assembly.channels
        candidates = np.array(np.broadcast_to(np.eye(channels, dtype=diagonal.dtype), self._levels.candidates.shape))
        if not place:
            return candidates
        axes, others = _AXES[len(place)], [a for a in range(channels) if a not in place]
        turning = others[: len(axes)]
        u = self._places[place]
        x = self._assembly.bound.buffers.read(u).reshape(-1, u.channels)[self.matrix.order]
        x -= x.mean(axis=0)
        turned = np.zeros((len(x), channels, len(axes)), x.dtype)
        for k, (a, b) in enumerate(axes):
            turned[:, place[a], k], turned[:, place[b], k] = -x[:, b], x[:, a]
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


@final
class CholeskyFactor:
    """A factorisation of the assembled matrix (``kernels.cholesky``): with it, conjugate gradients only refine.

    All of it is in double, whatever the solver's precision: ``pcg`` on the matrix itself, whose residual is exact where
    that of a product with J is rounded to the vectors' precision. See ``LinearOperator``.
    """

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._rows = assembly.pattern.indptr.astype(np.int64)
        self._columns = assembly.pattern.indices.astype(np.int32)
        self._factor = Factorisation(self._rows, self._columns, assembly.channels)
        self._matrix: AssembledMatrix | None = None

    @property
    def operations(self) -> float:
        """Multiplications of one factorisation."""
        return self._factor.operations

    @property
    def singular(self) -> int:
        """Pivots of the last factorisation that were rounding: M^-1 is 0 there."""
        return int(self._factor.state.all_corrected)

    @property
    def nbytes(self) -> int:
        """Of what is allocated: the pattern and, once it is first built, the factor and the matrix."""
        return self._factor.nbytes + (self._matrix.nbytes if self._matrix is not None else 0)

    @property
    def needed(self) -> int:
        """Bytes of the factor, whether it is built yet or not."""
        return self._factor.needed

    @property
    def matrix(self) -> AssembledMatrix:
        """The matrix, in the order of the nodes."""
        if self._matrix is None:
            channels, order = self._assembly.channels, np.arange(self._assembly.nodes)
            values = np.zeros((len(self._columns), channels, channels))
            self._matrix = self._assembly.in_order(order, self._rows, self._columns, values)
        return self._matrix

    def build(self, damped: bool) -> None:
        """Factorise the matrix as it now is.

        Raises:
            MemoryError: there is not enough.
        """
        self._factor.allocate()
        self._assembly.bound.assemble(self.matrix, damped)
        self._assembly.bound.factorise(self._factor, self.matrix)
        self._product = self.matrix.as_scipy()

    def apply(self, p: NDArray[Any]) -> NDArray[Any]:
        """A p."""
        return np.asarray(self._product @ p)

    def precondition(self, r: NDArray[Any]) -> NDArray[Any]:
        """The solution z of A z = r."""
        return self._assembly.bound.solve_factorised(self._factor, r)

    def gradient(self) -> NDArray[np.float64]:
        """g, one after the other in the order of the nodes."""
        buffers, nodes = self._assembly.bound.buffers, self._assembly.nodes
        parts = [buffers.read(vector("g", u)).reshape(nodes, -1) for u in self._assembly.unknowns]
        return np.concatenate(parts, axis=1).astype(np.float64).ravel()

    def set_step(self, delta: NDArray[Any]) -> None:
        """Gives the solver a delta, rounded to its precision."""
        buffers, channels = self._assembly.bound.buffers, self._assembly.channels
        parts, first = delta.reshape(-1, channels), 0
        for u in self._assembly.unknowns:
            buffers.write(vector("delta", u), np.ascontiguousarray(parts[:, first : first + u.channels]))
            first += u.channels


def _places(unknowns: Sequence[Field]) -> Iterator[tuple[range, Field]]:
    """The unknowns that may be places in the plane or in space, by their channels among those of all."""
    channels = [vector("r", u).channels for u in unknowns]
    for n, u in enumerate(unknowns):
        first, count = sum(channels[:n]), channels[n]
        if u.manifold is None and count in _AXES and sum(channels) - count >= len(_AXES[count]):
            yield range(first, first + count), u


def _inverses(blocks: NDArray[Any]) -> NDArray[Any]:
    """Of symmetric positive semidefinite blocks, each made regular by a little on its diagonal."""
    unit = np.eye(blocks.shape[-1], dtype=blocks.dtype)
    scale = blocks.trace(axis1=1, axis2=2)[:, None, None]
    return np.asarray(np.linalg.inv(blocks + unit * np.where(scale > 0, 10 * np.finfo(blocks.dtype).eps * scale, 1)))
