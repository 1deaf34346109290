"""The memory that kernels work on. Nothing ever reads its padding as data, and what is stored there is 0."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.ir import Extent, Field
from optpy.kernels.codegen.layout import CPU, Layout, point_stride, storage_dtype
from optpy.kernels.codegen.symbol_table import Dims, SymbolTable


@final
class Buffers:
    """The storage of every field of a program at given sizes.

    Args:
        symbols: the program's numbering.
        sizes: of every dim.
        dtype: the solver's precision.
        xp: the module of the arrays: NumPy, or CuPy for memory of the current GPU.
        layout: that suits where the memory is.
        later: fields that get their memory by ``provide``.

    Attributes:
        memory: of each field, by their numbers, (channels, plane), in whichever order that stands in memory;
            where channels side by side are padded, (elements of a point, plane).
            To exchange fields it is replaced as a whole, see ``swapped``.
    """

    def __init__(
        self,
        symbols: SymbolTable,
        sizes: Mapping[Extent, int],
        dtype: str,
        xp: Any = np,
        layout: Layout = CPU,
        later: Collection[Field] = (),
    ) -> None:
        self._xp, self._layout = xp, layout
        self._symbols = symbols
        self._dtype = dtype
        self.sizes = {d: sizes[d] for d in symbols.sizes}
        self.pitch = {dims: layout.pitch(*self.shape(dims)) for dims in symbols.grids}
        self.memory: dict[Field, Any] = {}
        for f, number in symbols.fields.items():
            self.memory[f] = xp.zeros((f.channels, 0), storage_dtype(f, dtype)) if f in later else self._new(f, number)
        self._later = set(later)
        self._swapped: tuple[Sequence[tuple[Field, Field]], dict[Field, Any], dict[Field, Any]] = (), {}, {}

    def provide(self, fields: Iterable[Field]) -> None:
        """Allocate those of the fields that have no memory yet."""
        missing = self._later.intersection(fields)
        self.memory = {**self.memory, **{f: self._new(f, self._symbols.fields[f]) for f in missing}}
        self._later -= missing

    def another(self, field: Field) -> Any:
        """New memory of the layout of a field, with which it may be exchanged; zeros."""
        return self._new(field, self._symbols.fields[field])

    def has(self, field: Field) -> bool:
        """Whether a field has its memory yet."""
        return field not in self._later

    def shape(self, dims: Dims) -> tuple[int, int]:
        """(rows, length) of a grid."""
        return _rows_and_length(dims, self.sizes)

    def _new(self, f: Field, number: int) -> Any:
        dtype, layout = storage_dtype(f, self._dtype), self._layout
        plane = _plane(f, number, self.sizes, dtype, layout)
        stride = self.point_stride(f)
        size = plane * max(stride, f.channels) * dtype.itemsize
        raw = self._xp.zeros(size + layout.spare(number), np.uint8)
        start = -_address(raw) % layout.alignment + layout.lead(number)
        flat = raw[start : start + size].view(dtype)
        side_by_side = f.dims in self._symbols.interleaved
        return flat.reshape(plane, stride).T if side_by_side else flat.reshape(f.channels, plane)

    def point_stride(self, f: Field) -> int:
        """See ``point_stride``."""
        return point_stride(f, self._symbols, self._dtype, self._layout)

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
            assert all(self.point_stride(a) == self.point_stride(b) for a, b in pairs)
            one = {**memory, **{x: memory[y] for a, b in pairs for x, y in ((a, b), (b, a))}}
            self._swapped = pairs, one, memory
        return one

    @property
    def nbytes(self) -> int:
        return sum(int(m.nbytes) for m in self.memory.values())


def planned_bytes(
    symbols: SymbolTable, sizes: Mapping[Extent, int], dtype: str, layout: Layout = CPU, later: Collection[Field] = ()
) -> int:
    """Bytes that ``Buffers`` of the same arguments allocate, without allocating them."""
    total = 0
    for f, number in symbols.fields.items():
        if f in later:
            continue
        stored = storage_dtype(f, dtype)
        numbers = max(point_stride(f, symbols, dtype, layout), f.channels)
        total += _plane(f, number, sizes, stored, layout) * numbers * stored.itemsize + layout.spare(number)
    return total


def _plane(f: Field, number: int, sizes: Mapping[Extent, int], dtype: np.dtype[Any], layout: Layout) -> int:
    """Elements of each channel of a field, padding included."""
    rows, length = _rows_and_length(f.dims, sizes)
    return layout.plane(rows * layout.pitch(rows, length), number, dtype.itemsize)


def _rows_and_length(dims: Dims, sizes: Mapping[Extent, int]) -> tuple[int, int]:
    lengths = [sizes[d] for d in dims] or [1]
    return math.prod(lengths[:-1]), lengths[-1]


def _address(array: Any) -> int:
    """The address of an array of NumPy or CuPy."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)
