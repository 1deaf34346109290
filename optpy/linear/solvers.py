"""The native code that no energy changes, in libraries of its own: compiled once for a machine, whatever is solved.

An energy's library holds its own kernels only. These run them: conjugate gradients, and what preconditions them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_int, c_int64, c_void_p
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from optpy.ir import Coupling
from optpy.kernels.codegen.dialect import c_dialect
from optpy.kernels.runtime.context import Context, PcgKernels, PcgState
from optpy.kernels.toolchain.compiler import Compiled, compile_c
from optpy.kernels.toolchain.headers import native_header
from optpy.linear.aggregation.aggregation import Aggregation, AggregationState, aggregation_source
from optpy.linear.assembled.assembly import AssembledMatrix, AssembledState, assembly_source
from optpy.linear.cholesky.factorisation import Factorisation, FactorState, cholesky_source
from optpy.linear.multigrid.levels import MultigridState, multigrid_source

# -- conjugate gradients -------------------------------------------------------------------------------------------


def conjugate_gradients(scalars: Sequence[str]) -> Compiled:
    """The library that runs kernels, and conjugate gradients of them; see native/pcg.h.

    Args:
        scalars: names of the run-time scalars, in order.

    Raises:
        CompileError
    """
    compiled = compile_c(conjugate_gradients_source(scalars), name="pcg", what="conjugate gradients")
    library = compiled.library
    library.optpy_run.argtypes = [POINTER(Context), c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p]
    library.optpy_run.restype = None
    library.optpy_pcg.argtypes = [POINTER(Context), POINTER(PcgKernels), POINTER(PcgState), c_void_p, c_int]
    library.optpy_pcg.restype = None
    return compiled


def conjugate_gradients_source(scalars: Sequence[str]) -> str:
    """The whole C source."""
    return _joined(["#include <time.h>", *_lines(scalars), native_header("linear/pcg/pcg.h")])


def _lines(scalars: Sequence[str]) -> list[str]:
    """What runs the lines of conjugate gradients."""
    return [
        native_header("kernels/c/prelude.h"),
        native_header("kernels/c/team.h"),
        native_header("kernels/c/kernel.h"),
        f"#define OPTPY_SCALARS {len(scalars)}\nenum {{ {', '.join(name.upper() for name in scalars)} }};",
        native_header("linear/pcg/lines.h"),
    ]


def preconditioner_prelude(dtype: str) -> str:
    """What the code of each preconditioner starts from."""
    return f"#define OPTPY_REAL {c_dialect(dtype).real}\n\n" + native_header("kernels/c/signs.h")


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(parts) + "\n"


# -- the multigrid of a grid ---------------------------------------------------------------------------------------


def grid_multigrid(coupling: Coupling, dtype: str, scalars: Sequence[str]) -> Compiled:
    """The library of the multigrid for unknowns that are coupled alike; see native/multigrid_solve.h.

    Raises:
        CompileError
    """
    compiled = compile_c(grid_multigrid_source(coupling, dtype, scalars), name="multigrid", what="multigrid")
    build = compiled.library.optpy_multigrid
    build.argtypes = [POINTER(Context), POINTER(PcgKernels), POINTER(MultigridState), c_void_p, c_int]
    build.restype = None
    return compiled


def grid_multigrid_source(coupling: Coupling, dtype: str, scalars: Sequence[str]) -> str:
    """The whole C source."""
    return _joined([*_lines(scalars), preconditioner_prelude(dtype), multigrid_source(coupling)])


# -- an assembled matrix -------------------------------------------------------------------------------------------


class AssembledSolve(ctypes.Structure):
    """As native/matrix_solvers.h."""

    _fields_ = [("matrix", POINTER(AssembledState)), ("aggregation", POINTER(AggregationState))]


@final
@dataclass(frozen=True, slots=True)
class MatrixSolvers:
    """The loaded library of what assembles a matrix and solves with it; see native/matrix_solvers.h."""

    compiled: Compiled

    @property
    def library(self) -> ctypes.CDLL:
        return self.compiled.library

    def assemble(self, context: Context, matrix: AssembledMatrix, damped: bool, threads: int) -> None:
        """Compute the blocks of J^T J (+ D)."""
        self.library.optpy_assemble(byref(context), byref(matrix.state), damped, threads)

    def aggregate(self, aggregation: Aggregation, threads: int) -> None:
        """Compute all levels of an assembled matrix's multigrid."""
        self.library.optpy_aggregate(byref(aggregation.state), threads)

    def factorise(self, factor: Factorisation, matrix: AssembledMatrix, threads: int) -> None:
        """Compute the factor of an assembled matrix."""
        self.library.optpy_factorise(byref(factor.state), matrix.state.matrix, threads)

    def solve(self, factor: Factorisation, b: NDArray[np.float64], threads: int) -> NDArray[np.float64]:
        """A^-1 b of the matrix that has been factorised; one after the other in the order of the nodes."""
        b = np.ascontiguousarray(b, np.float64)
        x = np.empty_like(b)
        self.library.optpy_solve_factorised(byref(factor.state), b.ctypes.data, x.ctypes.data, threads)
        return x


def matrix_solvers(block: int, dtype: str, scalars: Sequence[str]) -> MatrixSolvers:
    """The library for blocks of one size in one precision.

    Raises:
        CompileError
    """
    compiled = compile_c(matrix_solvers_source(block, dtype, scalars), name="solvers", what="solvers of matrices")
    library = compiled.library
    library.optpy_assemble.argtypes = [POINTER(Context), POINTER(AssembledState), c_int, c_int]
    library.optpy_assemble.restype = None
    library.optpy_aggregate.argtypes = [POINTER(AggregationState), c_int]
    library.optpy_aggregate.restype = None
    library.optpy_factorise.argtypes = [POINTER(FactorState), c_void_p, c_int]
    library.optpy_factorise.restype = None
    library.optpy_solve_factorised.argtypes = [POINTER(FactorState), c_void_p, c_void_p, c_int]
    library.optpy_solve_factorised.restype = None
    return MatrixSolvers(compiled)


def matrix_solvers_source(block: int, dtype: str, scalars: Sequence[str]) -> str:
    """The whole C source."""
    parts = [
        *_lines(scalars),
        preconditioner_prelude(dtype),
        assembly_source(block),
        aggregation_source(block, c_dialect(dtype)),
        cholesky_source(block),
        native_header("linear/assembled/matrix_solvers.h"),
    ]
    return _joined(parts)


def address(function: ctypes._NamedFuncPointer) -> int | None:
    """Of a native function, for a structure that holds it."""
    return ctypes.cast(function, c_void_p).value
