"""``compile`` and ``solve``: an energy to routines, to native code, to a solver. This module sees everything."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Self, final

import numpy as np
from numpy.typing import DTypeLike

from .backend import Backend, CompileTiming, cpu_backend, cuda_backend, on_one_grid
from .energy.binding import Bound, bind
from .energy.declarations import shape_text
from .energy.edge_form import EdgeForm
from .energy.energy import Energy
from .energy.index import describe
from .energy.problem_routines import Scatter
from .errors import OptionError
from .ir import Graph, Routine
from .kernels.capacity import room_for
from .kernels.cuda import available
from .kernels.cuda.device import Device
from .kernels.progress import telling
from .kernels.tables import Connectivity
from .problem import CompiledProblem
from .session import Session
from .solver.options import CPU_ONLY, SolveOptions, refuse_on_gpu
from .solver.result import SolveResult

DeviceName = Literal["auto", "cpu", "cuda"]
DTYPES = ("float32", "float64")
"""What is solved in."""

Stage = Literal["routine", "loops", "source"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """Options and data of a solve, checked against an energy; needs no compiled code."""

    options: SolveOptions
    bound: Bound
    seconds: float
    """For binding the data."""

    @classmethod
    def of(cls, energy: Energy, data: Mapping[str, Any], dtype: DTypeLike, options: Mapping[str, Any], xp: Any) -> Self:
        """Check everything that can be wrong in what the user gives; arrays are made those of the module ``xp``.

        A GPU must be the current one meanwhile.

        Raises:
            OptionError, DataError, DeviceMemoryError
        """
        checked = SolveOptions.of(**options)
        started = time.perf_counter()
        with room_for(data, xp):
            bound = bind(energy, data, dtype, xp)
        return cls(checked, bound, time.perf_counter() - started)


@final
class Solver:
    """A compiled energy: solves for any data of any size without compiling again. Made by ``compile``."""

    def __init__(self, energy: Energy, backend: Backend, reason: str) -> None:
        self.energy = energy
        self.device_reason = reason
        """Which device it is, and why that one."""
        self._backend = backend
        self._connectivity: dict[Graph, Connectivity] = {}

    @property
    def device(self) -> str:
        """ "cpu" or "cuda"."""
        return self._backend.device

    @property
    def timing(self) -> CompileTiming:
        """What compiling has taken so far; on a GPU, conjugate gradients are compiled when they are first needed."""
        return self._backend.timing

    def _because(self, reason: str) -> Solver:
        """The same solver with another reason for its device."""
        return Solver(self.energy, self._backend, reason)

    def __repr__(self) -> str:
        unknowns = ", ".join(f"{u} {shape_text(u)}" for u in self.energy.unknown_fields)
        terms = ", ".join(self.energy.terms)
        return f"<Solver of {unknowns} on {self.device} in {self.dtype.name}; terms {terms}>"

    def __copy__(self) -> Solver:
        return self  # it never changes

    def __deepcopy__(self, memo: object) -> Solver:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a solver holds native code and cannot be pickled: pickle the data, and let each process build and compile "
            "the energy by a function of its own (only the first one compiles: kernels are kept on disk)"
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of the unknowns and of everything computed from them; sums are float64."""
        return np.dtype(self._backend.program.dtype)

    def solve(self, data: Mapping[str, Any], **options: Any) -> SolveResult:
        """Minimise the energy from the initial values in the data.

        Args:
            data: name to array for every unknown and array, name to number for every param. Never modified.
            **options: see ``op.SolveOptions``.

        Raises:
            DataError: the data does not fit the energy, or a residual, or a derivative, is not finite at the start.
            OptionError: an option is unknown, out of range or not used by the method.
        """
        return self._solve(self._request(data, options))

    def _request(self, data: Mapping[str, Any], options: Mapping[str, Any]) -> _Request:
        with self.current():
            return _Request.of(self.energy, data, self.dtype, options, self._backend.xp)

    def _solve(self, request: _Request) -> SolveResult:
        session = self._start(request)
        session.run()
        return session.result()

    def start(self, data: Mapping[str, Any], **options: Any) -> Session:
        """Bind data and stop before the first iteration; everything stays on the device between steps.

        When this returns, all data has been copied, and the user may write to it. On a GPU the work of each call goes
        to CuPy's current stream of the solver's device: one stream at a time for a session. Who changes from one to
        another waits for the first (``stream.synchronize()``) in between.

        Args, Raises: as ``solve``, but that residuals which are not finite are found by the first ``step`` or ``run``.
        """
        return self._start(self._request(data, options))

    def _start(self, request: _Request) -> Session:
        return Session(self, request.bound, request.options, request.seconds)

    def current(self) -> AbstractContextManager[None]:
        """Within it, the solver's device is the current one of this thread."""
        return self._backend.current()

    def problem(self, bound: Bound, threads: int) -> CompiledProblem:
        """The energy with memory for the sizes of some data."""
        return self._backend.problem(self.energy, bound.sizes, threads)

    def connectivity(self, bound: Bound) -> dict[Graph, Connectivity]:
        """The tables of the graphs in the data; those of the last data where the edges are the same."""
        found: dict[Graph, Connectivity] = {}
        for g in self.energy.graphs:
            edges, last = bound.edges[g.name], self._connectivity.get(g)
            same = last is not None and last.same_as(edges, bound.sizes)
            found[g] = last if last is not None and same else Connectivity(g, edges, bound.sizes, bound.xp)
        return found

    def bind(self, problem: CompiledProblem, bound: Bound, arrays: Mapping[str, Any], rewired: bool = True) -> None:
        """Copy data into a problem of its sizes: some or all arrays, all params, and the graphs if they are others."""
        with room_for({**bound.edges, **arrays}, bound.xp):
            graphs = self.connectivity(bound) if rewired else None
            problem.bind(arrays, bound.params, graphs)
        if graphs is not None:  # not before: now the device has built the tables, for whatever stream asks next
            self._connectivity = graphs

    # -- looking inside ------------------------------------------------------------------------------------------------

    @property
    def routines(self) -> dict[str, tuple[Routine, ...]]:
        """The routines by group: "evalF", "evalJTF", "applyJTJ", "cost", ..."""
        p = self._backend.program
        return {group: tuple(p.routine(n) for n in numbers) for group, numbers in p.groups.items()}

    def source(self, name: str | None = None) -> str:
        """The generated C, or CUDA C++, of a group of routines ("applyJTJ"), or of the whole energy."""
        return self._backend.program.source if name is None else self.dump(name, stage="source")

    def dump(self, name: str, stage: Stage = "routine") -> str:
        """A group of routines as they stand after a stage of the compiler.

        Args:
            name: "evalF", "evalJTF", "applyJTJ", "cost", ...
            stage: "routine", what is computed; "loops", split into interior and border, simplified; "source", what is
                compiled.

        Raises:
            OptionError: there is no such group or stage.
        """
        p = self._backend.program
        if name not in p.groups:
            raise OptionError(f"no routine {name!r}; there are: {', '.join(sorted(p.groups))}")
        if stage == "routine":
            return "\n\n".join(str(p.routine(n)) for n in p.groups[name])
        if stage == "loops":
            return "\n\n".join(str(p.kernels[n]) for n in p.groups[name])
        if stage == "source":
            return "\n\n".join(p.functions[n] for n in p.groups[name])
        raise OptionError(f"no stage {stage!r}; there are: routine, loops, source")


