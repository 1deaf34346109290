"""``compile`` and ``solve``: an energy to routines, to native code, to a solver. This module sees everything."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, Self, final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import DTypeLike

from optpy.api.backend import Backend, CompileTiming, Listing
from optpy.api.compiled import AUTO, Asked, CompiledEnergy, build_backend
from optpy.api.device_choice import CPU, DeviceChoice, DeviceName, choose_device
from optpy.api.session import Session
from optpy.energy.data.binding import BoundData, bind
from optpy.energy.energy import Energy
from optpy.energy.language.declarations import shape_text
from optpy.errors import OptionError
from optpy.ir import Group, Problem, Routine, Schedule
from optpy.kernels.runtime.capacity import room_for
from optpy.kernels.runtime.threads import thread_count
from optpy.kernels.toolchain.progress import reporting
from optpy.linear.registry import check_name
from optpy.scheduling.given import Given
from optpy.solver.options import SolveOptions
from optpy.solver.result import SolveResult

DTYPES = ("float32", "float64")
"""The precisions to solve in."""

Stage = Literal["routine", "loops", "source"]

ScheduleOption = Literal["auto", "measured"] | Schedule


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """Options and data of a solve, checked against a problem; needs no compiled code."""

    options: SolveOptions
    bound: BoundData
    seconds: float
    """For binding the data."""

    @classmethod
    def of(
        cls, problem: Problem, data: Mapping[str, Any], dtype: str | None, options: Mapping[str, Any], xp: Any
    ) -> Self:
        """Check everything that can be wrong in what the user gives; arrays are made those of the module ``xp``.

        Where ``dtype`` is None, the data says in which precision it is solved for: ``bound.dtype``.

        A GPU must be the current one meanwhile.

        Raises:
            OptionError, DataError, DeviceMemoryError
        """
        check_name(options.get("preconditioner"))
        checked = SolveOptions.of(**options)
        started = time.perf_counter()
        with room_for(data, xp):
            bound = bind(problem, data, dtype, xp)
        return cls(checked, bound, time.perf_counter() - started)


@final
class Solver:
    """A compiled energy: solves for any data of any size without compiling again. Made by ``compile``.

    Args:
        compiled: what to minimise, and its native code.
    """

    def __init__(self, compiled: CompiledEnergy) -> None:
        self.compiled = compiled

    @property
    def energy(self) -> Energy:
        """The energy that is minimised."""
        return Energy.of(self.compiled.problem)

    @property
    def device(self) -> str:
        """ "cpu" or "cuda"."""
        return self.compiled.device

    @property
    def device_reason(self) -> str:
        """The device, and the reason why it was taken."""
        return self.compiled.choice.reason

    @property
    def timing(self) -> CompileTiming:
        """The time of compiling so far, in every precision: none yet where no data has chosen a precision.

        What is compiled when it is first needed counts too.
        """
        return self.compiled.timing

    def __repr__(self) -> str:
        unknowns = ", ".join(f"{u} {shape_text(u)}" for u in self.compiled.problem.unknowns)
        terms = ", ".join(self.compiled.problem.terms)
        precision = self.compiled.dtype or "the precision of the data"
        return f"<Solver of {unknowns} on {self.device} in {precision}; terms {terms}>"

    def __copy__(self) -> Solver:
        return self  # whatever it compiles serves all

    def __deepcopy__(self, memo: object) -> Solver:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a solver holds native code and cannot be pickled: pickle the data, and let each process build and compile "
            "the energy by a function of its own (only the first one compiles: kernels are kept on disk)"
        )

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The precision of the unknowns and of everything computed from them; None: it follows the data.

        Sums are float64.
        """
        dtype = self.compiled.dtype
        return None if dtype is None else np.dtype(dtype)

    def solve(self, data: Mapping[str, Any], **options: Any) -> SolveResult:
        """Minimise the energy from the initial values in the data.

        Args:
            data: name to array for every unknown and array, name to number for every param. Never modified.
            **options: see ``op.SolveOptions``.

        Returns:
            SolveResult: ``success`` says whether it has converged, ``status`` (an ``op.Status``) how it has ended.

        Raises:
            DataError: the data does not fit the energy, or a residual, or a derivative, is not finite at the start.
            OptionError: an option is unknown, out of range or not used by the method.
        """
        return self._solve(self._request(data, options))

    def _request(self, data: Mapping[str, Any], options: Mapping[str, Any]) -> _Request:
        compiled = self.compiled
        with compiled.current():
            return _Request.of(compiled.problem, data, compiled.dtype, options, compiled.choice.xp)

    def _solve(self, request: _Request) -> SolveResult:
        session = self._start(request, ahead=request.options.max_time is not None)
        session.run()
        return session.result()

    def start(self, data: Mapping[str, Any], **options: Any) -> Session:
        """Bind data and stop before the first iteration; everything stays on the device between steps.

        When this returns, all data has been copied, and the user may write to it. On a GPU the work of each call goes
        to CuPy's current stream of the solver's device: one stream at a time for a session. Who changes from one to
        another waits for the first (``stream.synchronize()``) in between.

        Args, Raises: as ``solve``, but that residuals which are not finite are found by the first ``step`` or ``run``.
        """
        return self._start(self._request(data, options), ahead=True)

    def _start(self, request: _Request, ahead: bool) -> Session:
        """Who waits for single steps, or has no time to lose, has all compiled ahead that they may need."""
        with reporting(request.options.verbose > 0):
            threads = thread_count(request.options.threads)
            backend = self.compiled.backend_for(request.bound, threads)  # now: compiling is no part of binding
            backend.prepare(request.options.method == "lm")
        return Session(self.compiled, request.bound, request.options, request.seconds, ahead)

    # -- looking inside ------------------------------------------------------------------------------------------------

    @property
    def _listing(self) -> Listing:
        return self.compiled.shown.listing

    @property
    def schedule(self) -> Schedule:
        """The schedule in force, with every decision and its reason: ``print(solver.schedule)``.

        Where the precision follows the data, it is that in float64.

        Raises:
            OptionError: it is measured on data, of which there was none yet.
        """
        return self.compiled.shown.schedule

    @property
    def routines(self) -> dict[str, tuple[Routine, ...]]:
        """The routines by group: "evalF", "evalJTF", "applyJTJ", "cost", ..."""
        p = self._listing
        return {group: tuple(p.routine(n) for n in numbers) for group, numbers in p.groups.items()}

    def source(self, name: str | None = None) -> str:
        """The generated C, or CUDA C++, of a group of routines ("applyJTJ"), or of the whole energy.

        Where the precision follows the data, it is that in float64; ``compile`` with a dtype to see the other.
        """
        return self._listing.source if name is None else self.dump(name, stage="source")

    def dump(self, name: str, stage: Stage = "routine") -> str:
        """A group of routines as they stand after a stage of the compiler.

        Args:
            name: "evalF", "evalJTF", "applyJTJ", "cost", ...
            stage: "routine", what is computed; "loops", who visits which point, with interior and border apart, and
                where each number is read and stored; "source", what is compiled.

        Raises:
            OptionError: there is no such group or stage.
        """
        p = self._listing
        if name not in p.groups:
            raise OptionError(f"no routine {name!r}; there are: {', '.join(sorted(p.groups))}")
        numbers = p.groups[Group.named(name)]
        if stage == "routine":
            return "\n\n".join(str(p.routine(n)) for n in numbers)
        if stage == "loops":
            return "\n\n".join(str(f) for n in numbers for f in p.loops[n])
        if stage == "source":
            return "\n\n".join(p.functions[n] for n in numbers)
        raise OptionError(f"no stage {stage!r}; there are: routine, loops, source")


