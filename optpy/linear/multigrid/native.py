"""The native library of the multigrid of a grid on the CPU: compiled for unknowns that are coupled alike."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_int, c_void_p

from optpy.ir import Coupling
from optpy.kernels.runtime.context import Context
from optpy.kernels.runtime.cpu import CpuLibrary, precision_source
from optpy.kernels.toolchain.compiler import Compiled, compile_c
from optpy.linear.multigrid.levels import multigrid_source
from optpy.linear.multigrid.structures import MultigridState
from optpy.linear.pcg.native import joined, pcg_kernels_source
from optpy.linear.pcg.state import PcgKernels


def grid_multigrid(library: CpuLibrary) -> ctypes.CDLL:
    """The multigrid of a program that has a ``Coupling``; compiled when it is first asked for.

    Raises:
        CompileError
    """
    program = library.program
    coupling = program.coupling
    assert isinstance(coupling, Coupling)

    def compiled() -> Compiled:
        source = grid_multigrid_source(coupling, program.dtype, library.scalars)
        made = compile_c(source, name="multigrid", what="multigrid")
        build = made.library.optpy_multigrid
        build.argtypes = [POINTER(Context), POINTER(PcgKernels), POINTER(MultigridState), c_void_p, c_int]
        build.restype = None
        return made

    return library.companion("multigrid", compiled)


def grid_multigrid_source(coupling: Coupling, dtype: str, scalars: Sequence[str]) -> str:
    """The whole C source; see multigrid_solve.h."""
    return joined([*pcg_kernels_source(scalars), precision_source(dtype), multigrid_source(coupling)])
