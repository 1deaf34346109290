"""What an energy is compiled to, on the CPU and on a GPU, and how data is bound to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, final

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
from optpy.energy.energy import Energy
from optpy.errors import DeviceMemoryError, EnergyError
from optpy.ir import Coupling, Dim, NormalMatrix, Routine, loops, tangent
from optpy.kernels.codegen.cuda.program import CudaProgram, build_cuda_program
from optpy.kernels.codegen.lower import Kernel
from optpy.kernels.codegen.program import Program, build_program
from optpy.kernels.runtime.buffers import CUDA, Buffers, planned_bytes
from optpy.kernels.runtime.capacity import memory_error
from optpy.kernels.runtime.cpu import CpuLibrary
from optpy.kernels.runtime.cuda.bound import BoundCuda, CudaLibrary
from optpy.kernels.runtime.cuda.device import Device
from optpy.kernels.runtime.library import BoundProgram
from optpy.kernels.runtime.tables import table_bytes
from optpy.linear.cuda_solver import CudaLinearSolver
from optpy.linear.solver import LinearSolver

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
    def loops(self) -> Sequence[Sequence[loops.Function]]: ...

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

    def problem(self, energy: Energy, sizes: Mapping[Dim, int], threads: int) -> CompiledProblem:
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

    def problem(self, energy: Energy, sizes: Mapping[Dim, int], threads: int) -> CompiledProblem:
        buffers = Buffers(self.program.slots, sizes, self.program.dtype)
        bound = BoundProgram(self.library, buffers, threads)
        linear = LinearSolver(bound, energy.unknown_fields)
        return CompiledProblem(bound, energy, linear)


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

    def problem(self, energy: Energy, sizes: Mapping[Dim, int], threads: int) -> CompiledProblem:
        with self.current():
            return self._problem(energy, sizes)

    def _problem(self, energy: Energy, sizes: Mapping[Dim, int]) -> CompiledProblem:
        """Raises DeviceMemoryError, with the sizes that would fit, where these do not."""
        device, program = self.library.device, self.program
        # Needed only where something is to be explained, and with multigrid.
        later = [residual_field(r) for r in energy.residual_terms]
        later += [vector("z", u) for u in energy.unknown_fields]

        def needs(sizes: Mapping[Dim, int], dtype: str) -> int:
            tables = table_bytes(program.slots.tables, sizes)
            return planned_bytes(program.slots, sizes, dtype, CUDA, later) + tables

        free = device.free_memory()
        if needs(sizes, program.dtype) > free:  # before anything is allocated
            raise memory_error(needs, sizes, program.dtype, free, device.name)
        try:
            buffers = Buffers(program.slots, sizes, program.dtype, self.xp, CUDA, later)
            bound = BoundCuda(self.library, buffers)
            return CompiledProblem(bound, energy, CudaLinearSolver(bound, energy.unknown_fields))
        except MemoryError as error:  # free memory in pieces, or another process was faster
            free = device.free_memory()
            if needs(sizes, program.dtype) > free:
                raise memory_error(needs, sizes, program.dtype, free, device.name) from error
            needed = f"the solve needs {needs(sizes, program.dtype):,} bytes"
            raise DeviceMemoryError(f"{needed}, and though more seem free on {device.name}: {error}") from error


def on_one_grid(energy: Energy) -> bool:
    """Whether the unknowns have a multigrid on their grid, whatever the data: the one that runs on every device.

    Raises:
        EnergyError: as ``derive``.
    """
    key = "on one grid"
    if key not in energy.compiled:
        with _at_the_energy(energy):
            found = coupling(linearised(energy.residual_terms), [tangent(u) for u in energy.unknown_fields])
        energy.compiled[key] = isinstance(found, Coupling) and not found.edges
    return bool(energy.compiled[key])


@final
@dataclass(frozen=True, slots=True)
class Derived(Generic[_P]):
    """What becomes of an energy before any compiler runs: its routines, and the program printed from them."""

    routines: ProblemRoutines
    program: _P


def derive(energy: Energy, dtype: str, form: EdgeForm | None = None) -> Derived[Program]:
    """Differentiate, schedule and print an energy for the CPU.

    Args:
        energy: what to minimise.
        dtype: "float32" or "float64".
        form: what all residuals over graphs store, in place of what is cheapest for each.

    Raises:
        EnergyError: a constant in the energy or in its derivatives is too large.
    """

    def printed(r: ProblemRoutines) -> Program:
        return build_program(r.groups, dtype, SOLVER_SCALARS, AT_LINEARISATION, AT_UNKNOWNS, r.coupling, r.normal)

    return _derived(energy, form, printed)


def derive_cuda(
    energy: Energy, dtype: str, form: EdgeForm | None = None, scatter: Scatter = False
) -> Derived[CudaProgram]:
    """Differentiate, schedule and print an energy for GPUs.

    Args:
        energy, dtype, form: see ``derive``.
        scatter: whether residuals over graphs may be added up by atomics (see ``problem_routines``).
    """

    def printed(r: ProblemRoutines) -> CudaProgram:
        groups = {name: routines for name, routines in r.groups.items() if _runs_on_gpus(name)}
        return build_cuda_program(groups, dtype, SOLVER_SCALARS, AT_LINEARISATION, AT_UNKNOWNS, r.coupling)

    return _derived(energy, form, printed, scatter)


def _runs_on_gpus(group: str) -> bool:
    """Preconditioners on an assembled matrix are native code."""
    return group != "normal" and not group.endswith("_stored")


def _derived(
    energy: Energy, form: EdgeForm | None, printed: Callable[[ProblemRoutines], _P], scatter: Scatter = False
) -> Derived[_P]:
    with _at_the_energy(energy):
        routines = problem_routines(energy.residual_terms, energy.unknown_fields, energy.fixed, form, scatter)
        return Derived(routines, printed(routines))


@contextmanager
def _at_the_energy(energy: Energy) -> Iterator[None]:
    """What goes wrong with the derivatives is told with the energy's own line."""
    try:
        yield
    except EnergyError as error:
        raise EnergyError(str(error), energy.location) if error.location is None else error from None
    except (ValueError, ArithmeticError) as error:  # constants that are finite, but whose squares are not
        raise EnergyError(f"the derivatives of the energy cannot be formed: {error}", energy.location) from error


def cpu_backend(energy: Energy, dtype: str, form: EdgeForm | None = None) -> CpuBackend:
    """Compile an energy for the CPU; the arguments are those of ``derive``.

    Raises:
        EnergyError, CompileError
    """
    started = time.perf_counter()
    program = derive(energy, dtype, form).program
    seconds = time.perf_counter() - started
    library = CpuLibrary(program, SOLVER_SCALARS)
    if isinstance(program.normal, NormalMatrix):
        library.solvers()  # now, so that no solve waits for a compiler
    return CpuBackend(library, seconds)


def cuda_backend(
    energy: Energy, dtype: str, device: Device, form: EdgeForm | None = None, scatter: Scatter = False
) -> CudaBackend:
    """Compile an energy for a GPU; the other arguments are those of ``derive_cuda``.

    Raises:
        EnergyError, CompileError
    """
    started = time.perf_counter()
    program = derive_cuda(energy, dtype, form, scatter).program
    seconds = time.perf_counter() - started
    library = CudaLibrary(program, device)
    library.prepare("int")  # what the compiler refuses should be told now
    return CudaBackend(library, seconds)