def compile(
    energy: Energy,
    device: DeviceName = "auto",
    dtype: DTypeLike | None = None,
    deterministic: bool = False,
    schedule: ScheduleOption = "auto",
) -> Solver:
    """Differentiate an energy, generate its routines and compile them (or find them in the cache).

    Where the precision follows the data, all this is done when data first asks for a precision: by ``Solver.solve``
    or ``Solver.start``.

    Args:
        energy: what to minimise.
        device: "cpu"; "cuda", CuPy's current GPU; "auto", that GPU where CUDA works, else the CPU (the solver's
            ``device_reason`` says which and why).
        dtype: np.float32 or np.float64: of the unknowns and of everything computed from them. Sums are always float64.
            None: for each solve or session, float32 if that holds all initial values of the unknowns (of dtype float32,
            float16, bool, or integers of up to 16 bits), else float64 (lists and Python numbers are, too).
        deterministic: on a GPU, no additions by atomics, whose order differs from run to run: residuals over graphs
            are gathered at each point instead, also where that costs more. On the CPU this is always so: the same
            bits for any number of threads.
        schedule: "auto", by counted costs; an ``op.Schedule``, in which what is left out is as in "auto"; "measured":
            the ways of storing things are tried on the first data of some magnitude, for up to a minute, and the
            fastest is kept in the cache.

    Raises:
        EnergyError: a constant in the energy or in its derivatives is too large for the dtype.
        OptionError: the dtype is not supported, there is no such device, or CUDA cannot run here: with the reason; or
            the schedule has what there is not, or cannot be.
        CompileError: there is no C compiler, or a compiler fails.
    """
    name = _checked_dtype(energy, dtype)
    solver = _solver(energy, name, choose_device(device, deterministic), _checked_schedule(schedule))
    solver.compiled.prepare()
    return solver


