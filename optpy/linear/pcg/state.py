"""The structures that native conjugate gradients take, for Python to fill in."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_double, c_int, c_int64, c_void_p


class PcgKernels(ctypes.Structure):
    """As native/lines.h."""

    keeps: object
    """Alive: what ``preconditioner`` and ``omega`` point at."""

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
        ("precondition", c_void_p),
        ("preconditioner", c_void_p),
        ("omega", c_void_p),
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
