"""The compiler: from an energy to a loaded library, one step a line."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar, final
from weakref import WeakKeyDictionary

from optpy.api.backend import CpuBackend, CudaBackend
from optpy.api.warm_start import kept_program
from optpy.energy.derive.linearised_problem import linearised_problem
from optpy.energy.derive.problem_routines import ProblemRoutines, problem_routines
from optpy.energy.derive.updates import SOLVER_SCALARS
from optpy.errors import EnergyError, OptionError
from optpy.ir import Coupling, Problem, Schedule, StoredValue, Target, Uncoupled
from optpy.kernels.codegen.cuda.program import CudaProgram, cuda_program
from optpy.kernels.codegen.layout import CUDA, CUDALayout, cuda_layout
from optpy.kernels.codegen.numbering import Numbered, numbered_kernels
from optpy.kernels.codegen.one_form import in_one_form
from optpy.kernels.codegen.program import ProgramListing, c_program
from optpy.kernels.codegen.scheduled import apply_schedule
from optpy.kernels.runtime.cpu import CpuLibrary
from optpy.kernels.runtime.cuda.device import Device
from optpy.kernels.runtime.cuda.executor import CudaLibrary
from optpy.linear.pcg.native import conjugate_gradients
from optpy.scheduling.funcs import schedule_funcs, with_found_funcs
from optpy.scheduling.given import Given, as_schedule
from optpy.scheduling.schedule import schedule_linearised, schedule_routines
from optpy.scheduling.sweeps import schedule_sweeps

_P = TypeVar("_P", covariant=True)


@final
@dataclass(frozen=True, slots=True)
class Derived(Generic[_P]):
    """An energy before any compiler runs.

    Attributes:
        routines: as they were derived.
        schedule: theirs, with every decision.
        stored: the values that it has stored, with their memory.
        listing: the program printed from them.
    """

    routines: ProblemRoutines
    schedule: Schedule
    stored: tuple[StoredValue, ...]
    listing: _P


def compile_problem(
    problem: Problem,
    dtype: str,
    target: Target,
    given: Given,
    printed: Callable[[Numbered, ProblemRoutines, Schedule, str], _P],
) -> Derived[_P]:
    """The whole compiler, up to a program that is printed.

    Args:
        problem: what to minimise.
        dtype: "float32" or "float64".
        target: where it shall run.
        given: a schedule by hand.
        printed: prints kernels, with what is known of J^T J, as a program.

    Raises:
        EnergyError: a constant in the energy or in its derivatives is too large.
        OptionError: a schedule by hand cannot be.
    """
    given = as_schedule(given)
    known = _SCHEDULED.pop(problem, None)
    if known is None or known[0] != (target, given):
        known = (target, given), _scheduled(problem, target, given)
    found = known[1]
    with _told_at(problem):
        schedule = _with_sweeps(found, dtype, target, given)
        listing = printed(found.kernels, found.routines, schedule, dtype)
    return Derived(found.routines, schedule, found.stored, listing)


@final
@dataclass(frozen=True, slots=True)
class _Scheduled:
    """An energy's kernels with all of their schedule that does not depend on a precision."""

    routines: ProblemRoutines
    schedule: Schedule
    stored: tuple[StoredValue, ...]
    kernels: Numbered


_SCHEDULED: Final[WeakKeyDictionary[Problem, tuple[tuple[Target, Schedule], _Scheduled]]] = WeakKeyDictionary()
"""Findings of ``whole_schedule``, for whoever compiles the problem next, in whatever precision: they are taken out."""


def _scheduled(problem: Problem, target: Target, given: Schedule) -> _Scheduled:
    """The compiler, up to numbered kernels; the arguments are those of ``compile_problem``."""
    with _told_at(problem):
        problem = with_found_funcs(problem)
        schedule = schedule_funcs(problem, given)
        linear = linearised_problem(problem, schedule.funcs)
        schedule = schedule_linearised(linear, schedule, target, given)
        routines = problem_routines(problem, linear, schedule)
        routines = replace(routines, groups=in_one_form(routines.groups))
        schedule, stored = schedule_routines(routines, schedule, target, given)
        scheduled = apply_schedule(routines.groups, schedule, stored)
        kernels = numbered_kernels(scheduled, schedule.interleaved, schedule.padded)
        return _Scheduled(routines, schedule, stored, kernels)


def derive(problem: Problem, dtype: str, schedule: Given = ()) -> Derived[ProgramListing]:
    """Differentiate, schedule and print an energy for the CPU; the arguments are those of ``compile_problem``."""
    return compile_problem(problem, dtype, Target.CPU, schedule, _c)


