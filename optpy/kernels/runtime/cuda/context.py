"""The structure that every CUDA kernel takes, as ``program.context_text`` prints it, for Python to fill in."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int, c_int64, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from optpy.kernels.codegen.cuda.program import CudaProgram

PCG = np.dtype(
    [(name, np.float64) for name in ("alpha", "pending", "beta", "rho", "rho_0", "pAp", "prepared", "Q", "zeta")]
    + [(name, np.float64) for name in ("rho_seen", "Q_seen")]
    + [(name, np.int64) for name in ("k", "resumed", "k_seen", "status")]
)
"""The state of conjugate gradients on the device, struct Pcg."""


@final
@dataclass(frozen=True, slots=True)
class PcgState:
    """What the host reads of it; names as in native/pcg.cuh."""

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


SYNC = np.dtype([(name, np.uint32) for name in ("arrived", "barrier", "halt")])
"""What blocks count in when they wait for one another, struct Sync."""


def context_type(program: CudaProgram) -> type[ctypes.Structure]:
    """struct Context of a program."""
    slots = program.slots
    arrays = [
        ("field", c_void_p, len(slots.fields)),
        ("plane", c_int64, len(slots.fields)),
        ("size", c_int64, len(slots.sizes)),
        ("pitch", c_int64, len(slots.grids)),
        ("param", c_double, len(slots.params)),
        ("table", c_void_p, len(slots.tables)),
        ("scalar", c_double, len(program.scalars)),
    ]
    members: list[tuple[str, Any]] = [(name, ctype * max(count, 1)) for name, ctype, count in arrays]
    members += [(name, c_void_p) for name in ("partial", "total", "sync", "pcg", "trace", "progress", "omega")]
    members += [(name, c_double) for name in ("eta", "r_tolerance", "precision", "reduced", "factor")]
    members += [(name, c_int64) for name in ("max_iterations", "min_iterations", "reset_period", "pause", "slice")]
    members += [("fresh", c_int), ("ahead", c_int), ("lanes", c_int * max(len(program.kernels), 1))]
    return type("Context", (ctypes.Structure,), {"_fields_": members})
