"""A problem compiled for one device, in every precision that is asked for, and what is kept between its solves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Literal, final

import numpy as np
from numpy.typing import DTypeLike

from optpy.api.backend import Backend, CompileTiming
from optpy.api.device_choice import DeviceChoice
from optpy.api.measured import measured_backend, size_class
from optpy.api.pipeline import cpu_backend, cuda_backend, whole_schedule
from optpy.api.problem import CompiledProblem
from optpy.energy.data.binding import BoundData
from optpy.errors import OptionError
from optpy.ir import Hypergraph, Problem, Schedule
from optpy.kernels.runtime.capacity import room_for
from optpy.kernels.runtime.tables import Connectivity
from optpy.scheduling.given import Given

Asked = Schedule | Literal["measured"]
"""A schedule, of which what it leaves open is decided by the costs; or one that is measured on the data."""

AUTO: Final = Schedule()
"""The schedule that leaves every decision to the counted costs."""


@final
class CompiledEnergy:
    """The native code of a problem, made when a precision is first asked for.

    Args:
        problem: what to minimise.
        choice: the device that it runs on.
        dtype: "float32" or "float64"; None: for each solve or session, that which its data asks for.
        backends: what has been compiled there so far, by dtype; more is added when it is needed.
        asked: the schedule.

    Attributes:
        last_connectivity: the tables of the graphs that were bound last, for data with the same edges.
    """

    def __init__(
        self,
        problem: Problem,
        choice: DeviceChoice,
        dtype: str | None,
        backends: dict[str, Backend],
        asked: Asked = AUTO,
    ) -> None:
        self.problem = problem
        self.choice = choice
        self.dtype = dtype
        self._backends = backends
        self._asked = asked
        self._compiling = threading.Lock()  # threads that solve at once compile once
        self.last_connectivity: dict[Hypergraph, Connectivity] = {}

    def prepare(self) -> None:
        """Compile what is known without data, or at least find out that the schedule can be.

        Raises:
            EnergyError, OptionError, CompileError
        """
        if self._asked == "measured":
            return
        if self.dtype is not None:
            self.backend(self.dtype).prepare(damped=None)
        elif self._asked != AUTO:
            whole_schedule(self.problem, "float32", self.choice.target, self._asked)

    @property
    def shown(self) -> Backend:
        """The problem compiled, to look at: where the data chooses the precision, in float64, whatever data there was.

        Raises:
            OptionError: the schedule follows from data, of which there was none.
        """
        if self._asked != "measured":
            return self.backend(self.dtype or np.float64)
        if not self._backends:
            raise OptionError("schedule='measured' is known once there was data: solver.solve(data) comes first")
        return list(self._backends.values())[-1]

    def backend(self, dtype: DTypeLike) -> Backend:
        """The problem compiled for one precision by a schedule that needs no data: now, if it has not been before."""
        assert self._asked != "measured"
        name, asked = np.dtype(dtype).name, self._asked
        return self._kept(name, lambda: build_backend(self.problem, name, self.choice, asked))

    def backend_for(self, bound: BoundData, threads: int) -> Backend:
        """The problem compiled for some data, with all of its arrays: measured now, if that is asked for."""
        if self._asked != "measured":
            return self.backend(bound.dtype)
        name, sizes = bound.dtype.name, size_class(bound.sizes, threads)

        def build(schedule: Schedule) -> Backend:
            return build_backend(self.problem, name, self.choice, schedule)

        def start(backend: Backend) -> CompiledProblem:
            backend.prepare(damped=False)  # J^T J p is what is measured
            problem = self.instance(bound, threads, backend)
            self.bind(problem, bound, bound.arrays)
            return problem

        return self._kept(
            f"{name} {sizes}", lambda: measured_backend(self.problem, name, self.choice, sizes, build, start)
        )

    def _kept(self, key: str, make: Callable[[], Backend]) -> Backend:
        with self._compiling:
            if key not in self._backends:
                self._backends[key] = make()
            return self._backends[key]

    @property
    def device(self) -> str:
        """ "cpu" or "cuda"."""
        return "cpu" if self.choice.gpu is None else "cuda"

    @property
    def timing(self) -> CompileTiming:
        """The time of compiling so far, in every precision of it: none yet where no data has chosen one.

        What is compiled when it is first needed counts too.
        """
        taken = [b.timing for name, b in list(self._backends.items()) if self.dtype in (name.partition(" ")[0], None)]
        return CompileTiming(
            derive=sum(t.derive for t in taken),
            build=sum(t.build for t in taken),
            cache_hit=all(t.cache_hit for t in taken),
            measure=sum(t.measure for t in taken),
        )

    def current(self) -> AbstractContextManager[None]:
        """Within it, the solver's device is the current one of this thread."""
        return self.choice.current()

    def instance(self, bound: BoundData, threads: int, backend: Backend | None = None) -> CompiledProblem:
        """The problem with memory for the sizes of some data; compiled for them, or by the back end that is given."""
        backend = backend or self.backend_for(bound, threads)
        return backend.problem(self.problem, bound.sizes, threads)

    def connectivity(self, bound: BoundData) -> dict[Hypergraph, Connectivity]:
        """The tables of the graphs in the data; those of the last data where the edges are the same."""
        found: dict[Hypergraph, Connectivity] = {}
        for g in self.problem.graphs:
            edges, last = bound.edges[g.name], self.last_connectivity.get(g)
            same = last is not None and last.same_as(edges, bound.sizes)
            found[g] = last if last is not None and same else Connectivity(g, edges, bound.sizes, bound.xp)
        return found

    def bind(self, problem: CompiledProblem, bound: BoundData, arrays: Mapping[str, Any], rewired: bool = True) -> None:
        """Copy data into a problem of its sizes: some or all arrays, all params, and the graphs if they are others."""
        with room_for({**bound.edges, **arrays}, bound.xp):
            graphs = self.connectivity(bound) if rewired else None
            problem.bind(arrays, bound.params, graphs)
        if graphs is not None:  # not before: now the device has built the tables, for whatever stream asks next
            self.last_connectivity = graphs


def build_backend(problem: Problem, dtype: str, choice: DeviceChoice, schedule: Given = ()) -> Backend:
    """Compile a problem in one precision.

    Args:
        problem: what to minimise.
        dtype: "float32" or "float64".
        choice: the device that it shall run on.
        schedule: what is stored and how, by hand; what it leaves open is decided by the costs.

    Raises:
        EnergyError, CompileError
    """
    if choice.gpu is None:
        return cpu_backend(problem, dtype, schedule)
    return cuda_backend(problem, dtype, choice.gpu, schedule, choice.target)
