"""The memory that kernels work on: rows padded; channels apart, or side by side on grids that graphs point into.

The channels of a point that stand side by side are a record. On GPUs records that graphs read are padded to whole
vector loads; nothing ever reads the padding as data, and what is stored there is 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from optpy.ir import REAL, Dim, Field
from optpy.kernels.codegen.slots import Dims, Slots

_LINE = 64
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
    """How fields lie in memory, as a processor likes it."""

    @property
    def alignment(self) -> int:
        """Bytes: fields begin at multiples of it."""

    def pitch(self, rows: int, length: int) -> int:
        """Elements from one row of a grid to the next."""

    def plane(self, points: int, slot: int, itemsize: int) -> int:
        """Elements from one channel to the next, or of each channel where they stand side by side."""

    def record(self, channels: int, itemsize: int, gathered: bool) -> int:
        """Elements from one point to the next where channels stand side by side.

        Args:
            channels: of the field.
            itemsize: bytes of an element.
            gathered: whether the field is read through graphs.
        """

    def lead(self, slot: int) -> int:
        """Bytes left free before a field: a multiple of the alignment."""

    def spare(self, slot: int) -> int:
        """Bytes allocated beyond a field itself: enough for its alignment and its lead."""


@final
@dataclass(frozen=True, slots=True)
class CPULayout:
    """Whole cache lines; fields, planes and rows begin at different sets of the cache."""

    alignment: int = _LINE

    def pitch(self, rows: int, length: int) -> int:
        return row_pitch(length)

    def plane(self, points: int, slot: int, itemsize: int) -> int:
        # Planes start at different cache sets, and hold one more line than they need: see row_pitch.
        line = _LINE // itemsize
        return -(-points // line) * line + line * (1 + slot % 7)

    def record(self, channels: int, itemsize: int, gathered: bool) -> int:
        return channels

    def lead(self, slot: int) -> int:
        return _LINE * (slot % 61)

    def spare(self, slot: int) -> int:
        return 2 * _LINE * (1 + slot % 61)


@final
@dataclass(frozen=True, slots=True)
class CUDALayout:
    """A warp's 32 elements of a row lie in as few sectors as they can, and planes begin where vector loads may."""

    alignment: int = 256

    def pitch(self, rows: int, length: int) -> int:
        return -(-length // 32) * 32 if rows > 1 else length

    def plane(self, points: int, slot: int, itemsize: int) -> int:
        return -(-points // 64) * 64

    def record(self, channels: int, itemsize: int, gathered: bool) -> int:
        # A gather costs its loads, and the sectors of 32 bytes that it touches: records are padded to whole loads, of
        # which none straddles two sectors. A sweep costs bytes: what is only swept over is not padded.
        if not gathered:
            return channels
        width = min(widest_load(itemsize), 1 << (channels - 1).bit_length())
        return -(-channels // width) * width

    def lead(self, slot: int) -> int:
        return 0

    def spare(self, slot: int) -> int:
        return self.alignment


def widest_load(itemsize: int) -> int:
    """Elements that one instruction of a GPU loads: 16 bytes, and four at most."""
    return min(4, 16 // itemsize)


def record_length(f: Field, slots: Slots, dtype: str, layout: Layout) -> int:
    """Elements of a point of a field that stand side by side, padding included; 1 where its channels are apart."""
    if f.dims not in slots.interleaved:
        return 1
    return layout.record(f.channels, storage_dtype(f, dtype).itemsize, f in slots.gathered)


CPU = CPULayout()
CUDA = CUDALayout()


@final
class Buffers:
    """The storage of every field of a program at given sizes.

    Args:
        slots: the program's numbering.
        sizes: of every dim.
        dtype: the solver's precision.
        xp: the module of the arrays: NumPy, or CuPy for memory of the current GPU.
        layout: that suits where the memory is.
        later: fields that get their memory by ``provide``.

    Attributes:
        memory: of each field, in the order of the slots, (channels, plane), in whichever order that stands in memory;
            where records are padded, (elements of a record, plane).
            To exchange fields it is replaced as a whole, see ``swapped``.
    """

    def __init__(
        self,
        slots: Slots,
        sizes: Mapping[Dim, int],
        dtype: str,
        xp: Any = np,
        layout: Layout = CPU,
        later: Collection[Field] = (),
    ) -> None:
        self._xp, self._layout = xp, layout
        self._slots = slots
        self._dtype = dtype
        self.sizes = {d: sizes[d] for d in slots.sizes}
        self.pitch = {dims: layout.pitch(*self.shape(dims)) for dims in slots.grids}
        self.memory: dict[Field, Any] = {}
        for f, slot in slots.fields.items():
            self.memory[f] = xp.zeros((f.channels, 0), storage_dtype(f, dtype)) if f in later else self._new(f, slot)
        self._later = set(later)
        self._swapped: tuple[Sequence[tuple[Field, Field]], dict[Field, Any], dict[Field, Any]] = (), {}, {}

    def provide(self, fields: Iterable[Field]) -> None:
        """Allocate those of the fields that have no memory yet."""
        missing = self._later.intersection(fields)
        self.memory = {**self.memory, **{f: self._new(f, self._slots.fields[f]) for f in missing}}
        self._later -= missing

    def has(self, field: Field) -> bool:
        """Whether a field has its memory yet."""
        return field not in self._later

    def shape(self, dims: Dims) -> tuple[int, int]:
        """(rows, length) of a grid."""
        return _rows_and_length(dims, self.sizes)

    def _new(self, f: Field, slot: int) -> Any:
        dtype, layout = storage_dtype(f, self._dtype), self._layout
        plane = _plane(f, slot, self.sizes, dtype, layout)
        record = self.record(f)
        size = plane * max(record, f.channels) * dtype.itemsize
        raw = self._xp.zeros(size + layout.spare(slot), np.uint8)
        start = -_address(raw) % layout.alignment + layout.lead(slot)
        flat = raw[start : start + size].view(dtype)
        side_by_side = f.dims in self._slots.interleaved
        return flat.reshape(plane, record).T if side_by_side else flat.reshape(f.channels, plane)

    def record(self, f: Field) -> int:
        """See ``record_length``."""
        return record_length(f, self._slots, self._dtype, self._layout)

    def view(self, f: Field) -> NDArray[Any]:
        """The field as (channels, rows, length), without the padding; writable."""
        rows, length = self.shape(f.dims)
        pitch = self.pitch[f.dims]
        points = self.memory[f][: f.channels, : rows * pitch]
        view: NDArray[Any] = points.reshape(f.channels, rows, pitch)[:, :, :length]
        return view

    def write(self, f: Field, value: Any) -> None:
        """Copy in an array, of the same module, of shape (*dims, channels) or, for one channel, (*dims)."""
        rows, length = self.shape(f.dims)
        values = self._xp.moveaxis(value.reshape(rows, length, f.channels), 2, 0)
        self._xp.copyto(self.view(f), values, casting="unsafe")

    def read(self, f: Field) -> NDArray[Any]:
        """A copy as (*dims, channels), in C order, of the same module."""
        shape = tuple(self.sizes[d] for d in f.dims)
        # Not ascontiguousarray: it hands out the memory itself where that is contiguous already.
        copied: NDArray[Any] = self._xp.array(self._xp.moveaxis(self.view(f), 0, 2), order="C")
        return copied.reshape(*shape, f.channels)

    def swapped(self, pairs: Sequence[tuple[Field, Field]]) -> dict[Field, Any]:
        """The memory with the two fields of each pair, which have the same layout, exchanged.

        Of one and the same pairs, two dicts take turns: who keeps what belongs to a memory finds it by its identity.
        """
        memory, (swapped, one, other) = self.memory, self._swapped
        if swapped is pairs and memory is one:
            return other
        if swapped is not pairs or memory is not other:
            assert all(self.record(a) == self.record(b) for a, b in pairs)
            one = {**memory, **{x: memory[y] for a, b in pairs for x, y in ((a, b), (b, a))}}
            self._swapped = pairs, one, memory
        return one

    @property
    def nbytes(self) -> int:
        return sum(int(m.nbytes) for m in self.memory.values())


def planned_bytes(
    slots: Slots, sizes: Mapping[Dim, int], dtype: str, layout: Layout = CPU, later: Collection[Field] = ()
) -> int:
    """Bytes that ``Buffers`` of the same arguments allocate, without allocating them."""
    total = 0
    for f, slot in slots.fields.items():
        if f in later:
            continue
        stored = storage_dtype(f, dtype)
        numbers = max(record_length(f, slots, dtype, layout), f.channels)
        total += _plane(f, slot, sizes, stored, layout) * numbers * stored.itemsize + layout.spare(slot)
    return total


def _plane(f: Field, slot: int, sizes: Mapping[Dim, int], dtype: np.dtype[Any], layout: Layout) -> int:
    """Elements of each channel of a field, padding included."""
    rows, length = _rows_and_length(f.dims, sizes)
    return layout.plane(rows * layout.pitch(rows, length), slot, dtype.itemsize)


def _rows_and_length(dims: Dims, sizes: Mapping[Dim, int]) -> tuple[int, int]:
    lengths = [sizes[d] for d in dims] or [1]
    return math.prod(lengths[:-1]), lengths[-1]


def _address(array: Any) -> int:
    """Where an array of NumPy or CuPy begins."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def storage_dtype(f: Field, real: str) -> np.dtype[Any]:
    """How a field is stored when the solver's precision is ``real``."""
    name = {REAL: real, "bool": "uint8"}.get(f.dtype, f.dtype)
    return np.dtype(name)
