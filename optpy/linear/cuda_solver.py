"""The linear solve of one nonlinear iteration on a GPU, where all of it stays, and the choice of its preconditioner."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, final

import numpy as np

from optpy.errors import DeviceMemoryError, OptionError
from optpy.ir import Dim, Field, Graph, Uncoupled
from optpy.kernels.runtime.cuda.bound import BoundCuda
from optpy.kernels.runtime.tables import Connectivity
from optpy.linear.choice import Choice, Kind, Outcome
from optpy.linear.cuda_lines import CudaLines
from optpy.linear.cuda_loop import CudaLoop
from optpy.linear.ending import linear_summary
from optpy.linear.jacobi.jacobi import PATIENCE
from optpy.linear.loop import go_on
from optpy.linear.multigrid.cuda_grid import CudaGridMultigrid
from optpy.linear.multigrid.cuda_levels import MOST_CHANNELS, level_sizes, levels_kernel, levels_nbytes
from optpy.linear.multigrid.solve import MultigridSolve
from optpy.linear.obstacles import grid_obstacle
from optpy.linear.pcg.state import PcgState
from optpy.solver.options import Preconditioner, refuse_on_gpu
from optpy.solver.pcg import PCGScalars
from optpy.solver.protocol import LinearLimits, LinearStatus, LinearSummary

_TOGETHER = 2**20
"""Points up to which all iterations run in one kernel: there a launch costs more than waiting for all blocks."""
_MOST_POINTS = 2**31
"""What the kernels of multigrid count points in, and elements of a coarse plane."""


@final
class CudaLinearSolver:
    """Preconditioned conjugate gradients on (J^T J + D) delta = -g, by Jacobi, block-Jacobi, or the multigrid of the
    unknowns' grid.

    With Jacobi small problems run in one kernel whose blocks wait for one another; on large ones each line of the
    method is a kernel: three to an iteration. "auto" begins with Jacobi where multigrid applies, and lets it go on from
    there where a solve takes many iterations, as on the CPU (see ``Choice``); elsewhere it is block-Jacobi, or Jacobi
    where all blocks are diagonal.

    Args:
        bound: the energy's program with its memory.
        unknowns: fields of the unknowns, in order.
    """

    def __init__(self, bound: BoundCuda, unknowns: Sequence[Field]) -> None:
        self._bound = bound
        self._unknowns = unknowns
        self._loop = CudaLoop(bound)
        self._graphs: Mapping[Graph, Connectivity] = {}
        self._obstacle = self._grid_obstacle(bound.buffers.sizes, {})
        self._asked: Preconditioner = None
        self._choice = Choice("jacobi", self._others, None)
        self._used: dict[str, None] = {}
        self._grid: MultigridSolve | None = None  # its levels are kept while another preconditioner is in force
        self.trace: list[PCGScalars] | None = None

    def set_preconditioner(self, preconditioner: Preconditioner) -> None:
        """Take an option.

        Raises:
            OptionError: it does not apply to the energy, or to its graphs, or runs on the CPU only.
        """
        refuse_on_gpu(preconditioner)
        self._refuse(preconditioner, self._obstacle)
        self._asked = preconditioner
        kind: Kind = self.first if preconditioner == "auto" else preconditioner or "jacobi"
        if kind == "block_jacobi" and not self._has_blocks:
            kind = "jacobi"
        changes = preconditioner == "auto" and self._obstacle is None
        self._choice = Choice(kind, self._others, PATIENCE if changes else None)
        self._used = {}

    def prepare(self, damped: bool) -> None:
        """Compile what the first solve begins with, so that it need not. Multigrid that takes over from Jacobi is
        compiled when it does: many solves never come to it."""
        name = "pcg_solve"
        if self._choice.kind == "multigrid":
            name = "pcg_start"
            levels_kernel(self._bound.library, "mg_small_levels")
        self._bound.library.pcg(name, self._suffix, damped, self._bound.index)

    def check(self, sizes: Mapping[Dim, int], graphs: Mapping[Graph, Connectivity]) -> None:
        """Nothing, if what was asked for by name also applies at other sizes, with other edges.

        Raises:
            OptionError: it does not.
        """
        self._refuse(self._asked, self._grid_obstacle(sizes, graphs))

    def set_graphs(self, graphs: Mapping[Graph, Connectivity]) -> None:
        """Take over the edges: how long they are decides whether multigrid applies.

        Raises:
            OptionError: what was asked for by name does not apply; nothing has changed then.
        """
        if graphs.keys() == self._graphs.keys() and all(graphs[g] is c for g, c in self._graphs.items()):
            return
        obstacle = self._grid_obstacle(self._bound.buffers.sizes, graphs)
        self._refuse(self._asked, obstacle)
        self._graphs, self._obstacle = graphs, obstacle
        self.set_preconditioner(self._asked)

    def data_changed(self) -> None:
        """What was found out about preconditioners does not hold for other data."""
        if self._grid is not None:
            self._grid.data_changed()
        if self._choice.disappointed:
            self.set_preconditioner(self._asked)

    @property
    def first(self) -> Literal["jacobi", "block_jacobi"]:
        """What "auto" begins with."""
        return "block_jacobi" if self._has_blocks and self._obstacle is not None else "jacobi"

    @property
    def blocks(self) -> bool:
        """Whether the blocks of J^T J are asked for, not only its diagonal."""
        return self._choice.kind == "block_jacobi"

    @property
    def used(self) -> str:
        """The preconditioners that took part so far."""
        return ", then ".join(self._used) or "none yet"

    @property
    def nbytes(self) -> int:
        return self._bound.nbytes + (self._grid.nbytes if self._grid is not None else 0)

    def solve(self, limits: LinearLimits, damped: bool, ahead: Callable[[], None]) -> LinearSummary:
        """Conjugate gradients from delta = 0; see ``NonlinearProblem.solve_linear``.

        Args:
            limits: when it ends.
            damped: whether A = J^T J + D, or J^T J alone.
            ahead: queues what follows the solve, before the host waits for it where no other preconditioner may go on.
        """
        rows = self._bound.xp.zeros((limits.max_iterations, 7), np.float64) if self.trace is not None else None
        state = PcgState(rho_0=-1.0, trace=None if rows is None else self._bound.device.address(rows))
        summary = None
        while summary is None:
            if self._choice.kind == "multigrid":
                summary = self._with_multigrid(state, limits, damped, ahead)
            else:
                summary = self._with_jacobi(state, limits, damped, ahead)
        if self._choice.settle(state.Q, ended=summary.status is not LinearStatus.TIME_LIMIT) and self._grid is not None:
            self._grid.trust()
        if rows is not None and self.trace is not None:
            found = self._bound.host(rows)[: state.k]
            self.trace.extend(PCGScalars(int(row[0]), *map(float, row[1:])) for row in found)
        return summary

    def _with_jacobi(
        self, state: PcgState, limits: LinearLimits, damped: bool, ahead: Callable[[], None]
    ) -> LinearSummary | None:
        """None where multigrid is to go on."""
        self._used[self._choice.kind] = None
        lines = CudaLines(self._bound, self._unknowns, self._suffix, damped)
        limits = replace(limits, eta=limits.forcing())
        patience, before = self._choice.patience, state.k
        pause = limits.max_iterations if patience is None else patience
        small = self._bound.points(f"start{self._suffix}") <= _TOGETHER and not state.resume
        run = self._loop.run_together if small else self._loop.run_with
        if run(lines, state, limits, pause, ahead):
            self._choice.report(Outcome.DEAR, state.k - before)
            go_on(state)
            return None
        summary = linear_summary(state, limits)
        dear = summary.status is LinearStatus.MAX_ITERATIONS and patience is None
        self._choice.report(Outcome.DEAR if dear else Outcome.SERVED, state.k - before)
        return summary

    def _with_multigrid(
        self, state: PcgState, limits: LinearLimits, damped: bool, ahead: Callable[[], None]
    ) -> LinearSummary | None:
        """None where Jacobi is to go on."""
        multigrid = self._multigrid()
        if multigrid is None:
            return None
        before = state.k
        solved = multigrid.solve(state, limits, damped, self._choice.patience)
        self._used["multigrid"] = None
        self._choice.report(solved.outcome, state.k - before, state.Q)
        if not state.status:
            return None
        ahead()
        return solved.summary

    def _multigrid(self) -> MultigridSolve | None:
        """None where there is no memory for it: "auto" may choose, where it was asked for by name the user has to."""
        if self._grid is None:
            try:
                self._grid = MultigridSolve(self._loop.run, CudaGridMultigrid(self._bound, self._unknowns))
            except MemoryError as error:
                if self._asked != "auto":
                    device, needed = self._bound.device, levels_nbytes(self._bound)
                    raise DeviceMemoryError(
                        f"the levels of preconditioner='multigrid' take {needed:,} bytes, and beside the solve "
                        f"{device.free_memory():,} are free on {device.name}: use 'auto'"
                    ) from error
                self._used["jacobi (no memory for multigrid)"] = None
                self._choice.report(Outcome.UNFIT, 0)
        return self._grid

    def _others(self, left: Kind) -> list[Kind]:
        """What "auto" may put in the place of a preconditioner."""
        kinds: list[Kind] = ["jacobi", "multigrid"]
        return [kind for kind in kinds if kind != left] if self._asked == "auto" and self._obstacle is None else []

    def _grid_obstacle(self, sizes: Mapping[Dim, int], graphs: Mapping[Graph, Connectivity]) -> str | None:
        """Why multigrid does not apply, in words; None if it does."""
        coupling = self._bound.program.coupling
        if isinstance(coupling, Uncoupled):
            return coupling.reason
        if len(coupling.elements) > MOST_CHANNELS:
            return f"there are {len(coupling.elements)} numbers at each point, and {MOST_CHANNELS} at most are served"
        if max(math.prod(sizes[d] for d in coupling.dims), level_sizes(coupling, sizes)[0].plane) >= _MOST_POINTS:
            return "the grid has about 2^31 points or more"
        return grid_obstacle(coupling, graphs)

    def _refuse(self, preconditioner: Preconditioner, obstacle: str | None) -> None:
        if preconditioner == "multigrid" and obstacle is not None:
            raise OptionError(
                f"preconditioner='multigrid' does not apply on a GPU, where it is that of one grid: {obstacle}; use "
                "'auto', or device='cpu'"
            )

    @property
    def _has_blocks(self) -> bool:
        return "evalJTF_block" in self._bound.program.phases

    @property
    def _suffix(self) -> str:
        return {"jacobi": "", "block_jacobi": "_block", "multigrid": "_multigrid"}[self._choice.kind]
