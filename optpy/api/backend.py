"""What an energy is compiled to, on the CPU and on a GPU, and how data is bound to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, final
from weakref import WeakKeyDictionary

import numpy as np

from optpy.api.problem import CompiledProblem
from optpy.energy.derive.coupling import coupling
from optpy.energy.derive.edge_form import EdgeForm
from optpy.energy.derive.problem_routines import (
    AT_LINEARISATION,
    AT_UNKNOWNS,
    ProblemRoutines,
    Scatter,
    problem_routines,
)
from optpy.energy.derive.routines import linearised, residual_field
from optpy.energy.derive.updates import SOLVER_SCALARS
from optpy.energy.derive.vectors import vector
from optpy.errors import DeviceMemoryError, EnergyError
from optpy.ir import Coupling, Dim, Problem, Routine, tangent
from optpy.kernels.codegen.cuda.program import CudaProgram, build_cuda_program
from optpy.kernels.codegen.layout import CUDA
from optpy.kernels.codegen.lower import Kernel
from optpy.kernels.codegen.program import Program, build_program
from optpy.kernels.runtime.buffers import Buffers, planned_bytes
from optpy.kernels.runtime.capacity import memory_error
from optpy.kernels.runtime.cpu import CpuLibrary
from optpy.kernels.runtime.cuda.bound import BoundCuda, CudaLibrary
from optpy.kernels.runtime.cuda.device import Device
from optpy.kernels.runtime.library import BoundProgram
from optpy.kernels.runtime.tables import table_bytes
from optpy.linear.driver import LinearSolver
from optpy.linear.pcg.native import NativeLoop, conjugate_gradients
from optpy.linear.pcg.queued import QueuedLoop
from optpy.linear.registry import compile_with_energy

_P = TypeVar("_P")


@final
@dataclass(frozen=True, slots=True)
class CompileTiming:
    """Seconds from the energy to loaded code."""

    derive: float
    """Differentiating, lowering, printing."""
    build: float
    """The compiler, or the cache."""
    cache_hit: bool

    @property
    def total(self) -> float:
        return self.derive + self.build


class Listing(Protocol):
    """A program, for looking inside: ``Program`` or ``CudaProgram``."""

    @property
    def groups(self) -> Mapping[str, tuple[int, ...]]: ...

    @property
    def kernels(self) -> Sequence[Kernel]: ...

    @property
    def functions(self) -> Sequence[str]: ...

    @property
    def source(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    def routine(self, kernel: int) -> Routine: ...


class Backend(Protocol):
    """A compiled energy on some device."""

    @property
    def device(self) -> str:
        """ "cpu" or "cuda"."""

    @property
    def xp(self) -> Any:
        """The module of the device's arrays: NumPy or CuPy."""

    @property
    def program(self) -> Listing: ...

    @property
    def timing(self) -> CompileTiming: ...

    def current(self) -> AbstractContextManager[None]:
        """Within it, the device is the current one of the thread, as all work on a problem needs it."""

    def problem(self, problem: Problem, sizes: Mapping[Dim, int], threads: int) -> CompiledProblem:
        """The energy with memory for some sizes."""


@final
@dataclass(frozen=True, slots=True)
class CpuBackend:
    """C for the processor."""

    library: CpuLibrary
    derive_seconds: float
    device: str = "cpu"
    xp: Any = np

    @property
    def program(self) -> Program:
        return self.library.program

    @property
    def timing(self) -> CompileTiming:
        return CompileTiming(self.derive_seconds, self.library.seconds, self.library.cache_hit)

    def current(self) -> AbstractContextManager[None]:
        return nullcontext()

    def problem(self, problem: Problem, sizes: Mapping[Dim, int], threads: int) -> CompiledProblem:
        buffers = Buffers(self.program.slots, sizes, self.program.dtype)
        bound = BoundProgram(self.library, buffers, threads)
        linear = LinearSolver(NativeLoop(bound, problem.unknowns))
        return CompiledProblem(bound, problem, linear)


@final
@dataclass(frozen=True, slots=True)
class CudaBackend:
    """CUDA C++ for one GPU."""

    library: CudaLibrary
    derive_seconds: float
    device: str = "cuda"

    @property
    def program(self) -> CudaProgram:
        return self.library.program

    @property
    def xp(self) -> Any:
        return self.library.device.xp

    @property
    def timing(self) -> CompileTiming:
        return CompileTiming(self.derive_seconds, self.library.seconds, self.library.cache_hit)

    def current(self) -> AbstractContextManager[None]:
        return self.library.device.current()

    def problem(self, problem: Problem, sizes: Mapping[Dim, int], threads: int) -> CompiledProblem:
        with self.current():
            return self._problem(problem, sizes)

    def _problem(self, problem: Problem, sizes: Mapping[Dim, int]) -> CompiledProblem:
        """Raises DeviceMemoryError, with the sizes that would fit, where these do not."""
        device, program = self.library.device, self.program
        # Needed only where something is to be explained, and with multigrid.
        later = [residual_field(r) for r in problem.residuals]
        later += [vector("z", u) for u in problem.unknowns]

        def needs(sizes: Mapping[Dim, int], dtype: str) -> int:
            tables = table_bytes(program.slots.tables, sizes)
            return planned_bytes(program.slots, sizes, dtype, CUDA, later) + tables

        free = device.free_memory()
        if needs(sizes, program.dtype) > free:  # before anything is allocated
            raise memory_error(needs, sizes, program.dtype, free, device.name)
        try:
            buffers = Buffers(program.slots, sizes, program.dtype, self.xp, CUDA, later)
            bound = BoundCuda(self.library, buffers)
            return CompiledProblem(bound, problem, LinearSolver(QueuedLoop(bound, problem.unknowns)))
        except MemoryError as error:  # free memory in pieces, or another process was faster
            free = device.free_memory()
            if needs(sizes, program.dtype) > free:
                raise memory_error(needs, sizes, program.dtype, free, device.name) from error
            needed = f"the solve needs {needs(sizes, program.dtype):,} bytes"
            raise DeviceMemoryError(f"{needed}, and though more seem free on {device.name}: {error}") from error


