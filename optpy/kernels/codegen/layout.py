"""The layout of fields in memory: rows padded; channels apart, or side by side where the schedule has it so.

Channels of a point that stand side by side are interleaved. Rows, planes and fields are padded by their lengths, here
alone: these are known when data is bound, and no schedule decides on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np

from optpy.ir import REAL, Field
from optpy.kernels.codegen.symbol_table import SymbolTable

_CACHE_LINE = 64
"""Bytes of a cache line, and of the widest vector register."""


def row_pitch(length: int) -> int:
    """Elements from one row to the next: whole cache lines, and never near a multiple of 4 KiB.

    Neighbouring rows that lie a power of two apart fall on the same few sets of the cache and evict one another.
    """
    if length < 64:
        return length
    pitch = -(-length // 16) * 16
    return pitch + 16 if pitch * 4 % 1024 == 0 else pitch


class Layout(Protocol):
    """The layout of fields in memory, as a processor likes it."""

    @property
    def alignment(self) -> int:
        """Bytes: fields begin at multiples of it."""

    def pitch(self, rows: int, length: int) -> int:
        """Elements from one row of a grid to the next."""

    def plane(self, points: int, number: int, itemsize: int) -> int:
        """Elements from one channel to the next, or of each channel where they stand side by side."""

    def point_stride(self, channels: int, itemsize: int, padded: bool) -> int:
        """Elements from one point to the next where channels stand side by side.

        Args:
            channels: of the field.
            itemsize: bytes of an element.
            padded: whether points are padded to whole vector loads, if the processor has those.
        """

    def widest_add(self, itemsize: int) -> int:
        """Elements that one atomic addition adds to."""

    def lead(self, number: int) -> int:
        """Bytes left free before a field: a multiple of the alignment."""

    def spare(self, number: int) -> int:
        """Bytes allocated beyond a field itself: enough for its alignment and its lead."""


@final
@dataclass(frozen=True, slots=True)
class CPULayout:
    """Whole cache lines; fields, planes and rows begin at different sets of the cache."""

    alignment: int = _CACHE_LINE

    def pitch(self, rows: int, length: int) -> int:
        return row_pitch(length)

    def plane(self, points: int, number: int, itemsize: int) -> int:
        # Planes start at different cache sets, and hold one more line than they need: see row_pitch.
        line = _CACHE_LINE // itemsize
        return -(-points // line) * line + line * (1 + number % 7)

    def point_stride(self, channels: int, itemsize: int, padded: bool) -> int:
        return channels

    def widest_add(self, itemsize: int) -> int:
        return 1

    def lead(self, number: int) -> int:
        return _CACHE_LINE * (number % 61)

    def spare(self, number: int) -> int:
        return 2 * _CACHE_LINE * (1 + number % 61)


@final
@dataclass(frozen=True, slots=True)
class CUDALayout:
    """A warp's 32 elements of a row lie in as few sectors as they can, and planes begin where vector loads may.

    Attributes:
        adds_vectors: whether the GPU adds to 16 bytes of float32 at a time: from sm_90 on.
    """

    alignment: int = 256
    adds_vectors: bool = True

    def pitch(self, rows: int, length: int) -> int:
        return -(-length // 32) * 32 if rows > 1 else length

    def plane(self, points: int, number: int, itemsize: int) -> int:
        return -(-points // 64) * 64

    def point_stride(self, channels: int, itemsize: int, padded: bool) -> int:
        if not padded:
            return channels
        width = min(widest_load(itemsize), 1 << (channels - 1).bit_length())
        return -(-channels // width) * width

    def widest_add(self, itemsize: int) -> int:
        return 4 if self.adds_vectors and itemsize == 4 else 1

    def lead(self, number: int) -> int:
        return 0

    def spare(self, number: int) -> int:
        return self.alignment


def widest_load(itemsize: int) -> int:
    """Elements that one instruction of a GPU loads: 16 bytes, and four at most."""
    return min(4, 16 // itemsize)


def point_stride(f: Field, symbols: SymbolTable, dtype: str, layout: Layout) -> int:
    """Elements of a point of a field that stand side by side, padding included; 1 where its channels are apart."""
    if f.dims not in symbols.interleaved:
        return 1
    itemsize = storage_dtype(f, dtype).itemsize
    whole = f in symbols.gathered or (f in symbols.added and layout.widest_add(itemsize) > 1)
    return layout.point_stride(f.channels, itemsize, f.dims in symbols.padded and whole)


CPU = CPULayout()
CUDA = CUDALayout()
"""That of GPUs which have every instruction."""


def cuda_layout(architecture: str) -> CUDALayout:
    """The layout for a GPU, "sm_90".

    Where it adds to one number at a time, padding what is added to would cost sweeps bytes, and be of no use.
    """
    return CUDALayout(adds_vectors=int(architecture.removeprefix("sm_")) >= 90)


def storage_dtype(f: Field, real: str) -> np.dtype[Any]:
    """The dtype in which a field is stored when the solver's precision is ``real``."""
    name = {REAL: real, "bool": "uint8"}.get(f.dtype, f.dtype)
    return np.dtype(name)
