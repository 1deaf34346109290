"""The structure by which native code finds a program's memory, for Python to fill in."""

from __future__ import annotations

import ctypes

from optpy.kernels.codegen.kernel_header import CONTEXT, KERNEL, SEGMENT


class Segment(ctypes.Structure):
    """A run of points of one row."""

    _fields_ = SEGMENT.fields


class Context(ctypes.Structure):
    """The addresses of all arrays."""

    _fields_ = CONTEXT.fields


class KernelEntry(ctypes.Structure):
    """A kernel, as native code that runs it knows it."""

    _fields_ = KERNEL.fields
