"""The library of what solves with an assembled matrix: one for all energies of a block size and a precision.

It is most of the native code, so energies are compiled the sooner for not having it each.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, byref, c_int, c_void_p
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from .aggregation import Aggregation, AggregationState, aggregation_source
from .assembly import AssembledMatrix
from .cholesky import Factorisation, FactorState, cholesky_source
from .compiler import Compiled, compile_c, native_header
from .dialect import c_dialect
from .preconditioners import preconditioner_prelude


@final
@dataclass(frozen=True, slots=True)
class MatrixSolvers:
    """The loaded library; see native/matrix_solvers.h."""

    compiled: Compiled

    def aggregate(self, aggregation: Aggregation, threads: int) -> None:
        """Compute all levels of an assembled matrix's multigrid."""
        self.compiled.library.optpy_aggregate(byref(aggregation.state), threads)

    def factorise(self, factor: Factorisation, matrix: AssembledMatrix, threads: int) -> None:
        """Compute the factor of an assembled matrix."""
        self.compiled.library.optpy_factorise(byref(factor.state), matrix.state.matrix, threads)

    def solve(self, factor: Factorisation, b: NDArray[np.float64], threads: int) -> NDArray[np.float64]:
        """A^-1 b of the matrix that has been factorised; one after the other in the order of the nodes."""
        b = np.ascontiguousarray(b, np.float64)
        x = np.empty_like(b)
        self.compiled.library.optpy_solve_factorised(byref(factor.state), b.ctypes.data, x.ctypes.data, threads)
        return x

    @property
    def cycle(self) -> int | None:
        """The address of the function that runs a cycle of the multigrid: a MatrixSolve of native/pcg.h."""
        return ctypes.cast(self.compiled.library.optpy_apply_aggregation, c_void_p).value


@functools.cache
def matrix_solvers(block: int, dtype: str) -> MatrixSolvers:
    """The library for blocks of one size in one precision.

    Raises:
        CompileError
    """
    compiled = compile_c(matrix_solvers_source(block, dtype), name="solvers", kernels=4)
    library = compiled.library
    library.optpy_aggregate.argtypes = [POINTER(AggregationState), c_int]
    library.optpy_aggregate.restype = None
    library.optpy_factorise.argtypes = [POINTER(FactorState), c_void_p, c_int]
    library.optpy_factorise.restype = None
    library.optpy_solve_factorised.argtypes = [POINTER(FactorState), c_void_p, c_void_p, c_int]
    library.optpy_solve_factorised.restype = None
    return MatrixSolvers(compiled)


def matrix_solvers_source(block: int, dtype: str) -> str:
    """The whole C source."""
    dialect = c_dialect(dtype)
    parts = [
        native_header("prelude.h"),
        native_header("team.h"),
        preconditioner_prelude(dialect),
        aggregation_source(block, dialect),
        cholesky_source(block),
        native_header("matrix_solvers.h"),
    ]
    return "\n\n".join(parts) + "\n"
