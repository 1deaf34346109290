"""The executor on a GPU, a CUDA program with its memory: queueing its kernels, and reading the sums that they leave."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.ir import Extent, Field, Group, Hypergraph, Incidence, LoopVariable, entry_dim
from optpy.kernels.codegen.cuda.program import CudaProgram, Phase
from optpy.kernels.codegen.pcg_structures import PcgIteration
from optpy.kernels.runtime.buffers import Buffers
from optpy.kernels.runtime.cuda.context import SYNC, context_type
from optpy.kernels.runtime.cuda.device import Device, LoadedKernel, Module
from optpy.kernels.runtime.cuda.divisors import divisor
from optpy.kernels.runtime.cuda.tiles import tiles
from optpy.kernels.runtime.tables import Connectivity
from optpy.kernels.toolchain.headers import header_constant
from optpy.symbolic.affine import Affine, FloorDiv, RowNumber, TableEntry

THREADS = header_constant("kernels/cuda/prelude.cuh", "OPTPY_THREADS")
"""Of every block."""
_BLOCKS = 8
"""Blocks of so many threads that a multiprocessor holds at most."""
SHORT_INDICES = 2**31 - 2**22
"""Indices below this are counted in 32 bits, with room for the last stride of a loop."""

WARP_LENGTH, BLOCK_LENGTH = 16, 2048
"""Lengths of a point's loops from which a warp, and a block, work on it together."""


@final
class CudaLibrary:
    """The compiled modules of a program on one device; each is compiled when it is first needed.

    Args:
        program: what is compiled.
        device: where it runs.
    """

    def __init__(self, program: CudaProgram, device: Device) -> None:
        self.program = program
        self.device = device
        self._modules: dict[tuple[str, ...], Module] = {}
        self._kernels: dict[tuple[str, ...], LoadedKernel] = {}

    def prepare(self, index: str) -> None:
        """Compile the kernels of the groups.

        Raises:
            CompileError: as the others.
        """
        self._module(("routines", index), lambda: self.program.routines_source(index))

    def routine(self, name: str, index: str) -> LoadedKernel:
        """The kernel that launches a phase of a group."""
        return self.kernel(("routines", index), lambda: self.program.routines_source(index), name)

    def kernel(self, module: tuple[str, ...], source: Callable[[], str], name: str) -> LoadedKernel:
        """A kernel of a module.

        Args:
            module: what it is asked for by.
            source: makes its text.
            name: of the kernel.
        """
        found = self._kernels.get((*module, name))
        if found is None:
            found = self._kernels[(*module, name)] = self._module(module, source).kernel(name)
        return found

    def _module(self, key: tuple[str, ...], source: Callable[[], str]) -> Module:
        if key not in self._modules:
            self._modules[key] = self.device.load(source())
        return self._modules[key]

    @property
    def seconds(self) -> float:
        """That compiling and loading have taken so far."""
        return sum(m.seconds for m in self._modules.values())

    @property
    def cache_hit(self) -> bool:
        """Whether nothing had to be compiled so far."""
        return all(m.cache_hit for m in self._modules.values())


