"""A solve in progress: step by step, with data that may change in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NoReturn, final

import numpy as np

from optpy.api.compiled import CompiledEnergy
from optpy.api.problem import CompiledProblem
from optpy.api.unknowns import SessionUnknowns, no_unknown
from optpy.energy.data.binding import BoundData, bind_update
from optpy.errors import DataError, OptionError, OptpyError
from optpy.ir import Group, Problem
from optpy.kernels.runtime.capacity import room_for
from optpy.kernels.runtime.threads import thread_count
from optpy.kernels.toolchain.progress import reporting
from optpy.solver.iteration import IterationRecord
from optpy.solver.minimizer import Minimizer
from optpy.solver.options import OPTION_NAMES, SolveOptions
from optpy.solver.protocol import Damping
from optpy.solver.result import SolveResult, Status

_STANDSTILL = 1.0
"""A step of so many units in the last place of x, in norm, is rounding."""


@final
class Session:
    """Keeps an energy's data and the state of its solver; made by ``Solver.start``.

    ``step()`` runs one nonlinear iteration, ``run()`` all of them, ``update(...)`` changes data in place,
    ``session["Offset"]`` and ``x`` read. ``status`` says whether the solve goes on (``status.finished`` is False) or
    how it has ended (``status.success``: it has converged); ``result()`` has all that ``Solver.solve`` returns.
    Data is copied: when ``Solver.start`` or ``update`` returns, the user may write to it.

    Where an ``update`` could not be finished, the session has ended, and all these raise an ``OptpyError``: why.

    Any thread may use a session; its calls run one after the other. On a GPU each of them runs on the solver's device,
    whatever device is current, on CuPy's current stream of it: one stream at a time for a session. Who changes from
    one stream to another waits for the first (``stream.synchronize()``) in between.
    """

    def __init__(
        self,
        compiled: CompiledEnergy,
        bound: BoundData,
        options: SolveOptions,
        bind_seconds: float,
        ahead: bool = True,
    ) -> None:
        started = time.perf_counter()
        self._lock = threading.RLock()  # a session used from several threads takes one step at a time
        self._compiled = compiled
        self._options = options
        self._ahead = ahead  # all that steps may need is compiled before they are made
        self._why_ended = ""
        self._depth = 0  # of calls in the callbacks of others
        with self._running():
            self._backend = compiled.backend_for(bound, thread_count(options.threads))
            problem = self._new_problem(bound, bound.arrays)
            compiling = problem.prepare(self._options.method == "lm", self._ahead)
            self._state: _State | None = self._new_state(bound, problem, options)
        self._bind_seconds = bind_seconds + time.perf_counter() - started - compiling

    @contextmanager
    def _running(self) -> Iterator[None]:
        """One call at a time, on the solver's device whatever is current in the thread that calls."""
        with self._lock, self._compiled.current(), reporting(self._options.verbose > 0):
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    def _current_state(self) -> _State:
        if self._state is None:
            raise OptpyError(
                f"the session has ended: an update could not be finished ({self._why_ended}); start another"
            )
        return self._state

    @property
    def _problem(self) -> CompiledProblem:
        return self._current_state().problem

    @property
    def _minimizer(self) -> Minimizer:
        return self._current_state().minimizer

    @property
    def _bound(self) -> BoundData:
        return self._current_state().bound

    def _new_problem(self, bound: BoundData, arrays: Mapping[str, Any]) -> CompiledProblem:
        problem = self._compiled.instance(bound, thread_count(self._options.threads), self._backend)
        self._compiled.bind(problem, bound, arrays)
        problem.set_preconditioner(self._options.preconditioner)
        return problem

    def _new_state(self, bound: BoundData, problem: CompiledProblem, options: SolveOptions) -> _State:
        bound.release()
        # Not a method of the session: that would be a cycle, and the buffers would outlive their last user.
        read_x = partial(_copies, problem, self._compiled.problem, bound)
        precision = _STANDSTILL * float(np.finfo(bound.dtype).eps)
        return _State(bound, problem, options, Minimizer(problem, options, read_x=read_x, precision=precision))

    def _options_from_here(self) -> SolveOptions:
        """Those of the session, with the radius reached, where that is smaller and the solve had not ended.

        Otherwise an update after each step could repeat one and the same rejected step for ever.
        """
        if self.status is not Status.RUNNING or self._options.method != "lm":
            return self._options
        state, first = self._current_state(), self._first_radius()
        records = state.minimizer.iterations
        reached = records[-1].tr_radius if records else state.options.initial_radius or first
        return replace(self._options, initial_radius=min(reached, first))

    def _first_radius(self) -> float:
        return self._options.first_radius(is_fit=self._problem.is_fit)

    def __repr__(self) -> str:
        if self._state is None:
            device = self._compiled.device
            return f"<Session by {device}: ended, since an update could not be finished ({self._why_ended})>"
        records = self._minimizer.iterations
        so_far = f"iteration {records[-1].iteration}, cost {records[-1].cost:.6g}" if records else "no iteration yet"
        solver = f"{self._options.method}, {self._compiled.device}, {self._bound.dtype.name}"
        return f"<Session of {self._facts()['Unknowns']} by {solver}: {self.status.name}, {so_far}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session holds native memory and cannot be copied: start another from the data of x()")

    @property
    def status(self) -> Status:
        """RUNNING until a termination test ends the solve, and again after an ``update``.

        Of an ``op.Status``, ``finished`` says whether the solve has ended, ``success`` whether it has converged, and
        ``value`` is a sentence; that with the numbers is ``result().message``.

        Raises:
            OptpyError: an ``update`` has ended the session.
        """
        return self._minimizer.status

    def step(self) -> IterationRecord:
        """Run one nonlinear iteration; does nothing once the solve has ended (``update`` starts it anew).

        Returns:
            Its record, see ``IterationRecord``: ``cost``, ``gradient_norm``, ``accepted``, ... Where the solve has
            ended that is the last one's; where the start passes the test of the gradient, that of iteration 0.

        Raises:
            DataError: a residual is not finite at the initial values.
            KeyboardInterrupt: Ctrl-C. The session goes on: it stands at the point before this step or the one after
                it, may be read and updated, and the next step goes on from there.
        """
        with self._running():
            return self._minimizer.step()

    def run(self) -> None:
        """Iterate until a termination test ends the solve; ``status`` and ``result()`` say how it ended.

        As in ``op.solve``, Ctrl-C ends it with the status INTERRUPTED, at the best point so far.

        Raises:
            DataError: a residual is not finite at the initial values.
        """
        with self._running():
            self._minimizer.run()

    def update(self, *unnamed: Any, **data: Any) -> None:
        """Change arrays, graphs, params or unknowns; the solver starts anew from where the unknowns stand.

        Args:
            **data: by name, as in the data of ``Solver.start``; what is not named stays.

        A trust region that has become smaller than the initial one stays, unless the solve had ended.
        A size changes where everything that has it is given: the edges of a graph with the arrays over them.
        The precision stays that in which the session started, whatever the dtype of new values of the unknowns: they
        are converted, with an ``op.PrecisionWarning`` where that makes distinct values equal.

        Raises:
            DataError: an unknown name, or data that does not fit the sizes of what stays; nothing has changed then.
            OptionError: the edges, or the sizes, do not go with the preconditioner asked for; nothing has changed then.
            OptpyError: called in the session's own callback.
            DeviceMemoryError: the data does not fit into the memory of the GPU beside the session; nothing has changed
                then. Or new sizes, or tables of new edges, do not fit: the session has ended then, since the memory of
                the old ones is given up before; read ``x()`` first where that would be a loss.
        """
        self._check_names(unnamed, data)
        started = time.perf_counter()
        with self._running():
            if self._depth > 1:
                cure = "call step() in a loop, and update between two steps"
                raise OptpyError(f"the session's own callback cannot update it, in the middle of a solve: {cure}")
            with room_for(data, self._bound.xp):
                bound, changed = bind_update(self._compiled.problem, self._bound, data)
            options = self._options_from_here()
            if bound.sizes == self._bound.sizes:
                rewired = any(g.name in data for g in self._compiled.problem.graphs)
                problem = self._changed(bound, changed, rewired)
            else:
                problem = self._resized(bound, changed)
            try:
                compiling = problem.prepare(self._options.method == "lm", self._ahead)
            except BaseException as error:
                self._end(error)
                raise
            self._state = self._new_state(bound, problem, options)
        self._bind_seconds = time.perf_counter() - started - compiling

    def _check_names(self, unnamed: tuple[Any, ...], data: Mapping[str, Any]) -> None:
        if unnamed:
            raise DataError("update takes data by name: session.update(A=...), and of a dict session.update(**changed)")
        reads = self._compiled.problem
        names = [*(f.name for f in reads.fields), *(p.name for p in reads.params), *(g.name for g in reads.graphs)]
        options = [name for name in data if name in OPTION_NAMES and name not in names]
        if options:
            cure = f"options are given when a session starts, solver.start(data, {options[0]}=...)"
            raise OptionError(f"'{options[0]}' is an option, and update takes data: {cure}")

    def __setitem__(self, name: str, value: object) -> NoReturn:
        raise TypeError(f"a session's data is changed by update: session.update({name}=...)")

    def _changed(self, bound: BoundData, changed: Mapping[str, Any], rewired: bool) -> CompiledProblem:
        """The problem with other data of the same sizes."""
        problem = self._problem
        try:
            self._compiled.bind(problem, bound, changed, rewired)
        except OptionError:
            raise  # nothing has changed
        except BaseException as error:
            self._end(error)  # some of the data may be new and some old
            raise
        return problem

    def _resized(self, bound: BoundData, changed: Mapping[str, Any]) -> CompiledProblem:
        """A problem of other sizes, with what stays as the old one has it, whose memory is given up for it."""
        with room_for(changed, bound.xp):
            self._problem.check_preconditioner(bound.sizes, self._compiled.connectivity(bound))
            kept = self._problem.inputs(changed)
        self._state = None
        try:
            return self._new_problem(bound, {**kept, **changed})
        except BaseException as error:
            self._end(error)
            raise

    def _end(self, error: BaseException) -> None:
        self._state, self._why_ended = None, str(error) or type(error).__name__

    @property
    def x(self) -> SessionUnknowns:
        """The unknowns by name, used as the ``x`` of a result: ``session.x["Offset"]``, ``session.x.items()``.

        Each is copied when it is read, as the session stands then. ``session.x()`` has copies of all, of one moment.
        """
        return SessionUnknowns(self._names, self.__getitem__, self._copy_all)

    def _copy_all(self) -> dict[str, Any]:
        with self._running():
            return _copies(self._problem, self._compiled.problem, self._bound)

    def __getitem__(self, name: str) -> Any:
        """A copy of an unknown, of the kind and shape that came in.

        Raises:
            DataError: the energy has no unknown of this name.
        """
        with self._running():
            for u in self._compiled.problem.unknowns:
                if u.name == name:
                    return self._bound.give_back(name, self._problem.read(u))
        raise DataError(no_unknown(name, self._names))

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(u.name for u in self._compiled.problem.unknowns)

    def result(self) -> SolveResult:
        """The result so far: the iterations since the start or the last ``update``, and the unknowns.

        Where the solve has not ended, its status is RUNNING. Before the first step it is the state at the start: that
        is evaluated now, and not again by the step.

        Raises:
            DataError: a residual is not finite at the initial values.
        """
        with self._running():
            summary = self._minimizer.summary()
            compiling = self._backend.timing
            cache: Literal["hit", "miss"] = "hit" if compiling.cache_hit else "miss"
            timing = replace(
                summary.timing,
                compile=compiling.total,
                measure=compiling.measure,
                bind=self._bind_seconds,
                cache=cache,
            )
            return summary.result(self._copy_all(), timing, self._compiled.device, self._options, self._facts())

    def _facts(self) -> Mapping[str, str]:
        unknowns = ", ".join(f"{u.name}: {self._bound.shape(u)}" for u in self._compiled.problem.unknowns)
        return {
            "Unknowns": unknowns,
            "Sizes": ", ".join(f"{d} = {n}" for d, n in self._bound.sizes.items()),
            "Device": self._compiled.choice.reason,
            "Preconditioners used": self._problem.preconditioners,
            "Precision": f"{self._bound.dtype.name}, sums in float64",
            "Memory": f"{self._problem.nbytes / 2**20:.1f} MiB",
        }

    def benchmark(self, routine: str, repeat: int = 20) -> float:
        """Seconds for one run of a routine ("applyJTJ", ...) or one iteration of conjugate gradients ("pcg").

        Runs in native code on the bound data, at the current unknowns, with the radius that the solve begins with;
        the solve itself must be started anew by ``update`` afterwards.

        Raises:
            OptionError: there is no such routine, or ``repeat`` is less than 1.
        """
        if repeat < 1:
            raise OptionError(f"'repeat' must be at least 1, not {repeat}")
        with self._running():
            return self._benchmark(routine, repeat)

    def _benchmark(self, routine: str, repeat: int) -> float:
        options = self._options
        radius = self._first_radius() if options.method == "lm" else float("inf")
        if routine == "pcg" and options.preconditioner == "auto":  # one and the same for all iterations
            self._problem.set_preconditioner(self._problem.first_preconditioner)
        self._problem.linearise()
        self._problem.damp(Damping(radius, options.min_lm_diagonal, options.max_lm_diagonal, options.jacobi_scaling))
        if routine == "pcg":
            seconds = self._problem.benchmark_pcg(repeat)
            self._problem.set_preconditioner(options.preconditioner)
            return seconds
        groups = self._backend.groups
        if routine not in groups:
            raise OptionError(f"no routine {routine!r}; there are: pcg, {', '.join(sorted(groups))}")
        return self._problem.benchmark(Group.named(routine), repeat)


@final
@dataclass(frozen=True, slots=True)
class _State:
    """The parts of a session that an update replaces.

    Attributes:
        bound: the data's sizes, kinds and graphs; the arrays' values are the problem's own copies.
        problem: which holds all memory.
        options: the session's, with the radius to begin with.
        minimizer: of that problem.
    """

    bound: BoundData
    problem: CompiledProblem
    options: SolveOptions
    minimizer: Minimizer


def _copies(problem: CompiledProblem, of: Problem, bound: BoundData) -> dict[str, Any]:
    """All unknowns by name, of the kinds and shapes that came in."""
    return {u.name: bound.give_back(u.name, problem.read(u)) for u in of.unknowns}
