"""A solve in progress: step by step, with data that may change in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, final

import numpy as np

from .energy.binding import Bound, bind_update
from .errors import DataError, OptionError, OptpyError
from .kernels.threads import thread_count
from .problem import CompiledProblem
from .solver.minimizer import Minimizer
from .solver.options import SolveOptions
from .solver.protocol import Damping
from .solver.result import IterationRecord, SolveResult, Status

if TYPE_CHECKING:
    from .energy.energy import Energy
    from .plan import Solver

_STANDSTILL = 1.0
"""A step of so many units in the last place of x, in norm, is rounding."""


@final
class Session:
    """Keeps an energy's data and the state of its solver; made by ``Solver.start``.

    ``step()`` runs one nonlinear iteration, ``update(...)`` changes data in place, ``session["Offset"]`` reads.
    """

    def __init__(
        self,
        solver: Solver,
        bound: Bound,
        options: SolveOptions,
        bind_seconds: float,
    ) -> None:
        started = time.perf_counter()
        self._lock = threading.RLock()  # a session used from several threads takes one step at a time
        self._solver = solver
        self._bound = bound
        self._options = options
        self._problem = self._new_problem(bound, bound.arrays)
        self._minimizer = self._new_minimizer()
        self._bind_seconds = bind_seconds + time.perf_counter() - started

    def _new_problem(self, bound: Bound, arrays: Mapping[str, Any]) -> CompiledProblem:
        problem = self._solver.problem(bound, thread_count(self._options.threads))
        problem.bind(arrays, bound.params, self._solver.connectivity(bound))
        problem.set_preconditioner(self._options.preconditioner)
        problem.prepare(damped=self._options.method == "lm")
        return problem

    def _new_minimizer(self, options: SolveOptions | None = None) -> Minimizer:
        # Not a method of the session: that would be a cycle, and the buffers would outlive their last user.
        read_x = partial(_copies, self._problem, self._solver.energy, self._bound)
        precision = _STANDSTILL * float(np.finfo(self._solver.dtype).eps)
        return Minimizer(self._problem, options or self._options, read_x=read_x, precision=precision)

    def _options_from_here(self) -> SolveOptions:
        """Those of the session, with the radius reached, where that is smaller and the solve had not ended.

        Otherwise an update after each step could repeat one and the same rejected step for ever.
        """
        records = self._minimizer.iterations
        if self.status is not Status.RUNNING or not records or self._options.method != "lm":
            return self._options
        return replace(self._options, initial_radius=min(records[-1].tr_radius, self._options.initial_radius))

    def __repr__(self) -> str:
        facts, records = self._facts(), self._minimizer.iterations
        so_far = f"iteration {records[-1].iteration}, cost {records[-1].cost:.6g}" if records else "no iteration yet"
        solver = f"{self._options.method}, {self._solver.device}, {self._solver.dtype.name}"
        return f"<Session of {facts['Unknowns']} by {solver}: {self.status.name}, {so_far}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session holds native memory and cannot be copied: start another from the data of x()")

    @property
    def status(self) -> Status:
        """RUNNING until a termination test ends the solve."""
        return self._minimizer.status

    def step(self) -> IterationRecord:
        """Run one nonlinear iteration; does nothing once the solve has ended (``update`` starts it anew).

        Raises:
            DataError: a residual is not finite at the initial values.
        """
        with self._lock:
            return self._minimizer.step()

    def run(self) -> None:
        """Iterate until a termination test ends the solve.

        Raises:
            DataError: a residual is not finite at the initial values.
        """
        with self._lock:
            self._minimizer.run()

    def update(self, **data: Any) -> None:
        """Change arrays, graphs, params or unknowns; the solver starts anew from where the unknowns stand.

        A trust region that has become smaller than the initial one stays, unless the solve had ended.
        A size changes where everything that has it is given: the edges of a graph with the arrays over them.

        Raises:
            DataError: an unknown name, or data that does not fit the sizes of what stays.
        """
        started = time.perf_counter()
        with self._lock:
            bound, changed = bind_update(self._solver.energy, self._bound, data, self._solver.dtype)
            if bound.sizes == self._bound.sizes:
                rewired = any(g.name in data for g in self._solver.energy.graphs)
                graphs = self._solver.connectivity(bound) if rewired else None
                self._problem.bind(changed, bound.params, graphs)
            else:
                now = {u.name: self._problem.read(u) for u in self._solver.energy.unknown_fields}
                self._problem = self._new_problem(bound, {**bound.arrays, **now, **changed})
            self._bound = bound
            self._minimizer = self._new_minimizer(self._options_from_here())
        self._bind_seconds = time.perf_counter() - started

    def x(self) -> dict[str, Any]:
        """Copies of all unknowns, by name."""
        return _copies(self._problem, self._solver.energy, self._bound)

    def __getitem__(self, name: str) -> Any:
        """A copy of an unknown, of the kind and shape that came in."""
        unknowns = self._solver.energy.unknown_fields
        for u in unknowns:
            if u.name == name:
                return self._bound.give_back(name, self._problem.read(u))
        raise DataError(f"the energy has no unknown {name!r}; it has {', '.join(repr(u.name) for u in unknowns)}")

    def result(self) -> SolveResult:
        """What has been reached so far.

        Raises:
            OptpyError: nothing yet: there was no ``step`` or ``run`` since the start or the last ``update``.
        """
        if not self._minimizer.iterations:
            raise OptpyError("there is no result yet: call step() or run() first")
        summary = self._minimizer.summary()
        compiling = self._solver.timing
        cache: Literal["hit", "miss"] = "hit" if compiling.cache_hit else "miss"
        timing = replace(summary.timing, compile=compiling.total, bind=self._bind_seconds, cache=cache)
        return summary.result(self.x(), timing, self._solver.device, self._options, self._facts())

    def _facts(self) -> Mapping[str, str]:
        unknowns = ", ".join(f"{u.name}: {self._bound.shape(u)}" for u in self._solver.energy.unknown_fields)
        return {
            "Unknowns": unknowns,
            "Sizes": ", ".join(f"{d} = {n}" for d, n in self._bound.sizes.items()),
            "Device": self._solver.device_reason,
            "Preconditioners used": self._problem.preconditioners,
            "Precision": f"{self._solver.dtype.name}, sums in float64",
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
        options = self._options
        radius = options.initial_radius if options.method == "lm" else float("inf")
        if routine == "pcg" and options.preconditioner == "auto":  # one and the same for all iterations
            self._problem.set_preconditioner(self._problem.first_preconditioner)
        self._problem.linearise()
        self._problem.damp(Damping(radius, options.min_lm_diagonal, options.max_lm_diagonal, options.jacobi_scaling))
        if routine == "pcg":
            seconds = self._problem.benchmark_pcg(repeat)
            self._problem.set_preconditioner(options.preconditioner)
            return seconds
        if routine not in self._solver.routines:
            raise OptionError(f"no routine {routine!r}; there are: pcg, {', '.join(sorted(self._solver.routines))}")
        return self._problem.benchmark(routine, repeat)


def _copies(problem: CompiledProblem, energy: Energy, bound: Bound) -> dict[str, Any]:
    """All unknowns by name, of the kinds and shapes that came in."""
    return {u.name: bound.give_back(u.name, problem.read(u)) for u in energy.unknown_fields}
