"""The assembled J^T J + D of one problem, which solvers work on."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.ir import Group, NormalMatrix
from optpy.kernels.runtime.library import BoundProgram
from optpy.linear.assembled.assembly import AssembledMatrix, places, sparsity
from optpy.linear.assembled.native import matrix_solvers
from optpy.linear.assembled.nodes import Places, nodes_read
from optpy.linear.pcg.native import address
from optpy.linear.system import System


@final
class Assembly:
    """The assembled matrix of one problem in any order of its rows.

    Args:
        system: whose program has a ``NormalMatrix``.
    """

    def __init__(self, system: System) -> None:
        bound, graphs = system.bound, system.graphs
        assert isinstance(bound, BoundProgram)
        normal, sizes = bound.program.normal, bound.buffers.sizes
        assert isinstance(normal, NormalMatrix)
        self.bound, self.unknowns, self._normal = bound, system.unknowns, normal
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

    def assemble(self, matrix: AssembledMatrix, damped: bool) -> None:
        """Compute the blocks of J^T J (+ D) as it now is."""
        bound = self.bound
        bound.run(Group.NORMAL)
        matrix.state.add_row = address(bound.library.kernels.optpy_add_row)
        for name, elements in self._normal.vectors.items():
            setattr(matrix.state, name, places(elements, bound.program.slots))
        assemble = matrix_solvers(bound.library).optpy_assemble
        assemble(ctypes.byref(bound.context), ctypes.byref(matrix.state), damped, bound.product_threads)

    def residual_norms(self) -> dict[str, float]:
        """r.r, and g.g, which is that of the start; after a solve with the matrix."""
        return self.bound.run(Group.NORMS_STORED)
