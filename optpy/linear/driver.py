"""The linear solve of one nonlinear iteration, and the choice of its preconditioner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

from optpy.ir import Extent, Field, Hypergraph
from optpy.kernels.runtime.tables import Connectivity
from optpy.linear.choice import Choice
from optpy.linear.method import LinearMethod, NoMemory, Outcome, Solved, SolveRequest, go_on
from optpy.linear.pcg.state import PcgState
from optpy.linear.pcg_loop import PcgLoop
from optpy.linear.record import Implementation, Record
from optpy.linear.registry import BLOCKS, PLAIN, check, heavier, in_order, named, refuse_on_gpu
from optpy.linear.right_hand_side import RightHandSide
from optpy.linear.system import System
from optpy.solver.options import Preconditioner
from optpy.solver.pcg import PCGScalars
from optpy.solver.protocol import LinearLimits, LinearStatus, LinearSummary
from optpy.solver.safe_point import UNDISTURBED, OutOfTime


@final
class LinearSolver:
    """Preconditioned conjugate gradients on (J^T J + D) x = b.

    "auto" begins with what need not be made, and lets another preconditioner go on where a solve takes many iterations:
    those of the registry that apply to the energy, to its sizes and to its graphs. ``Choice`` says when one is left,
    and come back to.

    Args:
        loop: runs conjugate gradients on the device.

    Attributes:
        system: that is solved.
        trace: if set to a list, every iteration appends its scalars.
    """

    def __init__(self, loop: PcgLoop) -> None:
        self._loop = loop
        self.system = System(loop, {})
        self._asked: Preconditioner = None
        self._heavier: list[Record] = []  # what may take the place of what "auto" begins with
        self._choice = Choice(PLAIN, self._others, None)
        self._used: dict[str, None] = {}
        self._methods: dict[Record, LinearMethod] = {}  # they take time to make, and are kept while another is used
        self._compiled: set[tuple[Record, bool]] = set()  # also by whether A was damped
        self.trace: list[PCGScalars] | None = None

    def set_preconditioner(self, preconditioner: Preconditioner) -> None:
        """Take an option.

        Raises:
            OptionError: it does not apply to the energy, or to its graphs, or not on this device.
        """
        if self._loop.device != "cpu":
            refuse_on_gpu(preconditioner)
        check(preconditioner, self.system)
        self._asked = preconditioner
        self._heavier = heavier(self.system)
        if preconditioner == "auto":
            patience = self._heavier[0].patience_for(self.system) if self._heavier else None
            self._choice = Choice(self._starter, self._others, patience)
        else:
            record = PLAIN if preconditioner is None else named(preconditioner, self.system)
            self._choice = Choice(record, self._others, None)
        self._used = {}

    def prepare(self, damped: bool, ahead: bool) -> None:
        """Compile what solves begin with and is not there yet.

        Args:
            damped: whether A = J^T J + D, or J^T J alone.
            ahead: whether also what they may come to need. On a GPU that is never compiled ahead.
        """
        records = [self._choice.record]
        if self._asked == "auto" and ahead and not self._loop.compiles_late:
            records += self._heavier
        for record in records:
            self._compile(record, damped)
        if ahead and not damped and not self._loop.compiles_late:
            self._compile(self._choice.record, True)  # the test of an ending may damp a little

    def _compile(self, record: Record, damped: bool) -> None:
        if (record, damped) not in self._compiled:
            self._implementation(record).compile(self.system, damped)
            self._compiled.add((record, damped))

    def check(self, sizes: Mapping[Extent, int], graphs: Mapping[Hypergraph, Connectivity]) -> None:
        """Nothing, if what was asked for by name also applies at other sizes, with other edges.

        Raises:
            OptionError: it does not.
        """
        check(self._asked, System(self._loop, graphs, sizes))

    def set_graphs(self, graphs: Mapping[Hypergraph, Connectivity]) -> None:
        """Take over the edges: what applies depends on them.

        Raises:
            OptionError: what was asked for by name does not apply; nothing has changed then.
        """
        old = self.system.graphs
        if graphs.keys() == old.keys() and all(old[g] is c for g, c in graphs.items()):
            return
        system = System(self._loop, graphs)
        check(self._asked, system)
        self.system, self._methods = system, {}
        self.set_preconditioner(self._asked)  # what was cheap, or slow, with the old edges need not be so any more

    def data_changed(self) -> None:
        """Forgets the times of preconditioners: they do not hold for other data."""
        for method in self._methods.values():
            method.data_changed()
        if self._choice.disappointed:
            self.set_preconditioner(self._asked)

    @property
    def first(self) -> str:
        """The preconditioner that "auto" begins with, by its option."""
        return self._starter.option

    @property
    def iteration_cost(self) -> float:
        """Of an iteration with the preconditioner in force, in iterations with Jacobi."""
        return self._choice.record.iteration_cost

    @property
    def _starter(self) -> Record:
        starter = self._heavier[0].starter if self._heavier else None
        return starter or BLOCKS

    @property
    def blocks(self) -> bool:
        """Whether the blocks of J^T J are asked for, not only its diagonal."""
        return self._choice.record.takes_blocks and self._loop.has_blocks

    @property
    def used(self) -> str:
        """The preconditioners that took part so far."""
        return ", then ".join(self._used) or "none yet"

    @property
    def nbytes(self) -> int:
        return self._loop.nbytes + sum(method.nbytes for method in self._methods.values())

    def method(self, record: Record) -> LinearMethod:
        """A preconditioner that applies, for this system.

        Raises:
            NoMemory
        """
        found = self._methods.get(record)
        if found is None:
            found = self._methods[record] = self._implementation(record).make(self.system)
        return found

    def solve(self, limits: LinearLimits, damped: bool, ahead: Callable[[], None]) -> LinearSummary:
        """Solve (J^T J + D) delta = -g from delta = 0; see ``NonlinearProblem.solve_linear``.

        Args:
            limits: when it ends.
            damped: whether A = J^T J + D, or J^T J alone.
            ahead: queues what follows the solve, before the host waits for it where no other preconditioner may go on.
        """
        self._loop.safe_work.begin(limits.safe_point)
        try:
            return self._solve(limits, damped, ahead)
        finally:
            self._loop.safe_work.begin(UNDISTURBED)

    def _solve(self, limits: LinearLimits, damped: bool, ahead: Callable[[], None]) -> LinearSummary:
        rows, address = (None, None) if self.trace is None else self._loop.trace(limits.max_iterations)
        state = PcgState(rho_0=-1.0, trace=address)
        spent, summary = 0, None
        while summary is None:
            solved = self._solve_with_one(state, SolveRequest(limits, damped, self._choice.patience, ahead))
            summary = solved.summary
            if summary is None and state.k == 0:  # another preconditioner begins anew
                spent += solved.iterations
                limits = limits._replace(max_iterations=limits.max_iterations - solved.iterations)
        if self._choice.settle(state.Q, ended=summary.status is not LinearStatus.TIME_LIMIT):
            self.method(self._choice.record).trust()
        if rows is not None and self.trace is not None:
            found = self._loop.executor.host(rows)[: state.k]
            self.trace.extend(PCGScalars(int(row[0]), *map(float, row[1:])) for row in found)
        return summary._replace(iterations=spent + summary.iterations) if spent else summary

    def solve_for(self, b: Mapping[Field, Any], limits: LinearLimits, damped: bool) -> LinearSummary:
        """Solve (J^T J + D) x = b from x = 0, for any b; x is the vector "delta" afterwards.

        Args:
            b: of each unknown, in coordinates of its tangent space, (*dims, channels), on the device. Where nothing is
                solved for, or nothing depends on an unknown, b counts as 0, and so is x.
            limits, damped: as for ``solve``.
        """
        with RightHandSide(self.system, b, self.blocks).in_place_of_gradient():
            return self.solve(limits, damped, lambda: None)

    # -- the preconditioner in force -----------------------------------------------------------------------------------

    def _implementation(self, record: Record) -> Implementation:
        implementation = record.implementation(self.system)
        assert isinstance(implementation, Implementation)
        return implementation

    def _solve_with_one(self, state: PcgState, request: SolveRequest) -> Solved:
        """Go on with the preconditioner in force, and note what has become of it."""
        try:
            return self._reported(state, request)
        except OutOfTime:  # while it was made: one iteration with what need not be made gives a usable step
            if state.rho_0 >= 0:
                go_on(state)
            method = self.method(BLOCKS if self.blocks else PLAIN)
            self._used[method.name] = None
            return method.solve(state, request._replace(patience=None))

    def _reported(self, state: PcgState, request: SolveRequest) -> Solved:
        before = state.k
        try:
            method = self.method(self._choice.record)
            self._compile(self._choice.record, request.damped)
            solved = method.solve(state, request)
            self._used[method.name] = None
        except NoMemory as lack:  # "auto" may choose, where it was asked for by name the user has to
            if self._asked != "auto":
                raise lack.error from lack.__cause__
            if lack.note:
                self._used[lack.note] = None
            solved = Solved(None, Outcome.UNFIT, before)
        self._choice.report(solved.outcome, solved.iterations - before, state.Q)
        return solved

    def _others(self, left: Record) -> list[Record]:
        """The preconditioners that may replace one, in order; for one asked for by name, those that always serve."""
        if self._asked != "auto":
            return [left.starter] if left.starter else []
        if not self._heavier:
            return []
        records = in_order([self._starter, *self._heavier])
        return [r for r in records if r is not left and self._is_affordable(r)]

    def _is_affordable(self, record: Record) -> bool:
        return record.affordable is None or record.affordable(self.method(record), not self._choice.has_changed)
