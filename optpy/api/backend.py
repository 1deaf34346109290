"""Back ends: an energy compiled for the CPU or for a GPU, to which data is bound."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol, final

import numpy as np

from optpy.api.problem import CompiledProblem
from optpy.energy.derive.routines import residual_field
from optpy.energy.derive.vectors import vector
from optpy.errors import DeviceMemoryError
from optpy.ir import Extent, Group, Problem, Routine, Schedule, VectorKind, loops
from optpy.kernels.codegen.cuda.program import CudaProgram
from optpy.kernels.codegen.lower import Kernel
from optpy.kernels.codegen.program import Program, ProgramListing
from optpy.kernels.runtime.buffers import Buffers, planned_bytes
from optpy.kernels.runtime.capacity import memory_error
from optpy.kernels.runtime.cpu import CpuLibrary
from optpy.kernels.runtime.cuda.executor import CudaExecutor, CudaLibrary
from optpy.kernels.runtime.executor import CpuExecutor
from optpy.kernels.runtime.tables import table_bytes
from optpy.linear.driver import LinearSolver
from optpy.linear.pcg.native import NativeLoop
from optpy.linear.pcg.queued import QueuedLoop


@final
@dataclass(frozen=True, slots=True)
class CompileTiming:
    """Seconds from the energy to loaded code."""

    derive: float
    """Differentiating, lowering, printing."""
    build: float
    """The compiler, or the cache."""
    cache_hit: bool
    measure: float = 0.0
    """Finding the schedule on the user's data, with the compiling of what was tried."""

    @property
    def total(self) -> float:
        """Seconds of deriving and building."""
        return self.derive + self.build


class Listing(Protocol):
    """A program with its stages, for looking inside: ``ProgramListing`` or ``CudaProgram``."""

    @property
    def groups(self) -> Mapping[Group, tuple[int, ...]]:
        """The numbers of the kernels of each group."""

    @property
    def kernels(self) -> Sequence[Kernel]:
        """The lowered routines, in the order of their numbers."""

    @property
    def loops(self) -> Sequence[Sequence[loops.Function]]:
        """The functions of each kernel in the loop IR, as they are printed."""

    @property
    def functions(self) -> Sequence[str]:
        """The text of each kernel in the target's language."""

    @property
    def source(self) -> str:
        """The whole source that is compiled."""

    @property
    def dtype(self) -> str:
        """ "float32" or "float64"."""

    def routine(self, kernel: int) -> Routine:
        """The routine that a kernel, given by its number, has been lowered from."""


class Backend(Protocol):
    """A compiled energy on some device."""

    @property
    def device(self) -> str:
        """ "cpu" or "cuda"."""

    @property
    def xp(self) -> Any:
        """The module of the device's arrays: NumPy or CuPy."""

    @property
    def groups(self) -> Collection[Group]:
        """The groups of routines that the program has."""

    @property
    def listing(self) -> Listing:
        """The program with its stages; derived now, if the cache had the program."""

    @property
    def schedule(self) -> Schedule:
        """All decisions, those of users included; made again now, if the cache had the program."""

    @property
    def timing(self) -> CompileTiming:
        """Seconds that this precision has taken to derive and to compile so far, and whether the cache had it."""

    def prepare(self, damped: bool | None) -> None:
        """Compile what solves begin with, as far as it is not.

        Args:
            damped: whether their steps are damped; None: not known.

        Raises:
            CompileError
        """

    def measured(self, seconds: float) -> Backend:
        """The same, whose schedule has taken so long to find."""

    def current(self) -> AbstractContextManager[None]:
        """Within it, the device is the current one of the thread, as all work on a problem needs it."""

    def problem(self, problem: Problem, sizes: Mapping[Extent, int], threads: int) -> CompiledProblem:
        """The energy with memory for some sizes."""


