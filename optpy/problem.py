"""A compiled energy bound to data, as the solver sees it: the protocol of ``solver.protocol`` on native kernels."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from .energy.routines import residual_field, solved_field
from .energy.tangent import magnitudes
from .energy.updates import SOLVER_SCALARS
from .energy.vectors import block_channel, block_channels, candidate, vector
from .errors import DataError
from .ir import Dim, Field, Graph, Residual, Role, Scalar, tangent
from .kernels.buffers import Buffers, all_segments, solved_segments, weighted_segments
from .kernels.library import BoundProgram
from .kernels.program import Program
from .kernels.slots import SegmentList
from .kernels.tables import Connectivity
from .linear_solver import LinearSolver
from .solver.options import Preconditioner
from .solver.pcg import PCGScalars
from .solver.protocol import Cost, Damping, LinearLimits, LinearSummary, Step
from .solver.rounding import relative_gradient
from .symbolic.traverse import variables


@final
class CompiledProblem:
    """The state of one solve: the unknowns, the step, and everything computed at the linearisation point.

    Args:
        program: the energy's routines.
        library: compiled from the program's source.
        residuals: of the energy, for messages.
        unknowns: fields of the unknowns, in order.
        sizes: of every dim.
        threads: how many threads to use at most.
    """

    def __init__(
        self,
        program: Program,
        library: Any,
        residuals: Sequence[Residual],
        unknowns: Sequence[Field],
        sizes: Mapping[Dim, int],
        threads: int,
    ) -> None:
        self._residuals = residuals
        self._terms = list(dict.fromkeys(r.term for r in residuals))
        self._unknowns = unknowns
        self._buffers = Buffers(program.slots, sizes, program.dtype)
        self._bound = BoundProgram(program, library, self._buffers, SOLVER_SCALARS, threads)
        self._linear_solver = LinearSolver(self._bound, self._buffers, unknowns)
        self._groups = program.groups
        self._preconditioned = True
        self._damped = False
        self._saved: list[NDArray[Any]] = []
        self._graphs: Mapping[Graph, Connectivity] = {}
        self._bound_before = False

    # -- data in and out -----------------------------------------------------------------------------------------------

    def bind(
        self,
        arrays: Mapping[str, NDArray[Any]],
        params: Mapping[str, float],
        graphs: Mapping[Graph, Connectivity] | None = None,
    ) -> None:
        """Take over data, all of it or what has changed.

        Args:
            arrays: by name of the field, of shape (*dims, channels) or (*dims).
            params: all params by name.
            graphs: all graphs; None: as they are.

        Raises:
            OptionError: multigrid was asked for by name, and edges are too long for it; nothing has changed then.
        """
        if graphs is not None:
            self._linear_solver.set_graphs(graphs)
        self._bound.set_params(params)
        if graphs is not None:
            self._graphs = graphs
            self._bound.set_connectivity(graphs)
        for f in self._bound.program.slots.fields:
            if f.role in (Role.UNKNOWN, Role.DATA) and f.name in arrays:
                self._buffers.write(f, arrays[f.name])
        for u in self._unknowns:  # where no step is made, the two are the same, also where that is so only from now on
            np.copyto(self._buffers.view(candidate(u)), self._buffers.view(u))
        self._linear_solver.data_changed()
        if arrays or graphs or self._solved_points_depend_on_params:
            self._set_segments()

    @property
    def _solved_points_depend_on_params(self) -> bool:
        routines = [self._bound.program.routine(n) for n in self._groups.get("solved", ())]
        return any(isinstance(v.key, Scalar) for r in routines for v in variables(r.roots))

    def set_preconditioner(self, preconditioner: Preconditioner) -> None:
        self._preconditioned = preconditioner is not None
        self._linear_solver.set_preconditioner(preconditioner)

    @property
    def first_preconditioner(self) -> Preconditioner:
        """What "auto" begins with."""
        return self._linear_solver.first

    @property
    def preconditioners(self) -> str:
        """What the linear solves used so far."""
        return self._linear_solver.used if self._preconditioned else "none"

    @property
    def trace(self) -> list[PCGScalars] | None:
        """If set to a list, every iteration of conjugate gradients appends its scalars."""
        return self._linear_solver.trace

    @trace.setter
    def trace(self, trace: list[PCGScalars] | None) -> None:
        self._linear_solver.trace = trace

    def _set_segments(self) -> None:
        """Which points each list of segments visits; conditions of ``fixed`` are evaluated here."""
        for number, of in enumerate(self._bound.lists):
            if not of.solved_only:
                self._bound.set_segments(number, self._segments(of))
        self._bound.run("solved")
        for number, of in enumerate(self._bound.lists):
            if of.solved_only:
                self._bound.set_segments(number, self._segments(of))
        if self._bound_before:
            # A point that is no longer visited must not keep an old gradient or direction.
            for f in self._bound.program.slots.fields:
                if f.role is Role.VECTOR and not f.name.startswith(("candidate.", "F.")):
                    self._buffers.view(f)[...] = 0
        self._bound_before = True

    def _segments(self, of: SegmentList) -> NDArray[Any]:
        mask = solved_field(of.dims)
        rows, length = self._buffers.shape(of.dims)
        if of.solved_only and mask in self._bound.program.slots.fields:
            segments = solved_segments(self._buffers.view(mask)[0])
        else:
            segments = all_segments(rows, length)
        if not of.incidences:
            return segments
        edges = sum(self._graphs[graph].degrees(slot) for graph, slot in of.incidences)
        return weighted_segments(segments, np.asarray(edges), length)

    def read(self, unknown: Field) -> NDArray[Any]:
        """A copy of an unknown, as (*dims, channels)."""
        return self._buffers.read(unknown)

    def read_vector(self, kind: str, unknown: Field) -> NDArray[Any]:
        """A copy of one of the solver's vectors (see ``energy.vectors``)."""
        return self._buffers.read(vector(kind, unknown))

    @property
    def nbytes(self) -> int:
        graphs = sum(c.nbytes for c in self._graphs.values())
        return self._buffers.nbytes + self._linear_solver.nbytes + graphs

    # -- the protocol --------------------------------------------------------------------------------------------------

    def evaluate(self) -> Cost:
        cost = self._cost()
        if not cost.is_finite:
            raise DataError(self._explain(cost))
        return cost

    def _cost(self) -> Cost:
        totals = self._bound.run("cost")
        by_term = {t: totals.get(f"cost:{t}", 0.0) for t in self._terms}
        return Cost(math.fsum(by_term.values()) if all(map(math.isfinite, by_term.values())) else math.nan, by_term)

    def linearise(self) -> float:
        self._bound.run("precompute")
        self._bound.run("jacobian")
        return self._bound.run("evalJTF_block" if self._linear_solver.blocks else "evalJTF")["gradient_max"]

    def damp(self, damping: Damping) -> None:
        self._damped = not math.isinf(damping.radius)
        scalars = {
            "radius": damping.radius if self._damped else 1.0,
            "min_lm_diagonal": damping.min_lm_diagonal,
            "max_lm_diagonal": damping.max_lm_diagonal,
            "jacobi_scaling": float(damping.jacobi_scaling),
            "damped": float(self._damped),
            "preconditioned": float(self._preconditioned),
        }
        self._bound.run("damp_block" if self._linear_solver.blocks else "damp", scalars)

    def relative_gradient(self, cost: float) -> float:
        g = self._flat(lambda u: self.read_vector("g", u))
        x = self._flat(lambda u: magnitudes(u, self.read(u).astype(np.float64)))
        step = self._flat(lambda u: self.read_vector("delta", u))
        return relative_gradient(g, self._flat(self._diagonal), x, step, cost, self._apply_jtj)

    def _flat(self, read: Callable[[Field], NDArray[Any]]) -> NDArray[np.float64]:
        """What is read for each unknown, one after the other."""
        return np.concatenate([read(u).ravel().astype(np.float64) for u in self._unknowns])

    def _apply_jtj(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        """J^T J p; the vectors p and Ap of the linear solver, which starts anew from 0, serve for it."""
        first = 0
        for u in self._unknowns:
            field = vector("p", u)
            shape = (*(self._buffers.sizes[d] for d in u.dims), field.channels)
            size = math.prod(shape)
            self._buffers.write(field, p[first : first + size].reshape(shape))
            first += size
        self._bound.run("applyJTJ")
        return self._flat(lambda u: self.read_vector("Ap", u))

    def _diagonal(self, unknown: Field) -> NDArray[Any]:
        """diag(J^T J), as (*dims, dimension)."""
        n = tangent(unknown).channels
        if not self._linear_solver.blocks:
            return self.read_vector("C", unknown)
        blocks = self._buffers.read(vector("C", unknown, block_channels(unknown)))
        return blocks[..., [block_channel(unknown, a, a) for a in range(n)]]

    def solve_linear(self, limits: LinearLimits) -> LinearSummary:
        return self._linear_solver.solve(limits, self._damped)

    def model_cost_change(self) -> float:
        return self._bound.run("modelcost")["model_cost_change"]

    def promised_change(self) -> float:
        g, step = (self._flat(partial(self.read_vector, kind)) for kind in ("g", "delta"))
        return float(-step @ (g + self._apply_jtj(step) / 2))

    def try_step(self) -> Step:
        totals = self._bound.run("step")
        x = self._buffers.memory
        try:
            self._buffers.memory = self._with_candidate_as_x()
            cost = self._cost()
        finally:
            self._buffers.memory = x
        return Step(cost, math.sqrt(totals["step_squared"]), math.sqrt(totals["x_squared"]), totals["damped_square"])

    def accept(self) -> None:
        self._buffers.memory = self._with_candidate_as_x()

    def withdraw(self) -> None:
        self._buffers.memory = self._with_candidate_as_x()  # which the two have swapped, and nothing has written since

    def _with_candidate_as_x(self) -> dict[Field, NDArray[Any]]:
        return self._buffers.swapped((u, candidate(u)) for u in self._unknowns)

    def save(self) -> None:
        self._saved = [self._buffers.read(u) for u in self._unknowns]

    def restore(self) -> None:
        for u, value in zip(self._unknowns, self._saved, strict=True):
            self._buffers.write(u, value)
            self._buffers.write(candidate(u), value)

    # -- measuring and explaining ----------------------------------------------------------------------------------

    def benchmark(self, group: str, repeat: int) -> float:
        """Seconds for one run of a group of routines on the bound data."""
        started = time.perf_counter()
        self._bound.run(group, repeat=repeat)
        return (time.perf_counter() - started) / repeat

    def benchmark_pcg(self, iterations: int) -> float:
        """Seconds for one iteration of conjugate gradients; tolerances are off, the residual is never reset."""
        started = time.perf_counter()
        summary = self.solve_linear(LinearLimits(max_iterations=iterations))
        return (time.perf_counter() - started) / max(summary.iterations, 1)

    def residuals(self) -> dict[str, NDArray[Any]]:
        """evalF: each residual, as (*domain, components)."""
        self._bound.run("evalF")
        return {r.label: self._buffers.read(residual_field(r)) for r in self._residuals}

    def _explain(self, cost: Cost) -> str:
        """Which term and which element of it is not finite."""
        terms = cost.non_finite_terms
        values = self.residuals()
        for r in self._residuals:
            bad = ~np.isfinite(values[r.label])
            if r.term in terms and bad.any():
                at = np.argwhere(bad)[0]
                where = ", ".join(f"{i.dim}={n}" for i, n in zip(r.domain, at, strict=False))
                value = values[r.label][tuple(at)]
                line = f" (written at {r.location})" if r.location else ""
                return (
                    f"the residual '{r.label}'{line} is {value} at [{where}], component {at[-1]}; "
                    f"{int(bad.sum())} of its {bad.size} values are not finite at the initial values. "
                    "Guard the expression with op.where, or start elsewhere"
                )
        return f"the squares of the term(s) {', '.join(terms)} overflow {self._bound.program.dtype}: scale the energy"
