"""``compile`` and ``solve``: an energy to routines, to native code, to a solver. This module sees everything."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Self, final

import numpy as np
from numpy.typing import DTypeLike

from optpy.api.backend import Backend, CompileTiming, Listing, cpu_backend, cuda_backend
from optpy.api.place import CPU, DeviceName, Place, place_of
from optpy.api.problem import CompiledProblem
from optpy.api.session import Session
from optpy.energy.data.binding import Bound, bind
from optpy.energy.derive.edge_form import EdgeForm
from optpy.energy.derive.problem_routines import Scatter
from optpy.energy.energy import Energy
from optpy.energy.language.declarations import shape_text
from optpy.errors import OptionError
from optpy.ir import Graph, Routine
from optpy.kernels.runtime.capacity import room_for
from optpy.kernels.runtime.tables import Connectivity
from optpy.kernels.toolchain.progress import telling
from optpy.solver.options import SolveOptions
from optpy.solver.result import SolveResult

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
    def of(
        cls, energy: Energy, data: Mapping[str, Any], dtype: str | None, options: Mapping[str, Any], xp: Any
    ) -> Self:
        """Check everything that can be wrong in what the user gives; arrays are made those of the module ``xp``.

        Where ``dtype`` is None, the data says in which precision it is solved for: ``bound.dtype``.

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
    """A compiled energy: solves for any data of any size without compiling again. Made by ``compile``.

    Args:
        energy: what to minimise.
        place: where it runs.
        dtype: "float32" or "float64"; None: for each solve or session, that which its data asks for.
        backends: what has been compiled there so far, by dtype; more is added when it is needed.
    """

    def __init__(self, energy: Energy, place: Place, dtype: str | None, backends: dict[str, Backend]) -> None:
        self.energy = energy
        self._place = place
        self._dtype = dtype
        self._backends = backends
        self._compiling = threading.Lock()  # threads that solve at once compile once
        self._connectivity: dict[Graph, Connectivity] = {}

    def backend(self, dtype: DTypeLike) -> Backend:
        """The energy compiled for one precision: now, if it has not been before."""
        name = np.dtype(dtype).name
        with self._compiling:
            if name not in self._backends:
                self._backends[name] = build_backend(self.energy, name, self._place)
            return self._backends[name]

    @property
    def device(self) -> str:
        """ "cpu" or "cuda"."""
        return "cpu" if self._place.gpu is None else "cuda"

    @property
    def device_reason(self) -> str:
        """Which device it is, and why that one."""
        return self._place.reason

    @property
    def timing(self) -> CompileTiming:
        """What compiling has taken so far, in every precision of this solver: nothing yet where no data has chosen one.

        What is compiled when it is first needed counts too: a grid's multigrid, and conjugate gradients on a GPU.
        """
        taken = [b.timing for name, b in list(self._backends.items()) if self._dtype in (name, None)]
        return CompileTiming(sum(t.derive for t in taken), sum(t.build for t in taken), all(t.cache_hit for t in taken))

    def __repr__(self) -> str:
        unknowns = ", ".join(f"{u} {shape_text(u)}" for u in self.energy.unknown_fields)
        terms = ", ".join(self.energy.terms)
        precision = self._dtype or "the precision of the data"
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
        return None if self._dtype is None else np.dtype(self._dtype)

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
        with self.current():
            return _Request.of(self.energy, data, self._dtype, options, self._place.xp)

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
        with telling(request.options.verbose > 0):
            self.backend(request.bound.dtype)  # now: compiling is no part of binding
        return Session(self, request.bound, request.options, request.seconds)

    def current(self) -> AbstractContextManager[None]:
        """Within it, the solver's device is the current one of this thread."""
        return self._place.current()

    def problem(self, bound: Bound, threads: int) -> CompiledProblem:
        """The energy with memory for the sizes of some data, in its precision."""
        return self.backend(bound.dtype).problem(self.energy, bound.sizes, threads)

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
    def _listing(self) -> Listing:
        """The program to look at: where the data chooses the precision, that of float64, whatever data there was."""
        return self.backend(self._dtype or np.float64).program

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
        if stage == "routine":
            return "\n\n".join(str(p.routine(n)) for n in p.groups[name])
        if stage == "loops":
            return "\n\n".join(str(f) for n in p.groups[name] for f in p.loops[n])
        if stage == "source":
            return "\n\n".join(p.functions[n] for n in p.groups[name])
        raise OptionError(f"no stage {stage!r}; there are: routine, loops, source")


def compile(
    energy: Energy, device: DeviceName = "auto", dtype: DTypeLike | None = None, deterministic: bool = False
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

    Raises:
        EnergyError: a constant in the energy or in its derivatives is too large for the dtype.
        OptionError: the dtype is not supported, there is no such device, or CUDA cannot run here: with the reason.
        CompileError: there is no C compiler, or a compiler fails.
    """
    name = _checked_dtype(energy, dtype)
    solver = _solver(energy, name, place_of(device, deterministic))
    if name is not None:
        solver.backend(name)
    return solver


def _solver(energy: Energy, dtype: str | None, place: Place) -> Solver:
    """That which was made before, if any. "auto" and a device's name may mean the same: they share what is compiled."""
    backends = energy.compiled.setdefault(place.key, {})
    solver = energy.compiled.setdefault((place.key, dtype, place.reason), Solver(energy, place, dtype, backends))
    assert isinstance(solver, Solver)
    return solver


def solve(
    energy: Energy,
    data: Mapping[str, Any],
    device: DeviceName = "auto",
    dtype: DTypeLike | None = None,
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
        SolveResult: ``x`` has the unknowns by name, of the kind and shape that came in; ``success`` says whether it has
            converged, ``status`` (an ``op.Status``) how it has ended.

    Raises:
        DataError: the data does not fit the energy, or a residual, or a derivative, is not finite at the start.
        EnergyError, OptionError, CompileError: see ``compile``; also an option that is unknown or out of range.
    """
    name = _checked_dtype(energy, dtype)
    place = place_of(device, deterministic, options.get("preconditioner"), energy)
    # Before compiling, which takes seconds: a mistake in the data should be found at once.
    with place.current():
        request = _Request.of(energy, data, name, options, place.xp)
    return _solver(energy, name, place)._solve(request)


def build(
    energy: Energy, dtype: str, form: EdgeForm | None = None, place: Place = CPU, scatter: Scatter | None = None
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
    return Solver(energy, place, dtype, {dtype: build_backend(energy, dtype, place, form, scatter)})


def build_backend(
    energy: Energy, dtype: str, place: Place, form: EdgeForm | None = None, scatter: Scatter | None = None
) -> Backend:
    """Compile an energy in one precision; the arguments are those of ``build``.

    Raises:
        EnergyError, CompileError
    """
    if place.gpu is None:
        return cpu_backend(energy, dtype, form)
    chosen = not place.deterministic if scatter is None else scatter
    return cuda_backend(energy, dtype, place.gpu, form, chosen)


def _checked_dtype(energy: Energy, dtype: DTypeLike | None) -> str | None:
    """The name of the dtype, if there is one, it is supported and the energy is one."""
    if not isinstance(energy, Energy):
        raise TypeError(f"an op.Energy is needed, not {type(energy).__name__}")
    return None if dtype is None else _real_dtype(dtype)


def _real_dtype(dtype: DTypeLike) -> str:
    try:
        name = np.dtype(dtype).name
    except TypeError as error:
        raise OptionError(f"dtype={dtype!r} is no dtype; use np.float32 or np.float64") from error
    if name not in DTYPES:
        raise OptionError(f"dtype={name}: the unknowns are solved for in float32 or float64")
    return name