def compile(
    energy: Energy, device: DeviceName = "auto", dtype: DTypeLike = np.float32, deterministic: bool = False
) -> Solver:
    """Differentiate an energy, generate its routines and compile them (or find them in the cache).

    Args:
        energy: what to minimise.
        device: "cpu"; "cuda", CuPy's current GPU; "auto", that GPU where CUDA works, else the CPU (the solver's
            ``device_reason`` says which and why).
        dtype: float32 or float64: of the unknowns and of everything computed from them. Sums are always float64.
        deterministic: on a GPU, no additions by atomics, whose order differs from run to run: residuals over graphs
            are gathered at each point instead, also where that costs more. On the CPU this is always so: the same
            bits for any number of threads.

    Raises:
        EnergyError: a constant in the energy or in its derivatives is too large for the dtype.
        OptionError: the dtype is not supported, there is no such device, or CUDA cannot run here: with the reason.
        CompileError: there is no C compiler, or a compiler fails.
    """
    name = _checked_dtype(energy, dtype)
    return _compile(energy, name, _place(device, deterministic))


def _compile(energy: Energy, dtype: str, place: _Place) -> Solver:
    key, asked = (place.key, dtype), (place.key, dtype, place.reason)
    solver = energy.compiled.get(asked)
    if solver is None:
        other = energy.compiled.get(key)  # "auto" and a device's name may mean the same, and have other reasons
        solver = build(energy, dtype, place=place) if other is None else other._because(place.reason)
        energy.compiled[key] = energy.compiled[asked] = solver
    assert isinstance(solver, Solver)
    if solver.device_reason != place.reason:  # the same device, come to in another way
        solver = energy.compiled[key] = Solver(energy, solver._backend, place.reason)
    return solver