@final
@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A kernel with all that the host has to know to queue it: computed once for its data, and kept.

    Attributes:
        kernel: which.
        blocks: of its launches.
        tiles: of each grid, for so many blocks: ``Context.tiles``.
    """

    kernel: LoadedKernel
    blocks: int
    tiles: Any


@final
class CudaExecutor:
    """A program with its memory on a device.

    Work is queued on the caller's stream; ``totals`` is what waits for it.

    Args:
        library: the program, compiled for the device.
        buffers: the storage of its fields, on the device.
    """

    def __init__(self, library: CudaLibrary, buffers: Buffers) -> None:
        self.library = library
        self.program: CudaProgram = library.program
        self.device = library.device
        self.buffers = buffers
        self._scalar_numbers = {name: n for n, name in enumerate(self.program.scalars)}
        self.index = "int" if largest_index(self.program, buffers) < SHORT_INDICES else "long long"
        self._launches: dict[Hashable, Launch] = {}
        self._queues: dict[Group, tuple[Launch, ...]] = {}
        self._tiles: dict[int, Any] = {}
        xp = self.device.xp
        most = max((len(p.sums) for phases in self.program.phases.values() for p in phases), default=1)
        self._most_blocks = self.device.multiprocessors * _BLOCKS
        self._partial = xp.zeros(max(most, 2) * self._most_blocks, np.float64)  # pcg_solve has two rows
        # All that the host ever reads of a solve, side by side: one copy brings it.
        self._results = xp.zeros(8 * max(self.program.totals, 1) + ctypes.sizeof(PcgIteration), np.uint8)
        self._sync = xp.zeros(SYNC.itemsize, np.uint8)
        self._tables: dict[int, Any] = {}
        self._host: NDArray[np.uint8] | None = None
        self.context = self._new_context()
        self._tiled: Any = None
        self._located: dict[Field, Any] | None = None

    def _new_context(self) -> Any:
        c, symbols, address = context_type(self.program)(), self.program.symbols, self.device.address
        sizes = [self.buffers.sizes[d] for d in symbols.sizes]
        pitches = [self.buffers.pitch[g] for g in symbols.grids]
        c.size[: len(sizes)], c.pitch[: len(pitches)] = sizes, pitches
        c.by_size[: len(sizes)] = [divisor(n, self.index) for n in sizes]
        c.by_pitch[: len(pitches)] = [divisor(n, self.index) for n in pitches]
        c.partial, c.sync, c.total = address(self._partial), address(self._sync), address(self._results)
        c.pcg = address(self._results) + 8 * max(self.program.totals, 1)
        return c

    @property
    def nbytes(self) -> int:
        """Beside the buffers."""
        return int(self._partial.nbytes + self._results.nbytes + self._sync.nbytes)

    @property
    def xp(self) -> Any:
        """The module of the device's arrays."""
        return self.device.xp

    @property
    def dtype(self) -> str:
        return self.program.dtype

    @property
    def groups(self) -> Collection[Group]:
        """The groups that the program has."""
        return self.program.groups

    # -- what the data brings ------------------------------------------------------------------------------------------

    def set_params(self, params: Mapping[str, float]) -> None:
        for name, n in self.program.symbols.params.items():
            self.context.param[n] = params[name]

    def set_connectivity(self, graphs: Mapping[Hypergraph, Connectivity]) -> None:
        """The graphs that kernels follow: all those that the program has tables of; the work at each point is shared
        among lanes as they have edges."""
        for key, n in self.program.symbols.tables.items():
            self._tables[n] = graphs[key.graph].table(key)
            self.context.table[n] = self.device.address(self._tables[n])
        self._launches.clear()
        self._queues.clear()
        for number, kernel in enumerate(self.program.kernels):
            if any(x.loops for x in kernel.border.locals):
                self.context.lane_bits[number] = (self._lanes(number, graphs) - 1).bit_length()

    def set_points(self, graphs: Mapping[Hypergraph, Connectivity]) -> None:
        """Evaluate where something is solved for."""
        self.queue(Group.SOLVED)

    def _lanes(self, kernel: int, graphs: Mapping[Hypergraph, Connectivity]) -> int:
        routine = self.program.routine(kernel)
        lengths = []
        for x in (x for x in routine.locals if x.loops):
            outer = math.prod(i.dim.at(self.buffers.sizes) for i in x.loops[:-1] if isinstance(i, LoopVariable))
            last = x.loops[-1]
            if isinstance(last, Incidence):
                degrees = graphs[last.graph].degrees(last.slot)
                own = max(float(degrees.mean()), float(degrees.max()) / 64) if len(degrees) else 0.0
            else:
                own = float(last.dim.at(self.buffers.sizes))
            lengths.append(0.0 if own < WARP_LENGTH else own * outer)
        longest = max(lengths)
        return 1 if longest < WARP_LENGTH else 32 if longest < BLOCK_LENGTH else THREADS

    # -- queueing ------------------------------------------------------------------------------------------------------

    def queue(self, group: Group, scalars: Mapping[str, float] | None = None, repeat: int = 1) -> None:
        """Queue the kernels of a group, ``repeat`` times.

        Args:
            group: of the program; one that it does not have does nothing.
            scalars: run-time scalars by name; the others are 0.
        """
        if group not in self._queues:
            phases = self.program.phases.get(group, ())
            routine = self.library.routine
            self._queues[group] = tuple(self._launch(routine(p.launch, self.index), self._points(p)) for p in phases)
        launches = self._queues[group]
        if not launches:
            return
        self._set_scalars(scalars or {})
        for _ in range(repeat):
            for launch in launches:
                self.launch(launch)

    def kept(self, key: Hashable, kernel: Callable[[], tuple[LoadedKernel, int]]) -> Launch:
        """The launch of a kernel with as many blocks as its work takes, or as the device holds.

        Args:
            key: what it is kept under, until other graphs are bound.
            kernel: finds the kernel, and the threads that it could use.
        """
        found = self._launches.get(key)
        if found is None:
            found = self._launches[key] = self._launch(*kernel())
        return found

    def _launch(self, kernel: LoadedKernel, work: int) -> Launch:
        room = min(self.device.resident_blocks(kernel, THREADS), self._most_blocks)
        blocks = max(1, min(room, -(-work // THREADS)))
        if blocks not in self._tiles:
            self._tiles[blocks] = self._tiles_for(blocks)
        return Launch(kernel, blocks, self._tiles[blocks])

    def _tiles_for(self, blocks: int) -> Any:
        """Of all grids of several dims, by their numbers."""
        found = type(self.context.tiles)()
        for dims, number in self.program.symbols.grids.items():
            if len(dims) > 1:
                *rows, columns = (d.at(self.buffers.sizes) for d in dims)
                found[number] = tiles(math.prod(rows), columns, blocks, THREADS)
        return found

    def launch(self, launch: Launch, *, cooperative: bool = False, context: Any = None) -> None:
        """Queue a kernel.

        Args:
            launch: of which.
            cooperative: see ``Device.launch``.
            context: its argument; None: that of the program.
        """
        self._host = None
        self.locate()
        if context is None:
            context = self.context
            if self._tiled is not launch.tiles:
                context.tiles = self._tiled = launch.tiles
        self.device.launch(launch.kernel, launch.blocks, THREADS, context, cooperative)

    def launch_on(self, launch: Launch, vectors: Sequence[tuple[Field, Field]]) -> None:
        """Queue a kernel that finds other vectors in the place of its own.

        Args:
            launch: of the kernel.
            vectors: each with the one whose place it takes, and whose layout it has.
        """
        self.locate()
        symbols = self.program.symbols.fields
        context = type(self.context).from_buffer_copy(self.context)  # Ctrl-C could cut in two what puts things back
        context.tiles = launch.tiles
        for other, field in vectors:
            assert self.buffers.point_stride(other) == self.buffers.point_stride(field)
            context.field[symbols[field]] = self.context.field[symbols[other]]
            context.plane[symbols[field]] = self.context.plane[symbols[other]]
        self.launch(launch, context=context)

    def address_of(self, field: Field, channel: int) -> int:
        """The address of a channel of a field, now."""
        self.locate()
        array = self.buffers.memory[field]
        return int(self.context.field[self.program.symbols.fields[field]] + channel * array.strides[0])

    def locate(self) -> None:
        """Tell the kernels where the fields stand now, since fields exchange their memory."""
        memory = self.buffers.memory
        if memory is self._located:
            return
        for n, array in enumerate(memory.values()):  # in the order of their numbers
            self.context.field[n] = self.device.address(array)
            self.context.plane[n] = array.strides[0] // array.itemsize
        self._located = memory

    def _set_scalars(self, scalars: Mapping[str, float]) -> None:
        self.context.scalar[:] = [0.0] * len(self._scalar_numbers)
        for name, value in scalars.items():
            self.context.scalar[self._scalar_numbers[name]] = value

    def points(self, group: Group) -> int:
        """Threads that a group could use."""
        return max((self._points(p) for p in self.program.phases.get(group, ())), default=1)

    def _points(self, phase: Phase) -> int:
        return max(self._points_of(n) for n in phase.kernels)

    def _points_of(self, kernel: int) -> int:
        domain = self.program.kernels[kernel].domain
        return math.prod(self.buffers.sizes[i.dim] for i in domain) << int(self.context.lane_bits[kernel])

    # -- reading -------------------------------------------------------------------------------------------------------

    def totals(self, group: Group) -> dict[str, float]:
        """The sums of a group, and the maxima, as its last run has left them; the host waits for it."""
        values = self._read()[: 8 * max(self.program.totals, 1)].view(np.float64)
        found: dict[str, float] = {}
        for phase in self.program.phases.get(group, ()):
            for n, (name, maximum) in enumerate(phase.sums):
                value, before = float(values[phase.first + n]), found.get(name, 0.0)
                found[name] = (value if not value <= before else before) if maximum else before + value
        return found

    def pcg_iteration(self) -> PcgIteration:
        """The scalars of conjugate gradients as they stand; the host waits for them."""
        return PcgIteration.from_buffer_copy(self._read()[-ctypes.sizeof(PcgIteration) :].tobytes())

    def run(self, group: Group, scalars: Mapping[str, float] | None = None) -> dict[str, float]:
        """Queue a group, and wait for its totals."""
        self.queue(group, scalars)
        return self.totals(group)

    def wait(self) -> None:
        """Until all that is queued is done."""
        self._host = None
        self._read()

    def _read(self) -> NDArray[np.uint8]:
        """One copy for everything that has been queued since the last one."""
        if self._host is None:
            self._host = self.device.to_host(self._results)
        return self._host

    def host(self, array: Any) -> NDArray[Any]:
        """A copy in main memory."""
        return self.device.to_host(array)


def largest_index(program: CudaProgram, buffers: Buffers) -> int:
    """The largest number that addresses and affine indices may come to."""
    elements = (
        buffers.shape(f.dims)[0] * buffers.pitch[f.dims] * buffers.point_stride(f) for f in program.symbols.fields
    )
    indices = (_reach(a, buffers.sizes) for a in program.affines)
    return max(*elements, *indices, 0, 0)


def _reach(affine: Affine, sizes: Mapping[Extent, int]) -> int:
    """The largest magnitude of an affine index, and of what stands inside it."""
    total = inner = abs(affine.constant)
    for atom, coefficient in affine.terms:
        if isinstance(atom, FloorDiv):
            largest = _reach(atom.numerator, sizes)
            inner = max(inner, largest)
        elif isinstance(atom, TableEntry):
            largest = sizes[entry_dim(atom)]
            inner = max(inner, _reach(atom.row, sizes))
        elif isinstance(atom, RowNumber):
            largest = sizes[atom.table.edges]
            inner = max(inner, *(_reach(a, sizes) for a in atom.index))
        else:
            assert isinstance(atom, LoopVariable | Extent)
            largest = (atom.dim if isinstance(atom, LoopVariable) else atom).at(sizes)
        total += abs(coefficient) * largest
    return max(total, inner)
