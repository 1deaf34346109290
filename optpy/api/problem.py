"""A compiled energy bound to data, as the solver sees it: the protocol of ``solver.protocol`` on compiled kernels."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from typing import Any, Literal, final

from numpy.typing import NDArray

from optpy.api.arithmetic import Arithmetic
from optpy.api.executor import Executor, Linear
from optpy.api.explain import explained_cost, explained_gradient, residuals
from optpy.energy.derive.funcs import data_of_stored
from optpy.energy.derive.vectors import candidate, vector
from optpy.errors import DataError
from optpy.ir import Extent, Field, Group, Hypergraph, Problem, Role, Scalar, VectorKind
from optpy.kernels.runtime.tables import Connectivity
from optpy.scheduling.funcs import with_found_funcs
from optpy.solver.options import Preconditioner
from optpy.solver.pcg import PCGScalars
from optpy.solver.protocol import Cost, Damping, Hidden, LinearLimits, LinearStatus, LinearSummary, Rounding, Step
from optpy.solver.rounding import CAREFUL, NOTABLE, nearly_undamped
from optpy.solver.safe_point import SafePoint
from optpy.symbolic.traverse import variables

_PIVOT_NOISE = {"float32": 2.0**-20, "float64": 2.0**-48}
"""A pivot of a block of J^T J that is less than so much of the diagonal is rounding."""


@final
class CompiledProblem:
    """The state of one solve: the unknowns, the step, and everything computed at the linearisation point.

    Args:
        executor: the energy's routines with their memory.
        problem: whose routines they are.
        linear: solves the linear systems. A GPU is told, before it is waited for, what follows: the step, its cost,
            and the linearisation at its end.

    Attributes:
        executor, linear_solver, buffers: as given, and the executor's memory.
        unknowns: those of the problem, in its order.
    """

    def __init__(self, executor: Executor, problem: Problem, linear: Linear) -> None:
        self._problem = problem
        self._terms = problem.terms
        self.unknowns = problem.unknowns
        self._pairs = tuple((u, candidate(u)) for u in self.unknowns)
        self.executor = executor
        self.buffers = executor.buffers
        self.linear_solver = linear
        self._reweights = Group.COST_OF_STEP in executor.groups
        self._arithmetic = Arithmetic(executor, problem, linear)
        self._preconditioned = True
        self._damped = False
        self._saved: list[NDArray[Any]] = []
        self._graphs: Mapping[Hypergraph, Connectivity] = {}
        self._params: dict[str, float] = {}
        self._params_of_fixed = {v.key.name for v in variables(problem.fixed.values()) if isinstance(v.key, Scalar)}
        found = with_found_funcs(problem) if Group.FUNCS in executor.groups else None  # walks over all expressions
        self._data_of_funcs = frozenset() if found is None else data_of_stored(found, executor.buffers.memory)
        self._bound_before = False
        self._at_start = True  # no step has been taken since data was bound
        self._ahead = False  # what follows the linear solve has been queued with it
        self._linearised: Literal["x", "candidate", "nowhere"] = "nowhere"  # where J and g have been computed
        self._gradient_is_news = False  # they have been computed at x ahead of being asked for
        self._largest = 0.0  # max_i |g_i| of the last linearisation

    # -- data in and out -----------------------------------------------------------------------------------------------

    def bind(
        self,
        arrays: Mapping[str, NDArray[Any]],
        params: Mapping[str, float],
        graphs: Mapping[Hypergraph, Connectivity] | None = None,
    ) -> None:
        """Take over data, all of it or what has changed; when this returns, it has been copied.

        Args:
            arrays: by name of the field, of shape (*dims, channels) or (*dims).
            params: all params by name.
            graphs: all graphs; None: as they are.

        Raises:
            OptionError: the preconditioner asked for by name does not apply to the edges; nothing has changed then.
        """
        if graphs is not None:
            self.linear_solver.set_graphs(graphs)
            self._graphs = graphs
            self.executor.set_connectivity(graphs)
        self.executor.set_params(params)
        changed = {*arrays, *(g.name for g in graphs or ()), *(p for p in params if params[p] != self._params.get(p))}
        self._params, self._at_start, first = dict(params), True, not self._bound_before
        for f in self.buffers.memory:
            if f.role in (Role.UNKNOWN, Role.DATA) and f.name in arrays:
                self.buffers.write(f, arrays[f.name])
        for u in self.unknowns:  # where no step is made, the two are the same, also where that is so only from now on
            self.buffers.view(candidate(u))[...] = self.buffers.view(u)
        self._ahead, self._linearised = False, "nowhere"
        self._arithmetic.moved()
        self.linear_solver.data_changed()
        if arrays or graphs or not changed.isdisjoint(self._params_of_fixed):
            self._set_points()
        if first or not changed.isdisjoint(self._data_of_funcs):
            self.executor.queue(Group.FUNCS)
        self.executor.wait()  # who is to write to the data, or to use another stream, need not know

    def set_preconditioner(self, preconditioner: Preconditioner) -> None:
        self._preconditioned = preconditioner is not None
        self._linearised = "nowhere"  # blocks of J^T J may be asked for in place of its diagonal
        self.linear_solver.set_preconditioner(preconditioner)

    def check_preconditioner(self, sizes: Mapping[Extent, int], graphs: Mapping[Hypergraph, Connectivity]) -> None:
        """Nothing, if the one that was asked for by name also applies to a problem of other sizes and edges.

        Raises:
            OptionError: it does not.
        """
        self.linear_solver.check(sizes, graphs)

    def prepare(self, damped: bool, ahead: bool) -> float:
        """Compile what solves, damped or not, begin with; ahead: and all that they may need. The seconds it takes."""
        started = time.perf_counter()
        self.linear_solver.prepare(damped, ahead)
        self._arithmetic.product = Group.PRODUCT_DAMPED if damped else Group.PRODUCT
        return time.perf_counter() - started

    @property
    def first_preconditioner(self) -> Preconditioner:
        """The preconditioner that "auto" begins with."""
        return self.linear_solver.first

    @property
    def preconditioners(self) -> str:
        """The preconditioners of the linear solves so far."""
        return self.linear_solver.used if self._preconditioned else "none"

    @property
    def trace(self) -> list[PCGScalars] | None:
        """If set to a list, every iteration of conjugate gradients appends its scalars."""
        return self.linear_solver.trace

    @trace.setter
    def trace(self, trace: list[PCGScalars] | None) -> None:
        self.linear_solver.trace = trace

    def _set_points(self) -> None:
        """Sets the points that kernels visit; conditions of ``fixed`` are evaluated here."""
        self.executor.set_points(self._graphs)
        if self._bound_before:
            # A point that is no longer visited must not keep an old gradient or direction.
            for f in self.buffers.memory:
                is_candidate = f.identity is not None and f.identity.kind is VectorKind.CANDIDATE
                if f.role is Role.VECTOR and not is_candidate and self.buffers.has(f):
                    self.buffers.view(f)[...] = 0
        self._bound_before = True

    def read(self, unknown: Field) -> NDArray[Any]:
        """A copy of an unknown, as (*dims, channels)."""
        return self.buffers.read(unknown)

    def inputs(self, without: Collection[str]) -> dict[str, NDArray[Any]]:
        """Copies of unknowns and data as they stand, by name, without those of some names."""
        inputs = (f for f in self.buffers.memory if f.role in (Role.UNKNOWN, Role.DATA) and f.name not in without)
        return {f.name: self.buffers.read(f) for f in inputs}

    def read_vector(self, kind: VectorKind, unknown: Field) -> NDArray[Any]:
        """A copy of one of the solver's vectors (see ``ir.Vector``)."""
        return self.buffers.read(vector(kind, unknown))

    @property
    def nbytes(self) -> int:
        graphs = sum(c.nbytes for c in self._graphs.values())
        return self.buffers.nbytes + self.linear_solver.nbytes + graphs

    # -- the protocol --------------------------------------------------------------------------------------------------

    def evaluate(self) -> Cost:
        cost = self._cost()
        if not cost.is_finite:
            raise DataError(explained_cost(self._problem, self.executor, self._params, self._graphs, cost))
        return cost

    @property
    def size(self) -> int:
        return self._arithmetic.n_residuals + self._arithmetic.n_unknowns

    @property
    def is_fit(self) -> bool:
        return not any(u.dims for u in self.unknowns)

    def curvature(self) -> float:
        self._linearise_at_x()
        return self._arithmetic.curvature()

    def sensitivities(self) -> dict[str, float]:
        self._linearise_at_x()
        return self._arithmetic.sensitivities()

    @property
    def reweights(self) -> bool:
        return self._reweights

    def _cost(self) -> Cost:
        self.executor.queue(Group.COST)
        return self._cost_of_last_run(Group.COST)

    def _cost_of_last_run(self, group: Group) -> Cost:
        totals = self.executor.totals(group)
        by_term = {t: totals.get(f"cost:{t}", 0.0) for t in self._terms}
        return Cost(math.fsum(by_term.values()) if all(map(math.isfinite, by_term.values())) else math.nan, by_term)

    def linearise(self) -> float:
        if self._linearised != "x" or not self._gradient_is_news:
            self._linearise_anew()
        self._gradient_is_news = False
        self._largest = self.executor.totals(self._gradient)["gradient_max"]
        if self._at_start and not math.isfinite(self._largest):
            raise DataError(explained_gradient(self._problem, self.executor, self._params, self._graphs))
        return self._largest

    @property
    def _gradient(self) -> Group:
        return Group.GRADIENT_BLOCKS if self.linear_solver.blocks else Group.GRADIENT

    def _queue_linearisation(self) -> None:
        for group in (Group.PRECOMPUTE, Group.JACOBIAN, self._gradient):
            self.executor.queue(group)

    def _queue_ahead(self) -> None:
        """Queues the work after a linear solve, while the host need not wait: if the step is accepted, all is there."""
        self._linearised = "nowhere"  # until all is queued
        self.executor.queue(Group.MODEL_COST)
        self._queue_step()
        self._queue_at_candidate(linearise=True)
        self._ahead, self._linearised = True, "candidate"

    def _linearise_anew(self) -> None:
        self._linearised = "nowhere"
        self._queue_linearisation()
        self._linearised = "x"

    def _linearise_at_x(self) -> None:
        """J and g at x, if they are not: computed at a candidate that was not accepted."""
        if self._linearised != "x":
            self._linearise_anew()

    def damp(self, damping: Damping) -> None:
        self._linearise_at_x()
        self._damped = not math.isinf(damping.radius)
        scalars = {
            "radius": damping.radius if self._damped else 1.0,
            "min_lm_diagonal": damping.min_lm_diagonal,
            "max_lm_diagonal": damping.max_lm_diagonal,
            "jacobi_scaling": float(damping.jacobi_scaling),
            "damped": float(self._damped),
            "preconditioned": float(self._preconditioned),
            "noise": _PIVOT_NOISE[self.executor.dtype],
        }
        self.executor.queue(Group.DAMPING_BLOCKS if self.linear_solver.blocks else Group.DAMPING, scalars)

    def rounding(self, cost: float) -> Rounding:
        self._linearise_at_x()
        return self._arithmetic.rounding(cost)

    @property
    def hidden_is_exact(self) -> bool:
        return self._arithmetic.is_exact

    def hidden(self, cost: float, unit: float, safe_point: SafePoint, *, of_rounding: bool) -> Hidden:
        self._linearise_at_x()
        self._ahead = False
        if self.hidden_is_exact:
            return self._arithmetic.hidden_in_all(cost, unit, safe_point)
        if self.is_stiff():
            along = self._arithmetic.hidden_in_smooth(cost, unit, safe_point)
            if along.left > NOTABLE * cost or not of_rounding:
                return along
        return self._hidden_by_rounding(cost, unit, safe_point)

    def _hidden_by_rounding(self, cost: float, unit: float, safe_point: SafePoint) -> Hidden:
        self._arithmetic.write_noise(cost, unit)
        try:
            self.damp(nearly_undamped(unit, self.curvature()))
            solved = self.linear_solver.solve(CAREFUL._replace(safe_point=safe_point), True, lambda: None)
            told = solved.status is LinearStatus.CONVERGED
            return Hidden(self._arithmetic.change_along_step() if told else math.inf)
        finally:
            self._linearised = "nowhere"  # g is another

    def is_stiff(self) -> bool:
        if self._arithmetic.stiff is None:
            self._linearise_at_x()
        return self._arithmetic.is_stiff()

    def change_by_rounding(self, unit: float) -> dict[str, float]:
        self._linearise_at_x()
        here, self._ahead = self._cost(), False
        return self._arithmetic.change_by_rounding(here, unit, lambda: self.try_step().cost_there)

    def cosine(self, cost: float) -> float:
        self._linearise_at_x()
        return self._arithmetic.cosine(cost)

    def promised_change(self) -> float:
        self._linearise_at_x()
        return self._arithmetic.promised_change()

    def solve_linear(self, limits: LinearLimits) -> LinearSummary:
        self._linearise_at_x()
        self._ahead = False
        solved = self.linear_solver.solve(limits, self._damped, self._queue_ahead)
        if solved.iterations or not self._largest or solved.status is not LinearStatus.CONVERGED:
            return solved
        message = f"r.z = 0, though max |g_i| = {self._largest:.3e}: such small numbers have no products in "
        return LinearSummary(0, LinearStatus.FAILURE, f"{message}{self.executor.dtype}. Scale the residuals up.")

    def model_cost_change(self) -> float:
        if not self._ahead:
            self.executor.queue(Group.MODEL_COST)
        return self.executor.totals(Group.MODEL_COST)["model_cost_change"]

    def try_step(self) -> Step:
        if not self._ahead:
            self._queue_step()
            self._queue_at_candidate(linearise=False)
        totals, there = self.executor.totals(Group.STEP), self._cost_of_last_run(Group.COST)
        norms = math.sqrt(totals["step_squared"]), math.sqrt(totals["x_squared"]), totals["damped_square"]
        if not self.reweights:
            return Step(there, *norms)
        return Step(self._cost_of_last_run(Group.COST_OF_STEP), *norms, reweighted=there)

    def _queue_step(self) -> None:
        """The candidate, and its cost with what is held constant as it is at x, where that is another than its own."""
        self.executor.queue(Group.STEP)
        if self.reweights:
            self.executor.queue(Group.COST_OF_STEP)

    def accept(self) -> None:
        self._at_start = False
        ahead = self._linearised == "candidate"
        self._exchange()
        if ahead:
            self._linearised, self._gradient_is_news = "x", True

    def withdraw(self) -> None:
        self._exchange()  # back: nothing has written to what the two have exchanged

    def _exchange(self) -> None:
        self._ahead, self._linearised = False, "nowhere"
        self._arithmetic.moved()
        self.buffers.memory = self._with_candidate_as_x()

    def _queue_at_candidate(self, linearise: bool) -> None:
        """The cost there, and J and g if asked."""
        x = self.buffers.memory
        try:
            self.buffers.memory = self._with_candidate_as_x()
            self.executor.queue(Group.COST)
            if linearise:
                self._queue_linearisation()
        finally:
            self.buffers.memory = x

    def _with_candidate_as_x(self) -> dict[Field, NDArray[Any]]:
        return self.buffers.swapped(self._pairs)

    def save(self) -> None:
        self._saved = [self.buffers.read(u) for u in self.unknowns]

    def restore(self) -> None:
        for u, value in zip(self.unknowns, self._saved, strict=True):
            self.buffers.write(u, value)
            self.buffers.write(candidate(u), value)

    # -- measuring and explaining ----------------------------------------------------------------------------------

    def benchmark(self, group: Group, repeat: int) -> float:
        """Seconds for one run of a group of routines on the bound data."""
        self.executor.queue(group)  # what is compiled late is compiled before the clock starts
        self.executor.wait()
        started = time.perf_counter()
        self.executor.queue(group, repeat=repeat)
        self.executor.wait()
        return (time.perf_counter() - started) / repeat

    def benchmark_pcg(self, iterations: int) -> float:
        """Seconds for one iteration of conjugate gradients; tolerances are off, the residual is never reset."""
        self.executor.wait()
        started = time.perf_counter()
        summary = self.linear_solver.solve(LinearLimits(max_iterations=iterations), self._damped, lambda: None)
        self.executor.wait()
        return (time.perf_counter() - started) / max(summary.iterations, 1)

    def residuals(self) -> dict[str, NDArray[Any]]:
        """evalF: each residual, as (*domain, components)."""
        return residuals(self._problem, self.executor)
