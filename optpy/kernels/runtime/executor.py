"""The executor on the CPU: a compiled program with its memory, called through ctypes."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection, Mapping
from ctypes import Array, c_double
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.ir import Field, Group, Hypergraph
from optpy.kernels.codegen.symbol_table import SegmentList
from optpy.kernels.runtime.buffers import Buffers
from optpy.kernels.runtime.calls import GroupCall
from optpy.kernels.runtime.context import Context
from optpy.kernels.runtime.cpu import CpuLibrary
from optpy.kernels.runtime.segments import all_segments, in_slabs, longest_segment, solved_segments, weighted_segments
from optpy.kernels.runtime.tables import Connectivity

ACCESSES_PER_THREAD = 2**16
"""Below so many loads and stores for each (ten microseconds), another thread costs more than it does."""


@final
@dataclass(frozen=True, slots=True)
class _FieldAddresses:
    """The addresses of fields, as tables for native code.

    Attributes:
        memory: see ``Buffers``.
        field, plane: of each field, by their numbers, the address and the elements from channel to channel.
    """

    memory: dict[Field, NDArray[Any]]
    field: NDArray[np.int64]
    plane: NDArray[np.int64]
    addresses: tuple[int, int]

    @classmethod
    def of(cls, memory: dict[Field, NDArray[Any]]) -> _FieldAddresses:
        arrays = memory.values()
        field = np.array([array.ctypes.data for array in arrays], np.int64)
        plane = np.array([array.strides[0] // array.itemsize for array in arrays], np.int64)
        return cls(memory, field, plane, (field.ctypes.data, plane.ctypes.data))


@final
class CpuExecutor:
    """Runs the kernels of a program on its memory.

    Args:
        library: the program, compiled.
        buffers: the storage of its fields.
        threads: how many threads to use at most.
    """

    def __init__(
        self,
        library: CpuLibrary,
        buffers: Buffers,
        threads: int,
    ) -> None:
        self.library = library
        self.program = program = library.program
        self.buffers = buffers
        self.threads = threads
        self._scalar_numbers = {name: n for n, name in enumerate(library.scalars)}
        symbols = program.symbols
        self._size = np.array([buffers.sizes[d] for d in symbols.sizes], np.int64)
        self._pitch = np.array([buffers.pitch[g] for g in symbols.grids], np.int64)
        self._param = np.zeros(max(len(symbols.params), 1))
        self._lists: list[NDArray[Any]] = [np.zeros(0, np.int64)] * len(symbols.lists)
        self._segments = np.zeros(len(symbols.lists), np.int64)
        self._count = np.zeros(len(symbols.lists), np.int64)
        self._partials: list[NDArray[np.float64]] = [np.zeros(1)] * len(symbols.reductions)
        self._partial = np.zeros(max(len(symbols.reductions), 1), np.int64)
        self._no_scalars = (c_double * len(self._scalar_numbers))()
        self._tables: list[NDArray[np.int32]] = [np.zeros(1, np.int32)] * len(symbols.tables)
        self._table = np.zeros(max(len(symbols.tables), 1), np.int64)
        context = (
            self._size, self._pitch, self._segments, self._count, self._param, self._partial,
            self._table,
        )  # fmt: skip
        kernels = ctypes.addressof(library.kernels)
        self._context = Context(None, None, *(t.ctypes.data for t in context), kernels, len(symbols.fields))
        self._accesses = [self._accesses_of(k) for k in range(len(program.numbers.lists))]
        self._addresses: list[_FieldAddresses] = []
        self._located: dict[Field, NDArray[Any]] | None = None
        self._calls: dict[Group, GroupCall] = {}
        self._product_threads: int | None = None  # not known yet
        self._run = library.loops.optpy_run
        self._kept: dict[Group, dict[str, float]] = {}

    def _locate(self) -> None:
        """Tell the native context where the fields stand now: mostly where they did two exchanges ago."""
        memory = self.buffers.memory
        if memory is self._located:
            return
        found = next((found for found in self._addresses if found.memory is memory), None)
        if found is None:
            found = _FieldAddresses.of(memory)
            self._addresses = [*self._addresses[-1:], found]
        self._context.field, self._context.plane = found.addresses
        self._located = memory

    def set_params(self, params: Mapping[str, float]) -> None:
        for name, n in self.program.symbols.params.items():
            self._param[n] = params[name]

    def set_connectivity(self, graphs: Mapping[Hypergraph, Connectivity]) -> None:
        """The graphs that kernels follow: all those that the program has tables of."""
        for key, n in self.program.symbols.tables.items():
            self._tables[n] = graphs[key.graph].table(key)
            self._table[n] = self._tables[n].ctypes.data

    def set_points(self, graphs: Mapping[Hypergraph, Connectivity]) -> None:
        """Find the points that each list visits: where conditions of ``fixed`` are evaluated, those that are left."""
        for number, of in enumerate(self.program.symbols.lists):
            if not of.solved_only:
                self.set_segments(number, self._segments_of(of, graphs))
        self.run(Group.SOLVED)
        for number, of in enumerate(self.program.symbols.lists):
            if of.solved_only:
                self.set_segments(number, self._segments_of(of, graphs))

    def _segments_of(self, of: SegmentList, graphs: Mapping[Hypergraph, Connectivity]) -> NDArray[Any]:
        mask = self.program.numbers.solved.get(of.dims)
        rows, length = self.buffers.shape(of.dims)
        longest = longest_segment(rows * length, of.dense)
        if of.solved_only and mask is not None:
            segments = solved_segments(self.buffers.view(mask)[0], longest)
        else:
            segments = all_segments(rows, length, longest)
        if not of.incidences:
            return in_slabs(segments, self.buffers.sizes[of.dims[-2]]) if of.beside else segments
        edges = np.zeros([self.buffers.sizes[d] for d in of.dims], np.int64)
        for graph, slot, axes in of.incidences:
            degrees = graphs[graph].degrees(slot).reshape(graphs[graph].shapes[slot])
            degrees = degrees.transpose(np.argsort(axes))
            edges += np.expand_dims(degrees, [n for n in range(len(of.dims)) if n not in axes])
        return weighted_segments(segments, edges.ravel(), length)

    def set_segments(self, number: int, segments: NDArray[Any]) -> None:
        """The points that the kernels of a list visit; makes room for their sums."""
        self._calls.clear()  # another number of threads may be worth its while
        self._product_threads = None
        self._lists[number] = segments
        self._segments[number] = segments.ctypes.data
        self._count[number] = len(segments)
        numbers = self.program.numbers
        for kernel, of in enumerate(numbers.lists):
            if of == number:
                first = numbers.reductions[kernel]
                for n in range(first, first + len(numbers.sums[kernel])):
                    self._partials[n] = np.zeros(max(len(segments), 1))
                    self._partial[n] = self._partials[n].ctypes.data

    @property
    def xp(self) -> Any:
        """NumPy."""
        return np

    @property
    def dtype(self) -> str:
        return self.program.dtype

    @property
    def groups(self) -> Collection[Group]:
        """The groups that the program has."""
        return self.program.groups

    def queue(self, group: Group, scalars: Mapping[str, float] | None = None, repeat: int = 1) -> None:
        """Run a group, and keep its totals."""
        self._kept[group] = self.run(group, scalars, repeat)

    def totals(self, group: Group) -> dict[str, float]:
        """The totals of a group that has been queued."""
        return self._kept[group]

    def wait(self) -> None:
        """Nothing is ever left to be done."""

    def host(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array itself."""
        return array

    def run(self, group: Group, scalars: Mapping[str, float] | None = None, repeat: int = 1) -> dict[str, float]:
        """Run the kernels of a group, ``repeat`` times each.

        Args:
            group: of the program; one that it does not have does nothing.
            scalars: run-time scalars by name; the others are 0.

        Returns:
            The totals of the group's reductions by name: sums, or largest magnitudes, over all its kernels.
        """
        call = self._calls.get(group) or self._call(group)
        if not call.kernels:
            return {}
        self._locate()
        values = self._no_scalars if scalars is None else self._scalar_array(scalars)
        kernels, threads, totals = call.kernels, call.threads, call.totals
        self._run(self._context, kernels, threads, len(kernels), values, repeat, totals)
        return call.found()

    def _call(self, group: Group) -> GroupCall:
        self.library.need([group])
        kernels = self.program.groups.get(group, ())
        threads = [self._threads_for(kernel) for kernel in kernels]
        call = GroupCall.of(kernels, threads, [self.program.numbers.sums[kernel] for kernel in kernels])
        self._calls[group] = call
        return call

    @property
    def context(self) -> Context:
        """The structure by which native code finds the memory, with the fields where they stand now."""
        self._locate()
        return self._context

    @property
    def no_scalars(self) -> Array[c_double]:
        """The run-time scalars, all 0."""
        return self._no_scalars

    @property
    def product_threads(self) -> int:
        """Threads that a product with J^T J is worth."""
        if self._product_threads is None:
            self._product_threads = max(map(self._threads_for, self.program.groups[Group.PRODUCT]), default=1)
        return self._product_threads

    def _threads_for(self, kernel: int) -> int:
        segments = self._lists[self.program.numbers.lists[kernel]]
        work = int(segments[-1]["before"] + segments[-1]["work"]) if len(segments) else 0
        return max(1, min(self.threads, work * self._accesses[kernel] // ACCESSES_PER_THREAD))

    def _accesses_of(self, kernel: int) -> int:
        """Loads and stores at each point; those under a local sum as often as it loops (edges count as points)."""
        accesses, loops = self.program.traffic[kernel]
        return accesses * max((math.prod(d.at(self.buffers.sizes) for d in dims) for dims in loops), default=1)

    def _scalar_array(self, scalars: Mapping[str, float]) -> Array[c_double]:
        values = (c_double * len(self._scalar_numbers))()
        for name, value in scalars.items():
            values[self._scalar_numbers[name]] = value
        return values
