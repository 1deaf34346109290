"""A problem compiled for one device, in every precision that is asked for, and what is kept between its solves."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike

from optpy.api.backend import Backend, CompileTiming
from optpy.api.device_choice import DeviceChoice
from optpy.api.pipeline import cpu_backend, cuda_backend
from optpy.api.problem import CompiledProblem
from optpy.energy.data.binding import BoundData
from optpy.ir import Hypergraph, Problem, Target
from optpy.kernels.runtime.capacity import room_for
from optpy.kernels.runtime.tables import Connectivity
from optpy.scheduling.schedule import Given


@final
class CompiledEnergy:
    """The native code of a problem, made when a precision is first asked for.

    Args:
        problem: what to minimise.
        choice: the device that it runs on.
        dtype: "float32" or "float64"; None: for each solve or session, that which its data asks for.
        backends: what has been compiled there so far, by dtype; more is added when it is needed.

    Attributes:
        last_connectivity: the tables of the graphs that were bound last, for data with the same edges.
    """

    def __init__(self, problem: Problem, choice: DeviceChoice, dtype: str | None, backends: dict[str, Backend]) -> None:
        self.problem = problem
        self.choice = choice
        self.dtype = dtype
        self._backends = backends
        self._compiling = threading.Lock()  # threads that solve at once compile once
        self.last_connectivity: dict[Hypergraph, Connectivity] = {}

    def backend(self, dtype: DTypeLike) -> Backend:
        """The problem compiled for one precision: now, if it has not been before."""
        name = np.dtype(dtype).name
        with self._compiling:
            if name not in self._backends:
                self._backends[name] = build_backend(self.problem, name, self.choice)
            return self._backends[name]

    @property
    def device(self) -> str:
        """ "cpu" or "cuda"."""
        return "cpu" if self.choice.gpu is None else "cuda"

    @property
    def timing(self) -> CompileTiming:
        """The time of compiling so far, in every precision of it: none yet where no data has chosen one.

        What is compiled when it is first needed counts too: a grid's multigrid, and conjugate gradients on a GPU.
        """
        taken = [b.timing for name, b in list(self._backends.items()) if self.dtype in (name, None)]
        return CompileTiming(sum(t.derive for t in taken), sum(t.build for t in taken), all(t.cache_hit for t in taken))

    def current(self) -> AbstractContextManager[None]:
        """Within it, the solver's device is the current one of this thread."""
        return self.choice.current()

    def instance(self, bound: BoundData, threads: int) -> CompiledProblem:
        """The problem with memory for the sizes of some data, in its precision."""
        return self.backend(bound.dtype).problem(self.problem, bound.sizes, threads)

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
    target = Target.DETERMINISTIC_GPU if choice.deterministic else Target.GPU
    return cuda_backend(problem, dtype, choice.gpu, schedule, target)
