"""The factorisation of one problem's assembled matrix."""

from __future__ import annotations

import ctypes
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.energy.derive.vectors import vector
from optpy.ir import VectorKind
from optpy.linear.assembled.assembly import Assembly
from optpy.linear.assembled.matrix import AssembledMatrix
from optpy.linear.assembled.native import matrix_solvers
from optpy.linear.cholesky.factorisation import Factorisation
from optpy.linear.safe_work import SafeWork


@final
class CholeskyFactor:
    """A factorisation of the assembled matrix (see ``Factorisation``): with it, conjugate gradients only refine.

    All of it is in double, whatever the solver's precision: ``pcg`` on the matrix itself, whose residual is exact where
    that of a product with J is rounded to the vectors' precision. See ``LinearOperator``.
    """

    def __init__(self, assembly: Assembly, safe_work: SafeWork) -> None:
        self._assembly = assembly
        self._rows = assembly.pattern.indptr.astype(np.int64)
        self._columns = assembly.pattern.indices.astype(np.int32)
        self._factor = Factorisation(self._rows, self._columns, assembly.channels, safe_work)
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

    def build(self, damped: bool, safe_work: SafeWork) -> None:
        """Factorise the matrix as it now is.

        Raises:
            OutOfTime: it was not finished in time.
            MemoryError: there is not enough.
        """
        self._factor.allocate()
        self._assembly.assemble(self.matrix, damped)
        executor, state = self._assembly.executor, self._factor.state
        factorise = matrix_solvers(executor.library).optpy_factorise

        def work(safe: int) -> None:
            state.safe = safe
            factorise(ctypes.byref(state), self.matrix.state.matrix, executor.product_threads)

        safe_work.finish(work)
        self._product = self.matrix.as_scipy()

    def apply(self, p: NDArray[Any]) -> NDArray[Any]:
        """A p."""
        return np.asarray(self._product @ p)

    def precondition(self, r: NDArray[Any]) -> NDArray[Any]:
        """The solution z of A z = r."""
        executor, b = self._assembly.executor, np.ascontiguousarray(r, np.float64)
        x = np.empty_like(b)
        solve = matrix_solvers(executor.library).optpy_solve_factorised
        solve(ctypes.byref(self._factor.state), b.ctypes.data, x.ctypes.data, executor.product_threads)
        return x

    def gradient(self) -> NDArray[np.float64]:
        """g, one after the other in the order of the nodes."""
        buffers, nodes = self._assembly.executor.buffers, self._assembly.nodes
        parts = [buffers.read(vector(VectorKind.G, u)).reshape(nodes, -1) for u in self._assembly.unknowns]
        return np.concatenate(parts, axis=1).astype(np.float64).ravel()

    def set_step(self, delta: NDArray[Any]) -> None:
        """Gives the solver a delta, rounded to its precision."""
        buffers, channels = self._assembly.executor.buffers, self._assembly.channels
        parts, first = delta.reshape(-1, channels), 0
        for step in (vector(VectorKind.DELTA, u) for u in self._assembly.unknowns):
            buffers.write(step, np.ascontiguousarray(parts[:, first : first + step.channels]))
            first += step.channels
