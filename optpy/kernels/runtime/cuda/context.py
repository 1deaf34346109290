"""The structures of CUDA kernels, for Python to fill in and to read."""

from __future__ import annotations

import ctypes

import numpy as np

from optpy.kernels.codegen.cuda import context as cuda
from optpy.kernels.codegen.cuda.program import CudaProgram


class _Sync(ctypes.Structure):
    _fields_ = cuda.SYNC.fields


SYNC = np.dtype(_Sync)
"""The counters of the barrier between blocks."""


def context_type(program: CudaProgram) -> type[ctypes.Structure]:
    """The argument of a program's kernels."""
    fields = cuda.context_structure(program.symbols, len(program.scalars), len(program.kernels)).fields
    return type("Context", (ctypes.Structure,), {"_fields_": fields})
