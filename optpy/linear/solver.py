"""The linear solve of one nonlinear iteration on native code, and the choice of its preconditioner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, final

import numpy as np

from ..errors import OptionError
from ..ir import Dim, Field, Graph
from ..kernels.context import PcgState
from ..kernels.library import BoundProgram
from ..kernels.tables import Connectivity
from ..solver.options import Preconditioner
from ..solver.pcg import PCGScalars
from ..solver.protocol import LinearLimits, LinearSummary
from .assembled import AlgebraicMultigrid, Assembly, CholeskyFactor
from .cholesky import CholeskySolve
from .grid import GridMultigrid
from .jacobi import JacobiSolve
from .loop import PreconditionedSolve, run
from .multigrid import MultigridSolve
from .obstacles import obstacles

_SLICE = 0.05
"""Seconds after which the native loop comes back to Python, so that Ctrl-C is heard."""
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
    with a factorisation after all where that is slow.

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
        self._kind: Kind = "jacobi"  # what the next solve begins with
        self._may_change = False
        self._used: dict[str, None] = {}
        # What takes memory, and time to make, is kept while another preconditioner is in force.
        self._grid: MultigridSolve | None = None
        self._assembly: Assembly | None = None
        self._assembled: MultigridSolve | CholeskyFactor | None = None
        self.trace: list[PCGScalars] | None = None

    def set_preconditioner(self, preconditioner: Preconditioner) -> None:
        """Take an option.

        Raises:
            OptionError: it does not apply to the energy, or to its graphs.
        """
        self._obstacles.check(preconditioner)
        self._asked = preconditioner
        self._may_change = preconditioner == "auto" and self._obstacles.multigrid is None
        if preconditioner is None:
            self._kind = "jacobi"
        else:
            self._kind = self.first if preconditioner == "auto" else preconditioner
        self._used = {}

    def prepare(self, damped: bool) -> None:
        """All is compiled with the energy."""

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
        self._assembly, self._assembled = None, None
        self.set_preconditioner(self._asked)  # what was cheap, or slow, with the old edges need not be so any more

    def data_changed(self) -> None:
        """What was found out about preconditioners does not hold for other data."""
        for levels in (self._grid, self._assembled):
            if isinstance(levels, MultigridSolve):
                levels.data_changed()
        if not self._may_change:
            self.set_preconditioner(self._asked)

    @property
    def first(self) -> Literal["jacobi", "block_jacobi"]:
        """What "auto" begins with."""
        return "jacobi" if self._obstacles.grid is None else "block_jacobi"

    @property
    def blocks(self) -> bool:
        """Whether the blocks of J^T J are asked for, not only its diagonal."""
        asked = self._kind == "block_jacobi" or (self._kind != "jacobi" and self._obstacles.matrix is None)
        return asked and "evalJTF_block" in self._bound.program.groups

    @property
    def used(self) -> str:
        """The preconditioners that took part so far."""
        return ", then ".join(self._used) or "none yet"

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in (self._grid, self._assembled) if x is not None)

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
        spent = 0
        while True:
            preconditioned = self._in_force(damped)
            solved = preconditioned.solve(state, limits, damped, self._may_change)
            self._used[preconditioned.name] = None
            if not solved.serves:
                self._replace()
            if state.status:
                break
            if state.k == 0:  # another preconditioner begins anew
                spent += solved.summary.iterations
                limits = replace(limits, max_iterations=limits.max_iterations - solved.summary.iterations)
        if rows is not None and self.trace is not None:
            self.trace.extend(PCGScalars(int(row[0]), *map(float, row[1:])) for row in rows[: state.k])
        return replace(solved.summary, iterations=spent + solved.summary.iterations)

    # -- the preconditioner in force -----------------------------------------------------------------------------------

    def _in_force(self, damped: bool) -> PreconditionedSolve:
        if self._kind == "cholesky":
            factor = self._factor
            try:
                factor.build(damped)
                return CholeskySolve(self._bound, factor)
            except MemoryError:
                self._do_without(factor)
        if self._kind == "multigrid":
            return self._multigrid
        on_grid = self._obstacles.grid is None
        return JacobiSolve(self._bound, self._unknowns, self.blocks, on_grid)

    def _replace(self) -> None:
        """What takes the place of a preconditioner that does not serve; from multigrid on it is for good."""
        match self._kind:
            case "jacobi":
                self._kind = "multigrid"
            case "block_jacobi":
                self._kind = "cholesky" if self._factor_is_cheap() else "multigrid"
            case "multigrid" if self._obstacles.grid is None:
                self._kind, self._may_change = "jacobi", False
            case "multigrid":
                afforded = self._factor.operations <= _AFFORDED
                self._kind, self._may_change = "cholesky" if afforded else "block_jacobi", False
            case "cholesky":
                self._kind, self._may_change = "block_jacobi", False

    def _do_without(self, factor: CholeskyFactor) -> None:
        """There is no memory for it: "auto" may choose, where it was asked for by name the user has to."""
        if self._asked != "auto":
            needed = f"{factor.nbytes / 2**30:.1f} GiB"
            raise OptionError(f"preconditioner='cholesky' needs {needed} of memory: use 'auto'") from None
        self._kind, self._may_change = "block_jacobi", False

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
            if not isinstance(self._assembled, MultigridSolve):
                self._assembled = MultigridSolve(partial(run, self._bound), AlgebraicMultigrid(self.assembly))
            return self._assembled
        if self._grid is None:
            self._grid = MultigridSolve(partial(run, self._bound), GridMultigrid(self._bound, self._unknowns))
        return self._grid

    @property
    def _factor(self) -> CholeskyFactor:
        if not isinstance(self._assembled, CholeskyFactor):
            self._assembled = CholeskyFactor(self.assembly)
        return self._assembled

    def _factor_is_cheap(self) -> bool:
        assembly = self.assembly
        numbers = assembly.pattern.nnz * assembly.channels**2
        return assembly.nodes <= _ANALYSED and self._factor.operations <= _CHEAP * numbers
