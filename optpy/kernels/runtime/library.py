"""A compiled program bound to memory: calling kernels and the native conjugate gradient loop through ctypes."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from ctypes import Array, c_char, c_double, c_int
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from optpy.ir import Coupling, Field, Graph, NormalMatrix, Routine
from optpy.kernels.codegen.slots import SegmentList
from optpy.kernels.runtime.buffers import Buffers
from optpy.kernels.runtime.calls import GroupCall
from optpy.kernels.runtime.context import Context, PcgKernels, PcgState
from optpy.kernels.runtime.cpu import CpuLibrary
from optpy.kernels.runtime.segments import all_segments, solved_segments, weighted_segments
from optpy.kernels.runtime.tables import Connectivity
from optpy.linear.aggregation.aggregation import Aggregation
from optpy.linear.assembled.assembly import AssembledMatrix
from optpy.linear.assembled.assembly import places as row_places
from optpy.linear.cholesky.factorisation import Factorisation
from optpy.linear.multigrid.levels import Multigrid, MultigridState
from optpy.linear.multigrid.levels import places as grid_places
from optpy.linear.solvers import AssembledSolve, address

_ACCESSES_PER_THREAD = 2**16
"""Below so many loads and stores for each (ten microseconds), another thread costs more than it does."""


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """Where fields stand: tables for native code, and their addresses.

    Attributes:
        memory: see ``Buffers``.
        field, plane: of each field, in the order of the slots, the address and the elements from channel to channel.
    """

    memory: dict[Field, NDArray[Any]]
    field: NDArray[np.int64]
    plane: NDArray[np.int64]
    addresses: tuple[int, int]

    @classmethod
    def of(cls, memory: dict[Field, NDArray[Any]]) -> _Place:
        arrays = memory.values()
        field = np.array([array.ctypes.data for array in arrays], np.int64)
        plane = np.array([array.strides[0] // array.itemsize for array in arrays], np.int64)
        return cls(memory, field, plane, (field.ctypes.data, plane.ctypes.data))


@final
class BoundProgram:
    """A program with its memory.

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
        slots = program.slots
        self._size = np.array([buffers.sizes[d] for d in slots.sizes], np.int64)
        self._pitch = np.array([buffers.pitch[g] for g in slots.grids], np.int64)
        self._param = np.zeros(max(len(slots.params), 1))
        self._lists: list[NDArray[Any]] = [np.zeros(0, np.int64)] * len(slots.lists)
        self._segments = np.zeros(len(slots.lists), np.int64)
        self._count = np.zeros(len(slots.lists), np.int64)
        self._partials: list[NDArray[np.float64]] = [np.zeros(1)] * len(slots.reductions)
        self._partial = np.zeros(max(len(slots.reductions), 1), np.int64)
        self._no_scalars = (c_double * len(self._scalar_numbers))()
        self._tables: list[NDArray[np.int32]] = [np.zeros(1, np.int32)] * len(slots.tables)
        self._table = np.zeros(max(len(slots.tables), 1), np.int64)
        context = (
            self._size, self._pitch, self._segments, self._count, self._param, self._partial,
            self._table,
        )  # fmt: skip
        kernels = ctypes.addressof(c_char.in_dll(library.kernels, "optpy_kernels"))
        self._context = Context(None, None, *(t.ctypes.data for t in context), kernels, len(slots.fields))
        self._accesses = [self._accesses_of(k) for k in range(len(program.kernels))]
        self._places: list[_Place] = []
        self._located: dict[Field, NDArray[Any]] | None = None
        self._calls: dict[str, GroupCall] = {}
        self._run = library.loops.optpy_run
        self._kept: dict[str, dict[str, float]] = {}

    def _locate(self) -> None:
        """Tell the native context where the fields stand now: mostly where they did two exchanges ago."""
        memory = self.buffers.memory
        if memory is self._located:
            return
        place = next((place for place in self._places if place.memory is memory), None)
        if place is None:
            place = _Place.of(memory)
            self._places = [*self._places[-1:], place]
        self._context.field, self._context.plane = place.addresses
        self._located = memory

    def set_params(self, params: Mapping[str, float]) -> None:
        for name, n in self.program.slots.params.items():
            self._param[n] = params[name]

    def set_connectivity(self, graphs: Mapping[Graph, Connectivity]) -> None:
        """The graphs that kernels follow: all those that the program has tables of."""
        for key, n in self.program.slots.tables.items():
            self._tables[n] = graphs[key.graph].table(key)
            self._table[n] = self._tables[n].ctypes.data

    def set_points(self, graphs: Mapping[Graph, Connectivity]) -> None:
        """Find the points that each list visits: where conditions of ``fixed`` are evaluated, those that are left."""
        for number, of in enumerate(self.program.slots.lists):
            if not of.solved_only:
                self.set_segments(number, self._segments_of(of, graphs))
        self.run("solved")
        for number, of in enumerate(self.program.slots.lists):
            if of.solved_only:
                self.set_segments(number, self._segments_of(of, graphs))

    def _segments_of(self, of: SegmentList, graphs: Mapping[Graph, Connectivity]) -> NDArray[Any]:
        mask = self.program.numbered.solved.get(of.dims)
        rows, length = self.buffers.shape(of.dims)
        if of.solved_only and mask is not None:
            segments = solved_segments(self.buffers.view(mask)[0])
        else:
            segments = all_segments(rows, length)
        if not of.incidences:
            return segments
        edges = sum(graphs[graph].degrees(slot) for graph, slot in of.incidences)
        return weighted_segments(segments, np.asarray(edges), length)

    def set_segments(self, number: int, segments: NDArray[Any]) -> None:
        """The points that the kernels of a list visit; makes room for their sums."""
        self._calls.clear()  # another number of threads may be worth its while
        self._lists[number] = segments
        self._segments[number] = segments.ctypes.data
        self._count[number] = len(segments)
        program = self.program
        for kernel, of in enumerate(program.numbered.lists):
            if of == number:
                first = program.numbered.reductions[kernel]
                for n in range(first, first + len(program.routine(kernel).reductions)):
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
    def groups(self) -> dict[str, tuple[Routine, ...]]:
        """The routines, by group."""
        return {name: tuple(map(self.program.routine, numbers)) for name, numbers in self.program.groups.items()}

    def queue(self, group: str, scalars: Mapping[str, float] | None = None, repeat: int = 1) -> None:
        """Run a group, and keep its totals."""
        self._kept[group] = self.run(group, scalars, repeat)

    def totals(self, group: str) -> dict[str, float]:
        """The totals of a group that has been queued."""
        return self._kept[group]

    def wait(self) -> None:
        """Nothing is ever left to be done."""

    def host(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array itself."""
        return array

    def run(self, group: str, scalars: Mapping[str, float] | None = None, repeat: int = 1) -> dict[str, float]:
        """Run the kernels of a group, ``repeat`` times each.

        Args:
            group: a name among ``program.groups``.
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

    def _call(self, group: str) -> GroupCall:
        kernels = self.program.groups.get(group, ())
        threads = [self._threads_for(kernel) for kernel in kernels]
        call = GroupCall.of(kernels, threads, [self.program.routine(kernel) for kernel in kernels])
        self._calls[group] = call
        return call

    def pcg_kernels(
        self, unknowns: Sequence[tuple[Field, Field]], damped: bool, preconditioner: Literal["", "_block"]
    ) -> PcgKernels:
        """The lines of the conjugate gradient loop.

        Args:
            unknowns: the fields (p, delta) of each unknown.
            damped: whether A = J^T J + D, or J^T J alone.
            preconditioner: the ending of its groups' names: Jacobi's or block-Jacobi's.
        """
        kernels = self._lines(unknowns, damped, preconditioner)
        return PcgKernels(**kernels)

    def multigrid_kernels(
        self, unknowns: Sequence[tuple[Field, Field]], damped: bool, z: Sequence[Field], multigrid: Multigrid
    ) -> PcgKernels:
        """The lines of the conjugate gradient loop with multigrid.

        Args:
            unknowns, damped: as for ``pcg_kernels``.
            z: the field z of each unknown.
            multigrid: the memory of its levels.
        """
        kernels = self._lines(unknowns, damped, "_multigrid")
        program, state = self.program, multigrid.state
        assert isinstance(program.coupling, Coupling)
        for vector, elements in program.coupling.vectors.items():
            setattr(state, vector, grid_places(elements, program.slots))
        state.z_of = _ints([program.slots.fields[f] for f in z])
        state.smooth, state.power = _ints(program.groups["smooth_multigrid"]), _ints(program.groups["power_multigrid"])
        found = PcgKernels(
            **kernels,
            precondition=address(self.library.multigrid().optpy_apply_multigrid),
            preconditioner=ctypes.addressof(state),
            omega=ctypes.addressof(state) + MultigridState.omega.offset,
        )
        found.keeps = multigrid
        return found

    def assembled_kernels(
        self,
        unknowns: Sequence[tuple[Field, Field]],
        damped: bool,
        matrix: AssembledMatrix,
        solver: Aggregation,
    ) -> PcgKernels:
        """The lines of the conjugate gradient loop with a solver that works on the assembled matrix.

        Args:
            unknowns, damped: as for ``pcg_kernels``.
            matrix: J^T J + D.
            solver: what has been built from it.
        """
        kernels = self._lines(unknowns, damped, "_stored")
        solve = AssembledSolve(ctypes.pointer(matrix.state), ctypes.pointer(solver.state))
        found = PcgKernels(
            **kernels,
            precondition=address(self.library.solvers().library.optpy_apply_aggregation),
            preconditioner=ctypes.addressof(solve),
        )
        found.keeps = (solve, matrix, solver)
        return found

    def _lines(self, unknowns: Sequence[tuple[Field, Field]], damped: bool, suffix: str) -> dict[str, Any]:
        groups, slots = self.program.groups, self.program.slots
        names = ("start", "direction", "update", "flush", "restart")
        apply = groups["applyJTJ_damped" if damped else "applyJTJ"]
        return {
            "grids": len(groups[f"start{suffix}"]),
            "applied": len(apply),
            **{name: _ints(groups[f"{name}{suffix}"]) for name in names},
            "apply": _ints(apply),
            "unknowns": len(unknowns),
            "p": _ints([slots.fields[p] for p, _ in unknowns]),
            "delta": _ints([slots.fields[delta] for _, delta in unknowns]),
        }

    def pcg(self, kernels: PcgKernels, state: PcgState) -> None:
        """Run conjugate gradients until they end or ``state.slice`` seconds have passed."""
        self._locate()
        self.library.loops.optpy_pcg(
            ctypes.byref(self._context),
            ctypes.byref(kernels),
            ctypes.byref(state),
            self._no_scalars,
            self._threads_for_products(),
        )

    def build_multigrid(self, kernels: PcgKernels, multigrid: Multigrid) -> None:
        """Compute all levels for A = J^T J (+ D) as it now is."""
        self._locate()
        self.library.multigrid().optpy_multigrid(
            ctypes.byref(self._context),
            ctypes.byref(kernels),
            ctypes.byref(multigrid.state),
            self._no_scalars,
            self._threads_for_products(),
        )

    def assemble(self, matrix: AssembledMatrix, damped: bool) -> None:
        """Compute the blocks of J^T J (+ D) as it now is."""
        self.run("normal")
        self._locate()
        normal, slots, state = self.program.normal, self.program.slots, matrix.state
        assert isinstance(normal, NormalMatrix)
        state.add_row = address(self.library.kernels.optpy_add_row)
        for vector, elements in normal.vectors.items():
            setattr(state, vector, row_places(elements, slots))
        self.library.solvers().assemble(self._context, matrix, damped, self._threads_for_products())

    def aggregate(self, aggregation: Aggregation) -> None:
        """Compute all levels of an assembled matrix's multigrid."""
        self.library.solvers().aggregate(aggregation, self._threads_for_products())

    def factorise(self, factor: Factorisation, matrix: AssembledMatrix) -> None:
        """Compute the factor of an assembled matrix."""
        self.library.solvers().factorise(factor, matrix, self._threads_for_products())

    def solve_factorised(self, factor: Factorisation, b: NDArray[np.float64]) -> NDArray[np.float64]:
        """A^-1 b of the assembled matrix that has been factorised; one after the other in the order of the nodes."""
        return self.library.solvers().solve(factor, b, self._threads_for_products())

    def _threads_for_products(self) -> int:
        return max((self._threads_for(k) for k in self.program.groups["applyJTJ"]), default=1)

    def _threads_for(self, kernel: int) -> int:
        segments = self._lists[self.program.numbered.lists[kernel]]
        work = int(segments[-1]["before"] + segments[-1]["work"]) if len(segments) else 0
        return max(1, min(self.threads, work * self._accesses[kernel] // _ACCESSES_PER_THREAD))

    def _accesses_of(self, kernel: int) -> int:
        """Loads and stores at each point; those under a local sum as often as it loops (edges count as points)."""
        accesses, loops = self.program.traffic[kernel]
        return accesses * max((math.prod(self.buffers.sizes[d] for d in dims) for dims in loops), default=1)

    def _scalar_array(self, scalars: Mapping[str, float]) -> Array[c_double]:
        values = (c_double * len(self._scalar_numbers))()
        for name, value in scalars.items():
            values[self._scalar_numbers[name]] = value
        return values


def _ints(values: Sequence[int]) -> Any:
    return (c_int * len(values))(*values)
