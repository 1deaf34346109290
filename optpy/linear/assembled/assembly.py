"""The assembled J^T J + D of one problem, which solvers work on."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.ir import Group, NormalMatrix
from optpy.kernels.runtime.executor import CpuExecutor
from optpy.linear.assembled.matrix import AssembledMatrix, element_addresses, sparsity
from optpy.linear.assembled.native import matrix_solvers
from optpy.linear.assembled.nodes import GraphData, nodes_read
from optpy.linear.pcg.native import address
from optpy.linear.system import System


@final
class Assembly:
    """The assembled matrix of one problem in any order of its rows.

    Args:
        system: whose program has a ``NormalMatrix``.
    """

    def __init__(self, system: System) -> None:
        executor, graphs = system.executor, system.graphs
        assert isinstance(executor, CpuExecutor)
        normal, sizes = executor.program.normal, executor.buffers.sizes
        assert isinstance(normal, NormalMatrix)
        self.executor, self.unknowns, self._normal = executor, system.unknowns, normal
        self.channels = len(normal.elements)
        self.nodes = prod(sizes[d] for d in normal.dims)
        data = GraphData(sizes, {g.name: c.edges for g, c in graphs.items()})
        self._reads = [nodes_read(term, normal.dims, data) for term in normal.terms]
        self.pattern = sparsity(self._reads, self.nodes, system.loop.safe_work)

    def in_order(
        self, order: NDArray[np.int64], rows: NDArray[np.int64], columns: NDArray[np.int32], values: NDArray[Any]
    ) -> AssembledMatrix:
        """The matrix with its rows in the given order; see ``AssembledMatrix``."""
        return AssembledMatrix(self._normal, self._reads, self.executor.buffers, order, rows, columns, values)

    def assemble(self, matrix: AssembledMatrix, damped: bool) -> None:
        """Compute the blocks of J^T J (+ D) as it now is."""
        executor = self.executor
        executor.run(Group.NORMAL)
        matrix.state.add_row = address(executor.library.function("optpy_add_row", Group.NORMAL))
        for name, elements in self._normal.vectors.items():
            setattr(matrix.state, name, element_addresses(elements, executor.program.symbols))
        assemble = matrix_solvers(executor.library).optpy_assemble
        assemble(ctypes.byref(executor.context), ctypes.byref(matrix.state), damped, executor.product_threads)

    def residual_norms(self) -> dict[str, float]:
        """r.r, and g.g, which is that of the start; after a solve with the matrix."""
        return self.executor.run(Group.NORMS_ASSEMBLED)