def derive_cuda(
    problem: Problem, dtype: str, schedule: Given = (), target: Target = Target.GPU, layout: CUDALayout = CUDA
) -> Derived[CudaProgram]:
    """Differentiate, schedule and print an energy for GPUs; the arguments are those of ``compile_problem``.

    Args:
        layout: of fields in memory.
    """
    return compile_problem(problem, dtype, target, schedule, functools.partial(_cuda, layout=layout))


def whole_schedule(problem: Problem, dtype: str, target: Target, given: Given = ()) -> Schedule:
    """All decisions that follow from those by hand; the arguments are those of ``compile_problem``.

    What has been derived for them is kept for the next ``compile_problem``.

    Raises:
        EnergyError, OptionError: as ``compile_problem``.
    """
    given = as_schedule(given)
    found = _scheduled(problem, target, given)
    with _told_at(problem):
        schedule = _with_sweeps(found, dtype, target, given)
    _SCHEDULED[problem] = (target, given), found
    return schedule


def _with_sweeps(found: _Scheduled, dtype: str, target: Target, given: Schedule) -> Schedule:
    """The whole schedule: only on a GPU a thread has several points."""
    if not target.gpu and not given.sweeps:
        return found.schedule
    return replace(found.schedule, sweeps=schedule_sweeps(found.kernels, dtype, target, given))


def cpu_backend(problem: Problem, dtype: str, schedule: Given = ()) -> CpuBackend:
    """Print an energy for the CPU, or find its program in the cache; its kernels are compiled as they are needed.

    The arguments are those of ``compile_problem``.

    Raises:
        EnergyError, CompileError
    """
    started = time.perf_counter()
    given = as_schedule(schedule)
    derived = functools.cache(lambda: derive(problem, dtype, given))
    program = kept_program(problem, dtype, given, lambda: derived().listing.program)
    _SCHEDULED.pop(problem, None)  # where the cache had the program
    seconds = time.perf_counter() - started
    library = CpuLibrary(program, SOLVER_SCALARS, conjugate_gradients)
    return CpuBackend(library, seconds, lambda: derived().listing, lambda: derived().schedule)


def cuda_backend(
    problem: Problem, dtype: str, device: Device, schedule: Given = (), target: Target = Target.GPU
) -> CudaBackend:
    """Compile an energy for a GPU; the other arguments are those of ``compile_problem``.

    Raises:
        EnergyError, CompileError
    """
    started = time.perf_counter()
    derived = derive_cuda(problem, dtype, schedule, target, cuda_layout(device.architecture))
    seconds = time.perf_counter() - started
    library = CudaLibrary(derived.listing, device)
    library.prepare("int")  # what the compiler refuses should be told now
    return CudaBackend(library, seconds, derived.schedule)


def _c(kernels: Numbered, routines: ProblemRoutines, schedule: Schedule, dtype: str) -> ProgramListing:
    return c_program(kernels, dtype, SOLVER_SCALARS, routines.coupling, routines.normal)


def _cuda(
    kernels: Numbered, routines: ProblemRoutines, schedule: Schedule, dtype: str, layout: CUDALayout
) -> CudaProgram:
    return cuda_program(kernels, dtype, SOLVER_SCALARS, routines.coupling, schedule.sweeps, layout)


@contextmanager
def _told_at(problem: Problem) -> Iterator[None]:
    """Adds the energy's own line to errors in its derivatives."""
    try:
        yield
    except EnergyError as error:
        raise EnergyError(str(error), problem.location) if error.location is None else error from None
    except OptionError:  # of a schedule by hand
        raise
    except (ValueError, ArithmeticError) as error:  # constants that are finite, but whose squares are not
        raise EnergyError(f"the derivatives of the energy cannot be formed: {error}", problem.location) from error


_COUPLINGS: Final[WeakKeyDictionary[Problem, Coupling | Uncoupled]] = WeakKeyDictionary()
"""Answers of `coupling_of`, which has to differentiate for them."""


def coupling_of(problem: Problem) -> Coupling | Uncoupled:
    """The elements of the unknowns that an energy couples, by which it is known what solves its linear systems.

    Raises:
        EnergyError: as ``compile_problem``.
    """
    known = _COUPLINGS.get(problem)
    if known is None:
        with _told_at(problem):
            known = _COUPLINGS[problem] = linearised_problem(problem).coupling
    return known