_ON_ONE_GRID: Final[WeakKeyDictionary[Problem, bool]] = WeakKeyDictionary()
"""What `on_one_grid` has found: it differentiates."""


def on_one_grid(problem: Problem) -> bool:
    """Whether the unknowns have a multigrid on their grid, whatever the data: the one that runs on every device.

    Raises:
        EnergyError: as ``derive``.
    """
    known = _ON_ONE_GRID.get(problem)
    if known is None:
        with _at_the_energy(problem):
            found = coupling(linearised(problem.residuals), [tangent(u) for u in problem.unknowns])
        known = _ON_ONE_GRID[problem] = isinstance(found, Coupling) and not found.edges
    return known


@final
@dataclass(frozen=True, slots=True)
class Derived(Generic[_P]):
    """What becomes of an energy before any compiler runs: its routines, and the program printed from them."""

    routines: ProblemRoutines
    program: _P


def derive(problem: Problem, dtype: str, form: EdgeForm | None = None) -> Derived[Program]:
    """Differentiate, schedule and print an energy for the CPU.

    Args:
        problem: what to minimise.
        dtype: "float32" or "float64".
        form: what all residuals over graphs store, in place of what is cheapest for each.

    Raises:
        EnergyError: a constant in the energy or in its derivatives is too large.
    """

    def printed(r: ProblemRoutines) -> Program:
        return build_program(r.groups, dtype, SOLVER_SCALARS, AT_LINEARISATION, AT_UNKNOWNS, r.coupling, r.normal)

    return _derived(problem, form, printed)


def derive_cuda(
    problem: Problem, dtype: str, form: EdgeForm | None = None, scatter: Scatter = False
) -> Derived[CudaProgram]:
    """Differentiate, schedule and print an energy for GPUs.

    Args:
        problem, dtype, form: see ``derive``.
        scatter: whether residuals over graphs may be added up by atomics (see ``problem_routines``).
    """

    def printed(r: ProblemRoutines) -> CudaProgram:
        groups = {name: routines for name, routines in r.groups.items() if _runs_on_gpus(name)}
        return build_cuda_program(groups, dtype, SOLVER_SCALARS, AT_LINEARISATION, AT_UNKNOWNS, r.coupling)

    return _derived(problem, form, printed, scatter)


def _runs_on_gpus(group: str) -> bool:
    """Preconditioners on an assembled matrix are native code."""
    return group != "normal" and not group.endswith("_stored")


def _derived(
    problem: Problem, form: EdgeForm | None, printed: Callable[[ProblemRoutines], _P], scatter: Scatter = False
) -> Derived[_P]:
    with _at_the_energy(problem):
        routines = problem_routines(problem, form, scatter)
        return Derived(routines, printed(routines))


@contextmanager
def _at_the_energy(problem: Problem) -> Iterator[None]:
    """What goes wrong with the derivatives is told with the energy's own line."""
    try:
        yield
    except EnergyError as error:
        raise EnergyError(str(error), problem.location) if error.location is None else error from None
    except (ValueError, ArithmeticError) as error:  # constants that are finite, but whose squares are not
        raise EnergyError(f"the derivatives of the energy cannot be formed: {error}", problem.location) from error


def cpu_backend(problem: Problem, dtype: str, form: EdgeForm | None = None) -> CpuBackend:
    """Compile an energy for the CPU; the arguments are those of ``derive``.

    Raises:
        EnergyError, CompileError
    """
    started = time.perf_counter()
    program = derive(problem, dtype, form).program
    seconds = time.perf_counter() - started
    library = CpuLibrary(program, SOLVER_SCALARS, conjugate_gradients)
    compile_with_energy(library)
    return CpuBackend(library, seconds)


def cuda_backend(
    problem: Problem, dtype: str, device: Device, form: EdgeForm | None = None, scatter: Scatter = False
) -> CudaBackend:
    """Compile an energy for a GPU; the other arguments are those of ``derive_cuda``.

    Raises:
        EnergyError, CompileError
    """
    started = time.perf_counter()
    program = derive_cuda(problem, dtype, form, scatter).program
    seconds = time.perf_counter() - started
    library = CudaLibrary(program, device)
    library.prepare("int")  # what the compiler refuses should be told now
    return CudaBackend(library, seconds)