@final
class CompiledCode:
    """The native code that has been compiled for an energy.

    Attributes:
        backends: by the key of the device and the schedule that is asked for, then by dtype.
        solvers: by the device's key and reason, the dtype, and the schedule that is asked for.
    """

    def __init__(self) -> None:
        self.backends: dict[tuple[str, Asked], dict[str, Backend]] = {}
        self.solvers: dict[tuple[str, str, str | None, Asked], Solver] = {}


COMPILED: Final[WeakKeyDictionary[Energy, CompiledCode]] = WeakKeyDictionary()
"""Each for as long as its energy lives. A solver holds the energy's problem, not the energy: else none would die."""


def _solver(energy: Energy, dtype: str | None, choice: DeviceChoice, asked: Asked) -> Solver:
    """That which was made before, if any. "auto" and a device's name may mean the same: they share what is compiled."""
    # Each `setdefault` is one operation of a dict: threads that come at once get the same solver.
    kept = COMPILED.setdefault(energy, CompiledCode())
    backends = kept.backends.setdefault((choice.key, asked), {})
    made = Solver(CompiledEnergy(energy.problem, choice, dtype, backends, asked))
    return kept.solvers.setdefault((choice.key, choice.reason, dtype, asked), made)


def solve(
    energy: Energy,
    data: Mapping[str, Any],
    device: DeviceName = "auto",
    dtype: DTypeLike | None = None,
    deterministic: bool = False,
    schedule: ScheduleOption = "auto",
    **options: Any,
) -> SolveResult:
    """Minimise ``cost = 1/2 sum of squares of all residuals`` over the unknowns, from their values in the data.

    The energy is compiled on first use, after the options and the data have been checked, and remembers its solver.

    Args:
        energy: what to minimise.
        data: name to array for every unknown and array, name to number for every param. Never modified.
        device, dtype, deterministic, schedule: see ``compile``.
        **options: see ``op.SolveOptions``.

    Returns:
        SolveResult: ``x`` has the unknowns by name, of the kind and shape that came in; ``success`` says whether it has
            converged, ``status`` (an ``op.Status``) how it has ended.

    Raises:
        DataError: the data does not fit the energy, or a residual, or a derivative, is not finite at the start.
        EnergyError, OptionError, CompileError: see ``compile``; also an option that is unknown or out of range.
    """
    name, asked = _checked_dtype(energy, dtype), _checked_schedule(schedule)
    choice = choose_device(device, deterministic, options.get("preconditioner"), energy.problem)
    # Before compiling, which takes seconds: a mistake in the data should be found at once.
    with choice.current():
        request = _Request.of(energy.problem, data, name, options, choice.xp)
    return _solver(energy, name, choice, asked)._solve(request)


def build(energy: Energy, dtype: str, schedule: Given = (), choice: DeviceChoice = CPU) -> Solver:
    """A new solver of an energy.

    Args:
        energy: what to minimise.
        dtype: "float32" or "float64".
        schedule: what is stored and how, by hand; what it leaves open is decided by the costs.
        choice: the device that it shall run on.

    Raises:
        EnergyError, CompileError
    """
    backends = {dtype: build_backend(energy.problem, dtype, choice, schedule)}
    return Solver(CompiledEnergy(energy.problem, choice, dtype, backends))


def _checked_dtype(energy: Energy, dtype: DTypeLike | None) -> str | None:
    """The name of the dtype, if there is one, it is supported and the energy is one."""
    if not isinstance(energy, Energy):
        raise TypeError(f"an op.Energy is needed, not {type(energy).__name__}")
    return None if dtype is None else _real_dtype(dtype)


def _checked_schedule(schedule: object) -> Asked:
    """The schedule that is asked for, if it is one."""
    if isinstance(schedule, Schedule):
        return schedule
    if schedule == "measured":
        return "measured"
    if schedule != "auto":
        cure = "; a text is read by op.Schedule.parse(text)" if isinstance(schedule, str) else ""
        raise OptionError(f"'schedule' must be 'auto', 'measured' or an op.Schedule, not {schedule!r}{cure}")
    return AUTO


def _real_dtype(dtype: DTypeLike) -> str:
    try:
        name = np.dtype(dtype).name
    except TypeError as error:
        raise OptionError(f"dtype={dtype!r} is no dtype; use np.float32 or np.float64") from error
    if name not in DTYPES:
        raise OptionError(f"dtype={name}: the unknowns are solved for in float32 or float64")
    return name
