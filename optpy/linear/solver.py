"""The linear solve of one nonlinear iteration on native code, and the choice of its preconditioner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, final

import numpy as np

from optpy.errors import OptionError
from optpy.ir import Dim, Field, Graph
from optpy.kernels.runtime.context import PcgState
from optpy.kernels.runtime.library import BoundProgram
from optpy.kernels.runtime.tables import Connectivity
from optpy.linear.assembled.solve import AlgebraicMultigrid, Assembly, CholeskyFactor
from optpy.linear.choice import Choice, Kind, Outcome
from optpy.linear.cholesky.solve import CholeskySolve
from optpy.linear.jacobi.jacobi import ASSEMBLED_PATIENCE, PATIENCE, JacobiSolve
from optpy.linear.loop import PreconditionedSolve, run
from optpy.linear.multigrid.grid import GridMultigrid
from optpy.linear.multigrid.solve import MultigridSolve
from optpy.linear.obstacles import obstacles
from optpy.solver.options import Preconditioner
from optpy.solver.pcg import PCGScalars
from optpy.solver.protocol import LinearLimits, LinearStatus, LinearSummary
from optpy.solver.safe_point import SLICE

_ANALYSED = 100_000
"""Nodes of a matrix at most whose factorisation is thought of before multigrid has failed."""
_CHEAP = 500
"""Multiplications of a factorisation, for each number of the matrix, that take as long as solving with multigrid."""
_AFFORDED = 5e10
"""Multiplications of a factorisation at most that "auto" makes in every nonlinear iteration: a second or two."""


@final
class LinearSolver:
    """Preconditioned conjugate gradients on (J^T J + D) delta = -g.

    "auto" begins with Jacobi, and lets multigrid go on from there where a solve takes many iterations. Where the
    unknowns stand on one grid that is the multigrid of that grid, whose finest level is matrix-free. Elsewhere, as on
    most graphs, J^T J is assembled: "auto" begins with block-Jacobi, and goes on with a Cholesky factorisation where
    that is cheap, else with algebraic multigrid, and with a factorisation after all where that is slow. ``Choice`` says
    when one is left, and come back to.

    Args:
        bound: the energy's program with its memory.
        unknowns: fields of the unknowns, in order.
    """

    def __init__(self, bound: BoundProgram, unknowns: Sequence[Field]) -> None:
        self._bound = bound
        self._unknowns = unknowns
        self._graphs: Mapping[Graph, Connectivity] = {}
        self._obstacles = obstacles(bound.program, bound.buffers.sizes, {})
        self._asked: Preconditioner = None
        self._choice = Choice("jacobi", self._others, None)
        self._used: dict[str, None] = {}
        self._precision = float(np.finfo(bound.program.dtype).eps)
        # What takes memory, and time to make, is kept while another preconditioner is in force.
        self._jacobi: dict[tuple[bool, bool], JacobiSolve] = {}
        self._grid: MultigridSolve | None = None
        self._assembly: Assembly | None = None
        self._algebraic: MultigridSolve | None = None
        self._factored: CholeskyFactor | None = None
        self.trace: list[PCGScalars] | None = None

    def set_preconditioner(self, preconditioner: Preconditioner) -> None:
        """Take an option.

        Raises:
            OptionError: it does not apply to the energy, or to its graphs.
        """
        self._obstacles.check(preconditioner)
        self._asked = preconditioner
        if preconditioner != "auto":
            self._choice = Choice(preconditioner or "jacobi", self._others, None)
        elif self._obstacles.multigrid is None:
            patience = PATIENCE if self._obstacles.grid is None else ASSEMBLED_PATIENCE
            self._choice = Choice(self.first, self._others, patience)
        else:
            self._choice = Choice(self.first, self._others, None)
        self._used = {}

    def prepare(self, damped: bool) -> None:
        """Compile the multigrid of the grid, where it may be used; all else is compiled with the energy."""
        if self._obstacles.grid is None and self._asked in ("auto", "multigrid"):
            self._bound.library.multigrid()

    def check(self, sizes: Mapping[Dim, int], graphs: Mapping[Graph, Connectivity]) -> None:
        """Nothing, if what was asked for by name also applies at other sizes, with other edges.

        Raises:
            OptionError: it does not.
        """
        obstacles(self._bound.program, sizes, graphs).check(self._asked)

    def set_graphs(self, graphs: Mapping[Graph, Connectivity]) -> None:
        """Take over the edges: what applies depends on them.

        Raises:
            OptionError: what was asked for by name does not apply; nothing has changed then.
        """
        if graphs.keys() == self._graphs.keys() and all(graphs[g] is c for g, c in self._graphs.items()):
            return
        found = obstacles(self._bound.program, self._bound.buffers.sizes, graphs)
        found.check(self._asked)
        self._graphs, self._obstacles = graphs, found
        self._assembly = self._algebraic = self._factored = None
        self.set_preconditioner(self._asked)  # what was cheap, or slow, with the old edges need not be so any more

    def data_changed(self) -> None:
        """What was found out about preconditioners does not hold for other data."""
        for levels in (self._grid, self._algebraic):
            if levels is not None:
                levels.data_changed()
        if self._choice.disappointed:
            self.set_preconditioner(self._asked)

    @property
    def first(self) -> Literal["jacobi", "block_jacobi"]:
        """What "auto" begins with."""
        return "jacobi" if self._obstacles.grid is None else "block_jacobi"

    @property
    def blocks(self) -> bool:
        """Whether the blocks of J^T J are asked for, not only its diagonal."""
        kind = self._choice.kind
        asked = kind == "block_jacobi" or (kind != "jacobi" and self._obstacles.matrix is None)
        return asked and "evalJTF_block" in self._bound.program.groups

    @property
    def used(self) -> str:
        """The preconditioners that took part so far."""
        return ", then ".join(self._used) or "none yet"

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in (self._grid, self._algebraic, self._factored) if x is not None)

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
            reset_period=limits.residual_reset_period, r_tolerance=limits.r_tolerance,
            precision=self._precision, slice=SLICE, rho_0=-1.0,
            trace=None if rows is None else rows.ctypes.data,
        )  # fmt: skip
        spent = 0
        while True:
            preconditioned, before = self._in_force(damped), state.k
            solved = preconditioned.solve(state, limits, damped, self._choice.patience)
            self._used[preconditioned.name] = None
            self._choice.report(solved.outcome, solved.summary.iterations - before, state.Q)
            if state.status:
                break
            if state.k == 0:  # another preconditioner begins anew
                spent += solved.summary.iterations
                limits = replace(limits, max_iterations=limits.max_iterations - solved.summary.iterations)
        if self._choice.settle(state.Q, ended=solved.summary.status is not LinearStatus.TIME_LIMIT):
            self._multigrid.trust()
        if rows is not None and self.trace is not None:
            self.trace.extend(PCGScalars(int(row[0]), *map(float, row[1:])) for row in rows[: state.k])
        return replace(solved.summary, iterations=spent + solved.summary.iterations) if spent else solved.summary

    # -- the preconditioner in force -----------------------------------------------------------------------------------

    def _in_force(self, damped: bool) -> PreconditionedSolve:
        if self._choice.kind == "cholesky":
            factor = self._factor
            try:
                factor.build(damped)
                return CholeskySolve(factor)
            except MemoryError:
                self._do_without(factor)
        if self._choice.kind == "multigrid":
            return self._multigrid
        kind = self.blocks, self._obstacles.grid is None
        if kind not in self._jacobi:
            self._jacobi[kind] = JacobiSolve(self._bound, self._unknowns, *kind)
        return self._jacobi[kind]

    def _others(self, left: Kind) -> list[Kind]:
        """What may take the place of a preconditioner, in order; of what is asked for by name, what always serves."""
        if self._asked != "auto" or self._obstacles.multigrid is not None:
            return ["block_jacobi"] if left == "cholesky" else []
        kinds: list[Kind]
        if self._obstacles.grid is None:
            kinds = ["jacobi", "multigrid"]
        else:
            first = not self._choice.has_changed
            factored = left == "cholesky" or (self._factor_is_cheap() if first else self._factor_is_afforded())
            kinds = ["cholesky", "block_jacobi", "multigrid"] if factored else ["block_jacobi", "multigrid"]
        return [kind for kind in kinds if kind != left]

    def _do_without(self, factor: CholeskyFactor) -> None:
        """There is no memory for it: "auto" may choose, where it was asked for by name the user has to."""
        if self._asked != "auto":
            needed = f"{factor.needed / 2**30:.1f} GiB"
            raise OptionError(f"preconditioner='cholesky' needs {needed} of memory: use 'auto'") from None
        self._choice.report(Outcome.UNFIT, 0)

    # -- what preconditioners have in memory ---------------------------------------------------------------------------

    @property
    def assembly(self) -> Assembly:
        """The sparsity of J^T J, which belongs to the graphs."""
        if self._assembly is None:
            self._assembly = Assembly(self._bound, self._unknowns, self._graphs)
        return self._assembly

    @property
    def _multigrid(self) -> MultigridSolve:
        if self._obstacles.matrix is None:
            if self._algebraic is None:
                self._algebraic = MultigridSolve(partial(run, self._bound), AlgebraicMultigrid(self.assembly))
            return self._algebraic
        if self._grid is None:
            self._grid = MultigridSolve(partial(run, self._bound), GridMultigrid(self._bound, self._unknowns))
        return self._grid

    @property
    def _factor(self) -> CholeskyFactor:
        if self._factored is None:
            self._factored = CholeskyFactor(self.assembly)
        return self._factored

    def _factor_is_cheap(self) -> bool:
        assembly = self.assembly
        numbers = assembly.pattern.nnz * assembly.channels**2
        return assembly.nodes <= _ANALYSED and self._factor.operations <= _CHEAP * numbers

    def _factor_is_afforded(self) -> bool:
        return self._factor.operations <= _AFFORDED
