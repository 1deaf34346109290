"""The structures that native code takes, for Python to fill in, and the functions that take them."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_double, c_int, c_int64, c_void_p

from .assembly import AssembledState
from .multigrid import MultigridState


class Context(ctypes.Structure):
    """As native/kernel.h."""

    _fields_ = [
        ("field", c_void_p),
        ("plane", c_void_p),
        ("size", c_void_p),
        ("pitch", c_void_p),
        ("segments", c_void_p),
        ("count", c_void_p),
        ("param", c_void_p),
        ("partial", c_void_p),
        ("table", c_void_p),
    ]


class PcgKernels(ctypes.Structure):
    """As native/pcg.h."""

    _fields_ = [
        ("grids", c_int64),
        ("applied", c_int64),
        ("start", POINTER(c_int)),
        ("direction", POINTER(c_int)),
        ("apply", POINTER(c_int)),
        ("update", POINTER(c_int)),
        ("flush", POINTER(c_int)),
        ("restart", POINTER(c_int)),
        ("unknowns", c_int64),
        ("p", POINTER(c_int)),
        ("delta", POINTER(c_int)),
        ("multigrid", POINTER(MultigridState)),
        ("z", POINTER(c_int)),
        ("smooth", POINTER(c_int)),
        ("power", POINTER(c_int)),
        ("normal", POINTER(AssembledState)),
        ("solve", c_void_p),
        ("solver", c_void_p),
    ]


class PcgState(ctypes.Structure):
    """As native/pcg.h."""

    _fields_ = [
        ("max_iterations", c_int64),
        ("min_iterations", c_int64),
        ("reset_period", c_int64),
        ("eta", c_double),
        ("r_tolerance", c_double),
        ("precision", c_double),
        ("slice", c_double),
        ("time_left", c_double),
        ("k", c_int64),
        ("status", c_int64),
        ("resume", c_int64),
        ("resumed", c_int64),
        ("rho", c_double),
        ("rho_0", c_double),
        ("alpha", c_double),
        ("beta", c_double),
        ("pAp", c_double),
        ("Q", c_double),
        ("zeta", c_double),
        ("k_seen", c_int64),
        ("rho_seen", c_double),
        ("Q_seen", c_double),
        ("trace", c_void_p),
    ]


def declare_signatures(library: ctypes.CDLL) -> None:
    """Of the functions of a compiled program."""
    library.optpy_run.argtypes = [POINTER(Context), c_int, c_void_p, c_int, c_int64, c_void_p]
    library.optpy_run.restype = None
    library.optpy_pcg.argtypes = [POINTER(Context), POINTER(PcgKernels), POINTER(PcgState), c_void_p, c_int]
    library.optpy_pcg.restype = None
    if hasattr(library, "optpy_multigrid"):
        library.optpy_multigrid.argtypes = [POINTER(Context), POINTER(PcgKernels), c_void_p, c_int]
        library.optpy_multigrid.restype = None
    if hasattr(library, "optpy_assemble"):
        library.optpy_assemble.argtypes = [POINTER(Context), POINTER(AssembledState), c_int, c_int]
        library.optpy_assemble.restype = None
