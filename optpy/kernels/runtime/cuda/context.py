"""The structures of CUDA kernels, for Python to fill in and to read."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from optpy.kernels.codegen.cuda import context as cuda
from optpy.kernels.codegen.cuda.program import CudaProgram


class _Pcg(ctypes.Structure):
    _fields_ = cuda.PCG.fields


class _Sync(ctypes.Structure):
    _fields_ = cuda.SYNC.fields


PCG = np.dtype(_Pcg)
"""The state of conjugate gradients on the device."""
SYNC = np.dtype(_Sync)
"""The counters of the barrier between blocks."""


@final
@dataclass(frozen=True, slots=True)
class PcgReadback:
    """The state that the host reads; names as in pcg.cuh."""

    k: int
    status: int
    rho: float
    rho_0: float
    pAp: float  # noqa: N815
    zeta: float
    Q: float

    @classmethod
    def of(cls, raw: NDArray[np.uint8]) -> Self:
        """From the bytes of struct Pcg."""
        s = raw.view(PCG)[0]
        return cls(int(s["k"]), int(s["status"]), *(float(s[name]) for name in ("rho", "rho_0", "pAp", "zeta", "Q")))


def context_type(program: CudaProgram) -> type[ctypes.Structure]:
    """The argument of a program's kernels."""
    fields = cuda.context_structure(program.symbols, len(program.scalars), len(program.kernels)).fields
    return type("Context", (ctypes.Structure,), {"_fields_": fields})
