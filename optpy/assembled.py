"""Preconditioners that work on the assembled J^T J + D: an algebraic multigrid, and a factorisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_matrix
from scipy.sparse.linalg import SuperLU, splu

from .energy.normal_matrix import Places, nodes_read
from .energy.vectors import vector
from .errors import InternalError
from .ir import Field, Graph
from .kernels.aggregation import Aggregation
from .kernels.assembly import SOLVE, AssembledMatrix, Reads, sparsity
from .kernels.buffers import Buffers
from .kernels.library import BoundProgram, PcgKernels
from .kernels.tables import Connectivity

_SHIFTS = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4)
"""What is added to the diagonal before it is factorised, as a part of itself: the first that leaves all pivots sound.
J^T J alone is singular wherever a gauge is free; conjugate gradients make up for the difference."""

MOST_BLOCKS = 2**31 // 64
"""Blocks of a matrix that is assembled at most."""


def most_blocks(reads: Sequence[Reads]) -> int:
    """How many blocks a matrix has at most, before it is known which coincide."""
    return sum(nodes.shape[0] * nodes.shape[1] ** 2 for nodes in reads)


@final
class AssembledSolvers:
    """The assembled matrix of one problem, and what is made of it.

    Args:
        bound: the energy's program, which has a ``normal``, with its memory.
        unknowns: of the energy, in order.
        graphs: as they are bound.
    """

    def __init__(
        self, bound: BoundProgram, buffers: Buffers, unknowns: Sequence[Field], graphs: Mapping[Graph, Connectivity]
    ) -> None:
        normal = bound.program.normal
        assert normal is not None
        self._bound = bound
        self._buffers = buffers
        self._unknowns = unknowns
        self._steps = [(vector("p", u), vector("delta", u)) for u in unknowns]
        places = Places(buffers.sizes, {g.name: c.edges for g, c in graphs.items()})
        reads = [nodes_read(term, normal.dims, places) for term in normal.terms]
        nodes = int(np.prod([buffers.sizes[d] for d in normal.dims]))
        self._channels = len(normal.elements)
        self._levels = Aggregation(sparsity(reads, nodes), self._channels, bound.program.dtype)
        levels = self._levels
        self.matrix = AssembledMatrix(normal, reads, buffers, levels.order, levels.rows, levels.columns, levels.matrix)
        self.matrix.state.b, self.matrix.state.x = levels.finest
        self._factor: SuperLU | None = None
        self._solve = SOLVE(self._substitute)

    @property
    def nbytes(self) -> int:
        return self.matrix.nbytes + self._levels.nbytes

    @property
    def size(self) -> int:
        """Rows of the matrix in numbers."""
        return len(self.matrix.order) * self._channels

    def kernels(self, damped: bool) -> PcgKernels:
        """The lines of conjugate gradients with what has been built last."""
        return self._bound.assembled_kernels(self._steps, damped, self.matrix, self._levels)

    # -- multigrid -----------------------------------------------------------------------------------------------------

    def build_multigrid(self, damped: bool) -> None:
        """Levels for the matrix as it now is."""
        self._bound.assemble(self.matrix, damped)
        self.matrix.state.solve = SOLVE()
        self._levels.candidates[...] = self._near_nullspace()
        self._bound.aggregate(self._levels)

    def _near_nullspace(self) -> NDArray[Any]:
        """Vectors whose energy is small, channels by candidates at each node.

        A constant in each channel; and where some unknown is a place, or moves as one, infinitesimal rotations of all
        places in the stead of constants in other channels, which follow as the energy asks. Of several such unknowns
        the one whose rotations have the least energy is taken (the translations and rotations of Vanek, Mandel and
        Brezina, 1996, for elasticity).
        """
        identity = np.broadcast_to(
            np.eye(self._channels, dtype=self.matrix.values.dtype), self._levels.candidates.shape
        )
        found = [(self._energy(identity), identity)]
        first = 0
        for u in self._unknowns:
            turned = self._rotations(u, first) if u.manifold is None else None
            if turned is not None:
                found.append((self._energy(turned), turned))
            first += vector("r", u).channels
        return min(found, key=lambda pair: pair[0])[1]

    def _rotations(self, u: Field, first: int) -> NDArray[Any] | None:
        """The candidates with rotations of ``u``, whose channels begin at ``first``; None where it is no place."""
        axes = {2: ((0, 1),), 3: ((1, 2), (2, 0), (0, 1))}.get(u.channels, ())
        own = np.arange(first, first + u.channels)
        others = np.setdiff1d(np.arange(self._channels), own)
        if not axes or len(axes) > len(others):
            return None
        places = self._buffers.read(u).reshape(-1, u.channels)[self.matrix.order]
        places = places - places.mean(axis=0)
        candidates = np.array(np.broadcast_to(np.eye(self._channels), self._levels.candidates.shape))
        turning = others[: len(axes)]
        candidates[:, :, turning] = 0
        for k, (a, b) in zip(turning, axes, strict=True):
            candidates[:, own[a], k], candidates[:, own[b], k] = -places[:, b], places[:, a]
        # What the other channels add to the energy is least where D_oo x_o = -(A x)_o.
        pulled = self._times(candidates[:, :, turning])[:, others]
        inverses = _inverses(self._diagonal()[:, others[:, None], others])
        candidates[:, others[:, None], turning] = -inverses @ pulled
        return candidates

    def _times(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """A x, of several vectors: (nodes, channels, vectors)."""
        product = self.matrix.as_scipy() @ vectors.reshape(self.size, -1)
        return np.asarray(product).reshape(vectors.shape)

    def _diagonal(self) -> NDArray[Any]:
        rows = np.repeat(np.arange(len(self.matrix.order)), np.diff(self.matrix.rows))
        return self.matrix.values[self.matrix.columns == rows].astype(np.float64)

    def _energy(self, candidates: NDArray[Any]) -> float:
        """The mean of x^T A x / x^T D x over the candidates, D the diagonal of A."""
        diagonal = self._diagonal().diagonal(axis1=1, axis2=2)[:, :, None]
        top = (candidates * self._times(candidates)).sum(axis=(0, 1))
        bottom = (candidates**2 * diagonal).sum(axis=(0, 1))
        return float(np.mean(top / np.where(bottom > 0, bottom, 1)))

    # -- factorisation -------------------------------------------------------------------------------------------------

    def build_factor(self, damped: bool) -> bool:
        """A factorisation of the matrix as it now is (by SuperLU, ordered by minimum degree); whether there is one."""
        self._bound.assemble(self.matrix, damped)
        A = self.matrix.as_scipy().astype(np.float64).tocsc()
        diagonal = A.diagonal()
        for shift in _SHIFTS:
            A.setdiag(np.where(diagonal > 0, diagonal * (1 + shift), 1))
            self._factor = _factorised(A)
            if self._factor is not None:
                self.matrix.state.solve = self._solve
                return True
        return False

    def _substitute(self) -> None:
        """Called by the native loop."""
        if self._factor is None:
            raise InternalError("there is no factorisation")
        self.matrix.left.ravel()[:] = self._factor.solve(self.matrix.right.ravel())


def _factorised(A: csc_matrix) -> SuperLU | None:
    """None where a pivot is 0 or below, or not a number."""
    if not np.isfinite(A.data).all():
        return None
    try:
        factor = splu(A, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError:  # "Factor is exactly singular"
        return None
    return factor if bool((factor.U.diagonal() > 0).all()) else None


def _inverses(blocks: NDArray[Any]) -> NDArray[Any]:
    """Of symmetric positive semidefinite blocks, each made regular by a little on its diagonal."""
    n = blocks.shape[-1]
    scale = blocks.trace(axis1=1, axis2=2)[:, None, None]
    return np.asarray(np.linalg.inv(blocks + np.eye(n) * np.where(scale > 0, 1e-10 * scale, 1)))
