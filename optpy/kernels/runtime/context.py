"""The structure by which native code finds a program's memory, for Python to fill in."""

from __future__ import annotations

import ctypes
from ctypes import c_int64, c_void_p


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
        ("kernels", c_void_p),
        ("fields", c_int64),
    ]