@final
@dataclass(frozen=True, slots=True)
class CpuBackend:
    """C for the processor.

    Attributes:
        library: the program, compiled as it is needed.
        derive_seconds: the time to derive the program, or to find it in the cache.
        listed: gives the program with its stages, and derives it if it was in the cache.
        scheduled: gives its schedule, likewise.
        measure_seconds: the time to find its schedule by measuring, if that is how it was found.
    """

    library: CpuLibrary
    derive_seconds: float
    listed: Callable[[], ProgramListing]
    scheduled: Callable[[], Schedule]
    device: str = "cpu"
    xp: Any = np
    measure_seconds: float = 0.0

    @property
    def program(self) -> Program:
        return self.library.program

    @property
    def groups(self) -> Collection[Group]:
        return self.program.groups

    @property
    def listing(self) -> ProgramListing:
        return self.listed()

    @property
    def schedule(self) -> Schedule:
        return self.scheduled()

    @property
    def timing(self) -> CompileTiming:
        return CompileTiming(self.derive_seconds, self.library.seconds, self.library.cache_hit, self.measure_seconds)

    def measured(self, seconds: float) -> Backend:
        return replace(self, measure_seconds=seconds)

    def prepare(self, damped: bool | None) -> None:
        self.library.need(self.program.begun_with(damped))

    def current(self) -> AbstractContextManager[None]:
        return nullcontext()

    def problem(self, problem: Problem, sizes: Mapping[Extent, int], threads: int) -> CompiledProblem:
        buffers = Buffers(self.program.symbols, sizes, self.program.dtype)
        executor = CpuExecutor(self.library, buffers, threads)
        linear = LinearSolver(NativeLoop(executor, problem.unknowns))
        return CompiledProblem(executor, problem, linear)


@final
@dataclass(frozen=True, slots=True)
class CudaBackend:
    """CUDA C++ for one GPU; its attributes are those of ``CpuBackend``."""

    library: CudaLibrary
    derive_seconds: float
    schedule: Schedule
    device: str = "cuda"
    measure_seconds: float = 0.0

    @property
    def program(self) -> CudaProgram:
        return self.library.program

    @property
    def groups(self) -> Collection[Group]:
        return self.program.groups

    @property
    def listing(self) -> CudaProgram:
        return self.program

    @property
    def xp(self) -> Any:
        return self.library.device.xp

    @property
    def timing(self) -> CompileTiming:
        return CompileTiming(self.derive_seconds, self.library.seconds, self.library.cache_hit, self.measure_seconds)

    def measured(self, seconds: float) -> Backend:
        return replace(self, measure_seconds=seconds)

    def prepare(self, damped: bool | None) -> None:
        """Nothing: a linear solve is compiled with its preconditioner, all else has been."""

    def current(self) -> AbstractContextManager[None]:
        return self.library.device.current()

    def problem(self, problem: Problem, sizes: Mapping[Extent, int], threads: int) -> CompiledProblem:
        with self.current():
            return self._problem(problem, sizes)

    def _problem(self, problem: Problem, sizes: Mapping[Extent, int]) -> CompiledProblem:
        """Raises DeviceMemoryError, with the sizes that would fit, where these do not."""
        device, program = self.library.device, self.program
        # Needed only where something is to be explained, and where a preconditioner stores z.
        later = [residual_field(r) for r in problem.residuals]
        later += [vector(VectorKind.Z, u) for u in problem.unknowns]

        def needs(sizes: Mapping[Extent, int], dtype: str) -> int:
            tables = table_bytes(program.symbols.tables, sizes)
            return planned_bytes(program.symbols, sizes, dtype, program.layout, later) + tables

        free = device.free_memory()
        if needs(sizes, program.dtype) > free:  # before anything is allocated
            raise memory_error(needs, sizes, program.dtype, free, device.name)
        try:
            buffers = Buffers(program.symbols, sizes, program.dtype, self.xp, program.layout, later)
            executor = CudaExecutor(self.library, buffers)
            return CompiledProblem(executor, problem, LinearSolver(QueuedLoop(executor, problem.unknowns)))
        except MemoryError as error:  # free memory in pieces, or another process was faster
            free = device.free_memory()
            if needs(sizes, program.dtype) > free:
                raise memory_error(needs, sizes, program.dtype, free, device.name) from error
            needed = f"the solve needs {needs(sizes, program.dtype):,} bytes"
            raise DeviceMemoryError(f"{needed}, and though more seem free on {device.name}: {error}") from error