def solve(
    energy: Energy,
    data: Mapping[str, Any],
    device: DeviceName = "auto",
    dtype: DTypeLike = np.float32,
    deterministic: bool = False,
    **options: Any,
) -> SolveResult:
    """Minimise ``cost = 1/2 sum of squares of all residuals`` over the unknowns, from their values in the data.

    The energy is compiled on first use, after the options and the data have been checked, and remembers its solver.

    Args:
        energy: what to minimise.
        data: name to array for every unknown and array, name to number for every param. Never modified.
        device, dtype, deterministic: see ``compile``.
        **options: see ``op.SolveOptions``.

    Returns:
        SolveResult: ``x`` has the unknowns by name, of the kind and shape that came in.

    Raises:
        DataError: the data does not fit the energy, or a residual, or a derivative, is not finite at the start.
        EnergyError, OptionError, CompileError: see ``compile``; also an option that is unknown or out of range.
    """
    name = _checked_dtype(energy, dtype)
    place = _place(device, deterministic, options.get("preconditioner"), energy)
    # Before compiling, which takes seconds: a mistake in the data should be found at once.
    with place.current():
        request = _Request.of(energy, data, name, options, place.xp)
    with telling(request.options.verbose > 0):
        solver = _compile(energy, name, place)
    return solver._solve(request)


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """Where a solver shall run.

    Attributes:
        gpu: the device; None for the CPU.
        reason: which that is, and why.
        deterministic: whether a GPU may not add by atomics.
    """

    gpu: Device | None
    reason: str
    deterministic: bool = False

    @property
    def key(self) -> str:
        if self.gpu is None:
            return "cpu"
        return f"cuda:{self.gpu.number}{' deterministic' if self.deterministic else ''}"

    @property
    def xp(self) -> Any:
        return np if self.gpu is None else self.gpu.xp

    def current(self) -> AbstractContextManager[None]:
        """Within it, a GPU is the current one of this thread."""
        return nullcontext() if self.gpu is None else self.gpu.current()


_CPU = _Place(None, "the CPU, as asked")


def _place(device: object, deterministic: bool, preconditioner: object = None, energy: Energy | None = None) -> _Place:
    """The device of that name; "auto" is the CPU where a preconditioner is asked for that runs only there.

    Args:
        device, deterministic: see ``compile``.
        preconditioner: what is asked for already.
        energy: what it is asked for.

    Raises:
        OptionError: there is none, or CUDA cannot run here.
    """
    if not isinstance(deterministic, bool):
        raise OptionError(f"'deterministic' must be True or False, not {deterministic!r}")
    if device == "cpu":
        return _CPU
    if device == "cuda":
        refuse_on_gpu(preconditioner)
        gpu = available.find_device()
        return _Place(gpu, f"{gpu.name} ({gpu.architecture}), as asked", deterministic)
    if device == "auto" and isinstance(preconditioner, str) and preconditioner in CPU_ONLY:
        return _Place(None, f"the CPU; preconditioner={preconditioner!r} runs there only")
    if device == "auto":
        found, reason = available.cuda_or_reason()
        if found and preconditioner == "multigrid" and energy is not None and not on_one_grid(energy):
            return _Place(None, "the CPU; preconditioner='multigrid' is sure to serve this energy only there")
        return _Place(found, reason if found else f"the CPU; {reason}", deterministic)
    asked = f"no device {device!r}" if isinstance(device, str | None) else f"{describe(device)} is no device"
    raise OptionError(f"{asked}; there are: 'auto', 'cpu', 'cuda'{_device_cure(device)}")


def _device_cure(device: object) -> str:
    """What was probably meant by what is no device."""
    if isinstance(device, Mapping):
        return ". Data is given to the solver, op.compile(energy).solve(data), or to op.solve(energy, data)"
    if not isinstance(device, str):
        return ""
    if device.lower() in ("cpu", "cuda", "auto", "gpu"):
        return f"; did you mean {device.lower().replace('gpu', 'cuda')!r}?"
    if re.fullmatch(r"cuda:\d+", device):
        return f"; 'cuda' is CuPy's current GPU: with cupy.cuda.Device({device[5:]}): ..."
    return ". Options are given by name: method='gn'" if device in ("lm", "gn") else ""


def build(
    energy: Energy, dtype: str, form: EdgeForm | None = None, place: _Place = _CPU, scatter: Scatter | None = None
) -> Solver:
    """A new solver of an energy.

    Args:
        energy: what to minimise.
        dtype: "float32" or "float64".
        form: what all residuals over graphs store, in place of what is cheapest for each.
        place: where it shall run.
        scatter: on a GPU, which residuals over graphs are added up by atomics, in place of what the place allows.

    Raises:
        EnergyError, CompileError
    """
    if place.gpu is None:
        return Solver(energy, cpu_backend(energy, dtype, form), place.reason)
    chosen = not place.deterministic if scatter is None else scatter
    return Solver(energy, cuda_backend(energy, dtype, place.gpu, form, chosen), place.reason)


def _checked_dtype(energy: Energy, dtype: DTypeLike) -> str:
    """The name of the dtype, if it is supported and the energy is one."""
    if not isinstance(energy, Energy):
        raise TypeError(f"an op.Energy is needed, not {type(energy).__name__}")
    return _real_dtype(dtype)


def _real_dtype(dtype: DTypeLike) -> str:
    if dtype is None:  # NumPy's default, which is not ours
        raise OptionError("dtype=None; use np.float32 or np.float64")
    try:
        name = np.dtype(dtype).name
    except TypeError as error:
        raise OptionError(f"dtype={dtype!r} is no dtype; use np.float32 or np.float64") from error
    if name not in DTYPES:
        raise OptionError(f"dtype={name}: the unknowns are solved for in float32 or float64")
    return name
