"""The native library of what assembles a matrix and solves with it: one for each size of a block and each precision."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_int, c_void_p

from optpy.ir import NormalMatrix
from optpy.kernels.codegen.dialect import c_dialect
from optpy.kernels.runtime.context import Context
from optpy.kernels.runtime.cpu import CpuLibrary, precision_source
from optpy.kernels.toolchain.compiler import Compiled, compile_c
from optpy.kernels.toolchain.headers import native_header
from optpy.linear.aggregation.aggregation import aggregation_source
from optpy.linear.aggregation.structures import AggregationState
from optpy.linear.assembled.matrix import ASSEMBLED_SOLVE, AssembledState, assembly_source
from optpy.linear.cholesky.factorisation import cholesky_source
from optpy.linear.cholesky.structures import FactorState
from optpy.linear.pcg.native import joined, pcg_kernels_source


def matrix_solvers(library: CpuLibrary) -> ctypes.CDLL:
    """The library that works on the assembled matrix of a ``NormalMatrix``; compiled when it is first asked for.

    Raises:
        CompileError
    """
    program = library.program
    normal = program.normal
    assert isinstance(normal, NormalMatrix)
    return library.companion("solvers", lambda: compiled_solvers(len(normal.elements), program.dtype, library.scalars))


def compiled_solvers(block: int, dtype: str, scalars: Sequence[str]) -> Compiled:
    """The library for blocks of one size in one precision; see matrix_solvers.h."""
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
    return compiled


def matrix_solvers_source(block: int, dtype: str, scalars: Sequence[str]) -> str:
    """The whole C source."""
    parts = [
        *pcg_kernels_source(scalars),
        precision_source(dtype),
        assembly_source(block),
        aggregation_source(block, c_dialect(dtype)),
        cholesky_source(block),
        ASSEMBLED_SOLVE.text,
        native_header("linear/assembled/matrix_solvers.h"),
    ]
    return joined(parts)
