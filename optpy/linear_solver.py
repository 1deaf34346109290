"""The linear solve of one nonlinear iteration on native code, and the choice of its preconditioner."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, final

import numpy as np

from .assembled import MOST_BLOCKS, AlgebraicMultigrid, Assembly, CholeskyFactor
from .energy.vectors import vector
from .errors import OptionError
from .ir import Coupling, Field, Graph, Uncoupled
from .kernels.buffers import Buffers
from .kernels.context import PcgKernels, PcgState
from .kernels.library import BoundProgram
from .kernels.multigrid import Multigrid, too_long_edge
from .kernels.tables import Connectivity
from .linear_ending import Ending, linear_summary
from .solver.options import Preconditioner
from .solver.pcg import PCGScalars
from .solver.protocol import LinearLimits, LinearStatus, LinearSummary

_SLICE = 0.05
"""Seconds after which the native loop comes back to Python, so that Ctrl-C is heard."""
_PATIENCE = 25
"""Iterations with Jacobi after which "auto" builds multigrid: about what building it costs."""
_ASSEMBLED_PATIENCE = 10
"""The same with block-Jacobi, where J^T J is assembled: there multigrid also takes better steps than block-Jacobi."""
_BUILDING = 12
"""Iterations with multigrid that take as long as building its levels."""
_PROBATION = 4
"""Iterations after which levels of another linearisation are looked at."""
_SLOW = 0.9
"""Multigrid that leaves more than that of the error in an iteration is no better than Jacobi to judge by its gains."""
_UNREDUCED = 0.3
_MISJUDGED = 200.0
"""A solve with multigrid misses errors where it leaves so much of ||r||, and of r.r so many times as of r.z."""
_CAREFUL = 1e-5
"""The forcing with multigrid that misses errors."""
_HOPELESS = 80
"""Slow iterations with multigrid after which "auto" goes back to Jacobi for good: one costs about five of those."""

_ANALYSED = 100_000
"""Nodes of a matrix at most whose factorisation is thought of before multigrid has failed."""
_CHEAP = 500
"""Multiplications of a factorisation, for each number of the matrix, that take as long as solving with multigrid."""
_AFFORDED = 5e10
"""Multiplications of a factorisation at most that "auto" makes in every nonlinear iteration: a second or two."""

Kind = Literal["jacobi", "block_jacobi", "multigrid", "cholesky"]


@final
class LinearSolver:
    """Preconditioned conjugate gradients on (J^T J + D) delta = -g.

    "auto" begins with Jacobi, and lets multigrid go on from there where a solve takes many iterations. Where the
    unknowns stand on one grid that is the multigrid of that grid, whose finest level is matrix-free; it goes back to
    Jacobi for good where it turns out to miss errors. Elsewhere, as on most graphs, J^T J is assembled: "auto" begins
    with block-Jacobi, and goes on with a Cholesky factorisation where that is cheap, else with algebraic multigrid, and
    with a factorisation after all where that is slow. Levels are kept from one solve to the next as long as they do
    about as well as when they were new.

    Args:
        bound: the energy's program with its memory.
        unknowns: fields of the unknowns, in order.
    """

    def __init__(self, bound: BoundProgram, buffers: Buffers, unknowns: Sequence[Field]) -> None:
        self._bound = bound
        self._buffers = buffers
        self._unknowns = unknowns
        self._steps = [(vector("p", u), vector("delta", u)) for u in unknowns]
        self._multigrid: Multigrid | None = None
        self._assembly: Assembly | None = None
        self._assembled: AlgebraicMultigrid | CholeskyFactor | None = None
        self._graphs: Mapping[Graph, Connectivity] = {}
        self._asked: Preconditioner = None
        self._kind: Kind = "jacobi"  # what the next solve begins with
        self._may_change = False
        self._first_iterations: int | None = None  # of the first solve with the present levels
        self._misses_errors = False  # multigrid, with this data
        self._excess = 0  # iterations beyond those of the first solve, in all later ones
        self._used: dict[Kind, None] = {}
        self.trace: list[PCGScalars] | None = None

    def set_preconditioner(self, preconditioner: Preconditioner) -> None:
        """Take an option.

        Raises:
            OptionError: it does not apply to the energy, or to its graphs.
        """
        self._check(preconditioner, self._graphs)
        self._asked = preconditioner
        self._may_change = preconditioner == "auto" and self._applies("multigrid")
        if preconditioner is None:
            self._kind = "jacobi"
        else:
            self._kind = self.first if preconditioner == "auto" else preconditioner
        self._used = {}

    def prepare(self, damped: bool) -> None:
        """All is compiled with the energy."""

    def set_graphs(self, graphs: Mapping[Graph, Connectivity]) -> None:
        """Take over the edges: what applies depends on them.

        Raises:
            OptionError: what was asked for by name does not apply; nothing has changed then.
        """
        self._check(self._asked, graphs)
        if graphs.keys() == self._graphs.keys() and all(graphs[g] is c for g, c in self._graphs.items()):
            return
        self._graphs, self._assembly, self._assembled = graphs, None, None
        self.set_preconditioner(self._asked)  # what was cheap, or slow, with the old edges need not be so any more

    def _applies(self, kind: Kind) -> bool:
        return self._obstacle(kind, self._graphs) is None

    def _obstacle(self, kind: Preconditioner, graphs: Mapping[Graph, Connectivity]) -> str | None:
        """Why a preconditioner does not apply; None if it does."""
        matrix = self._matrix_obstacle()
        if kind not in ("multigrid", "cholesky") or matrix is None:
            return None
        if kind == "cholesky":
            return matrix
        grid = self._grid_obstacle(graphs)
        if grid is None or isinstance(self._bound.program.coupling, Coupling):
            return grid
        return f"{grid}; and {matrix}"

    def _grid_obstacle(self, graphs: Mapping[Graph, Connectivity]) -> str | None:
        """Why the multigrid of a grid does not apply."""
        coupling = self._bound.program.coupling
        if not isinstance(coupling, Coupling):
            return coupling.reason
        return too_long_edge(coupling, graphs) if graphs else None

    def _matrix_obstacle(self) -> str | None:
        """Why J^T J is not assembled."""
        normal = self._bound.program.normal
        if isinstance(normal, Uncoupled):
            return f"J^T J is not assembled: {normal.reason}"
        blocks = Assembly.blocks(self._bound, self._buffers)
        return f"J^T J has up to {blocks:,} blocks, too many to assemble" if blocks > MOST_BLOCKS else None

    def _check(self, asked: Preconditioner, graphs: Mapping[Graph, Connectivity]) -> None:
        obstacle = self._obstacle(asked, graphs)
        if obstacle is not None:
            raise OptionError(f"preconditioner={asked!r} does not apply: {obstacle}; use 'auto'")

    @property
    def first(self) -> Literal["jacobi", "block_jacobi"]:
        """What "auto" begins with."""
        return "jacobi" if self._grid_obstacle(self._graphs) is None else "block_jacobi"

    def data_changed(self) -> None:
        """The levels of multigrid no longer belong to the problem, nor what it was given up for."""
        self._first_iterations = None
        self._misses_errors = False
        if not self._may_change:
            self.set_preconditioner(self._asked)

    @property
    def blocks(self) -> bool:
        """Whether the blocks of J^T J are asked for, not only its diagonal."""
        asked = self._kind == "block_jacobi" or (self._kind != "jacobi" and self._matrix_obstacle() is None)
        return asked and "evalJTF_block" in self._bound.program.groups

    @property
    def used(self) -> str:
        """The preconditioners that took part so far."""
        return ", then ".join(self._used) or "none yet"

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in (self._multigrid, self._assembled) if x is not None)

    def solve(self, limits: LinearLimits, damped: bool, ahead: object = None) -> LinearSummary:
        """Conjugate gradients from delta = 0; see ``NonlinearProblem.solve_linear``.

        Args:
            limits: when it ends.
            damped: whether A = J^T J + D, or J^T J alone.
            ahead: what a device could do while nobody waits; here everything is done when it is asked for.
        """
        rows = np.zeros((limits.max_iterations, 7)) if self.trace is not None else None
        state = PcgState(
            max_iterations=limits.max_iterations, min_iterations=limits.min_iterations,
            reset_period=limits.residual_reset_period, r_tolerance=limits.r_tolerance, slice=_SLICE, rho_0=-1.0,
            trace=None if rows is None else rows.ctypes.data,
        )  # fmt: skip
        ways = {"multigrid": self._with_multigrid, "cholesky": self._with_factor}
        summary, spent = None, 0
        while summary is None or state.status == 0:
            if summary is not None and state.k == 0:  # another preconditioner begins anew
                spent += summary.iterations
                limits = replace(limits, max_iterations=limits.max_iterations - summary.iterations)
            summary = ways.get(self._kind, self._with_jacobi)(state, limits, damped)
        if rows is not None and self.trace is not None:
            self.trace.extend(PCGScalars(int(row[0]), *map(float, row[1:])) for row in rows[: state.k])
        return replace(summary, iterations=spent + summary.iterations)

    def _with_jacobi(self, state: PcgState, limits: LinearLimits, damped: bool) -> LinearSummary:
        patience = limits.max_iterations
        if self._may_change:
            patience = _PATIENCE if self._kind == "jacobi" else _ASSEMBLED_PATIENCE
        kernels = self._bound.pcg_kernels(self._steps, damped, "_block" if self.blocks else "")
        limited = replace(limits, max_iterations=min(patience, limits.max_iterations), eta=limits.forcing())
        summary = self._run(kernels, state, limited)
        self._used["block_jacobi" if self.blocks else "jacobi"] = None
        if summary.status is LinearStatus.MAX_ITERATIONS and state.k < limits.max_iterations:
            if self._kind == "jacobi":
                self._kind, state.status, state.resume = "multigrid", 0, 1
            else:  # anew: what block-Jacobi gains last says little about what is left
                self._kind = "cholesky" if self._factor_is_cheap() else "multigrid"
                _begin_anew(state)
        return summary

    def _with_multigrid(self, state: PcgState, limits: LinearLimits, damped: bool) -> LinearSummary:
        """Ends with ``state.status`` 0 where another preconditioner is to go on."""
        kernels = self._multigrid_kernels(damped)
        before, reduced = state.k, state.rho / state.rho_0 if state.k else 1.0
        if self._worn():
            self._build(kernels, damped)
        forced = replace(limits, eta=self._forcing(limits))
        if self._first_iterations is None:
            summary = self._run(kernels, state, forced)
        else:
            summary = self._with_old_levels(kernels, state, forced, damped, self._first_iterations)
        if state.status == Ending.MODEL and limits.eta is None:
            slow = _is_slow(state, state.k - before, reduced)
            self._misses_errors |= self._errors_are_missed(state, slow)
            eta = self._forcing(limits, slow)
            if eta < state.eta and not (self._may_change and self._misses_errors):
                # Of an iteration that leaves much, what is still to come may be many times the last gain.
                state.status = 0
                summary = self._run(kernels, state, replace(limits, eta=eta))
        self._used["multigrid"] = None
        iterations = state.k - before
        if self._first_iterations is None:
            self._first_iterations, self._excess = iterations, 0
        self._excess += max(iterations - self._first_iterations, 0)
        if self._may_change:
            failed = summary.status in (LinearStatus.BREAKDOWN, LinearStatus.FAILURE) or self._misses_errors
            if failed:
                state.status, state.resume, state.rho, state.rho_0 = 0, 1, 1.0, 1.0
            if failed or (iterations > _HOPELESS and _is_slow(state, iterations, reduced)):
                self._give_up_multigrid()
        return summary

    def _with_old_levels(
        self, kernels: PcgKernels, state: PcgState, limits: LinearLimits, damped: bool, first_iterations: int
    ) -> LinearSummary:
        """A solve with the levels of another linearisation, until they prove to be worn; then with new ones."""
        before, reduced = state.k, state.rho / state.rho_0 if state.k else 1.0
        for patience in (_PROBATION, first_iterations + 2 * _BUILDING):
            limited = replace(limits, max_iterations=min(before + patience, limits.max_iterations))
            summary = self._run(kernels, state, limited)
            # With the levels of this linearisation M is positive definite.
            failed = summary.status is LinearStatus.BREAKDOWN or _is_slow(state, state.k - before, reduced)
            if failed or summary.status is not LinearStatus.MAX_ITERATIONS or state.k >= limits.max_iterations:
                break
            state.status, failed = 0, True
        if failed and state.k < limits.max_iterations:
            self._build(kernels, damped)
            state.status, state.resume = 0, 1
            summary = self._run(kernels, state, limits)
        return summary

    def _give_up_multigrid(self) -> None:
        """Under "auto": something else goes on, for good."""
        self._may_change = False
        if self._grid_obstacle(self._graphs) is None:
            self._kind = "jacobi"
        else:
            self._kind = "cholesky" if self._factor().operations <= _AFFORDED else "block_jacobi"

    def _with_factor(self, state: PcgState, limits: LinearLimits, damped: bool) -> LinearSummary:
        factor = self._factor()
        try:
            factor.build(damped)
        except MemoryError:
            if self._asked != "auto":
                needed = f"{factor.nbytes / 2**30:.1f} GiB"
                raise OptionError(f"preconditioner='cholesky' needs {needed} of memory: use 'auto'") from None
            self._kind, self._may_change = "block_jacobi", False
            return LinearSummary(0, LinearStatus.FAILURE, "There is no memory for a factorisation.")
        self._used["cholesky"] = None
        summary = self._run(factor.kernels(damped), state, replace(limits, eta=limits.forcing()))
        # In what a singular M leaves out, r.z does not see that r is as it was.
        if factor.singular and summary.status is LinearStatus.CONVERGED and _is_unreduced(self._residual_norms()):
            self._kind, self._may_change = "block_jacobi", False
            _begin_anew(state)
        return summary

    def _residual_norms(self) -> dict[str, float]:
        """r.r, and g.g, which is that of the start; after solves with multigrid or a factorisation."""
        return self._bound.run("residual_multigrid" if self._matrix_obstacle() else "residual_stored")

    def _forcing(self, limits: LinearLimits, slow: bool = False) -> float:
        """eta, or its default for multigrid as it has proved to be."""
        if limits.eta is None and self._misses_errors:
            return _CAREFUL
        return limits.forcing(multigrid=not slow)

    def _errors_are_missed(self, state: PcgState, slow: bool) -> bool:
        """Whether the solve has left r as it was, though r.z has fallen, or many iterations have been made.

        Where coefficients jump by orders, M can be too large by as many along errors that the coarse grids do not
        have: in r.z, and in the gains, these count for nothing at first, but they stay in r.
        """
        norms = self._residual_norms()
        misjudged = norms["r_squared"] > _MISJUDGED * state.rho / state.rho_0 * norms["g_squared"]
        return (slow or misjudged) and _is_unreduced(norms)

    def _worn(self) -> bool:
        """Whether the levels are not there, or have cost as much by being old as new ones would."""
        return self._first_iterations is None or self._excess > _BUILDING

    def _build(self, kernels: PcgKernels, damped: bool) -> None:
        if isinstance(self._assembled, AlgebraicMultigrid):
            self._assembled.build(damped)
        else:
            self._bound.build_multigrid(kernels)
        self._first_iterations = None

    def _multigrid_kernels(self, damped: bool) -> PcgKernels:
        if self._matrix_obstacle() is None:
            if not isinstance(self._assembled, AlgebraicMultigrid):
                self._assembled, self._first_iterations = AlgebraicMultigrid(self.assembly), None
            return self._assembled.kernels(damped)
        coupling = self._bound.program.coupling
        assert isinstance(coupling, Coupling)
        if self._multigrid is None:
            shape = [self._buffers.sizes[d] for d in coupling.dims]
            self._multigrid = Multigrid(coupling, shape, self._buffers.pitch[coupling.dims], self._bound.program.dtype)
        z = [vector("z", u) for u in self._unknowns]
        return self._bound.multigrid_kernels(self._steps, damped, z, self._multigrid)

    @property
    def assembly(self) -> Assembly:
        """The sparsity of J^T J, which belongs to the graphs."""
        if self._assembly is None:
            self._assembly = Assembly(self._bound, self._buffers, self._unknowns, self._graphs)
        return self._assembly

    def _factor(self) -> CholeskyFactor:
        if not isinstance(self._assembled, CholeskyFactor):
            self._assembled = CholeskyFactor(self.assembly)
        return self._assembled

    def _factor_is_cheap(self) -> bool:
        assembly = self.assembly
        numbers = assembly.pattern.nnz * assembly.channels**2
        return assembly.nodes <= _ANALYSED and self._factor().operations <= _CHEAP * numbers

    def _run(self, kernels: PcgKernels, state: PcgState, limits: LinearLimits) -> LinearSummary:
        state.max_iterations, state.eta = limits.max_iterations, limits.eta
        while state.status == 0:
            left = None if limits.deadline is None else limits.deadline - time.perf_counter()
            state.time_left = -1.0 if left is None else max(left, 0.0)
            self._bound.pcg(kernels, state)
        return linear_summary(state, limits)


def _begin_anew(state: PcgState) -> None:
    """The next run starts from delta = 0."""
    state.status, state.k, state.rho_0, state.resumed = 0, 0, -1.0, 0
    state.Q = state.zeta = state.alpha = state.beta = 0.0


def _is_unreduced(norms: Mapping[str, float]) -> bool:
    """Whether ||r|| is about what it was before the solve."""
    return norms["r_squared"] > _UNREDUCED**2 * norms["g_squared"]


def _is_slow(state: PcgState, iterations: int, reduced: float = 1.0) -> bool:
    """Whether iterations with multigrid leave much of the error, as where coefficients jump by orders.

    Args:
        state: after them.
        reduced: r.z over that of the start, before them.
    """
    return bool(state.rho > state.rho_0 * reduced * _SLOW ** (2 * iterations))
