"""Conjugate gradients with multigrid, whose levels are kept while they are good."""

from __future__ import annotations

from typing import Any, Protocol, final

from optpy.linear.method import LinearMethod, Outcome, Solved, SolveRequest, go_on, is_unreduced
from optpy.linear.pcg.state import PcgState
from optpy.linear.pcg.status import PcgStatus
from optpy.linear.pcg_loop import PcgLoop
from optpy.linear.safe_work import SafeWork
from optpy.solver.protocol import LinearLimits, LinearStatus, LinearSummary

_BUILDING = 12
"""Iterations with multigrid that take as long as building its levels: 6 to 11 in ``python -m bench.preconditioners
--size 512`` on pictures, and 15 to 35 on meshes (``--size 96``)."""
_PROBATION = 4
"""Iterations after which levels of another linearisation are looked at: with good ones a solve has nearly ended, and a
third of what new ones cost is lost (``_BUILDING``)."""
SLOW = 0.9
"""Multigrid that leaves more than that of the error in an iteration is no better than Jacobi to judge by its gains: ten
such iterations leave a third of the error. By reasoning."""
MISJUDGED = 200.0
"""A solve misses errors where it leaves about all of ||r||, and of r.r so many times as of r.z. No benchmark has set
it; cases of both kinds are in ``tests/linear/test_multigrid_is_taken.py``."""
_FORCING = 0.1
"""The forcing with multigrid, as Ceres has it: an iteration leaves a tenth of the error or less."""
_CAREFUL = 1e-5
"""The forcing with multigrid that misses errors: a hundredth of what is right for Jacobi, as gains show them late. No
benchmark has set it."""


class Levels(Protocol):
    """The levels of a multigrid: ``GridMultigrid``, ``AlgebraicMultigrid``, or ``CudaGridMultigrid``."""

    @property
    def nbytes(self) -> int:
        """Bytes that the levels take."""

    def kernels(self, damped: bool) -> Any:
        """The kernels of conjugate gradients with the levels that were built last, for the loop that runs them."""

    def build(self, damped: bool, safe_work: SafeWork) -> None:
        """Levels for A = J^T J (+ D) as it now is.

        Raises:
            OutOfTime
        """

    def residual_norms(self) -> dict[str, float]:
        """r.r, and g.g, which is that of the start; after a solve."""


@final
class MultigridSolve(LinearMethod):
    """Multigrid of a grid, or of an assembled matrix: levels of one linearisation serve later ones as long as they do
    about as well as when they were new.

    Args:
        loop: runs conjugate gradients.
        levels: which need not be built yet.
    """

    def __init__(self, loop: PcgLoop, levels: Levels) -> None:
        self._loop = loop
        self._levels = levels
        self._first_iterations: int | None = None  # of the first solve with the present levels
        self._excess = 0  # iterations beyond those of the first solve, in all later ones
        # What has been found out with this data:
        self._misses_errors = False
        self._trusted = False
        self._given_up = False

    @property
    def name(self) -> str:
        return "multigrid"

    @property
    def levels(self) -> Levels:
        return self._levels

    @property
    def nbytes(self) -> int:
        return self._levels.nbytes

    def data_changed(self) -> None:
        """The levels no longer belong to the problem, nor what they were found to miss."""
        self._first_iterations = None
        self._misses_errors = self._trusted = self._given_up = False

    def trust(self) -> None:
        """It has been found that no errors are missed with this data, though it seemed so."""
        self._trusted = True

    def solve(self, state: PcgState, request: SolveRequest) -> Solved:
        limits, damped, patience = request.limits, request.damped, request.patience
        before, reduced = state.k, _reduced(state)
        decided = self._decided(limits)
        most = limits.max_iterations
        if patience is not None and self._given_up:
            most = min(most, before + patience)
        summary = self._run(state, decided._replace(max_iterations=most), damped)
        missed = False
        if state.status == PcgStatus.MODEL and limits.eta is None:
            slow = is_slow(state, state.k - before, reduced)
            missed = self._errors_are_missed(state, slow)
            careful = limits.decided(_CAREFUL) if missed else self._decided(limits, slow)
            assert careful.eta is not None is not decided.eta
            if careful.eta < decided.eta:
                # Of an iteration that leaves much, what is still to come may be many times the last gain.
                state.status = 0
                most = limits.max_iterations if patience is None else min(limits.max_iterations, state.k + patience)
                summary = self._iterate(self._levels.kernels(damped), state, careful._replace(max_iterations=most))
                # Good levels reduce r too, only later than r.z: what they leave at first are errors of short waves.
                missed = missed and (patience is None or is_unreduced(self._levels.residual_norms()))
            self._misses_errors |= missed
        self._count(state.k - before)
        outcome = Outcome.SERVED if patience is None else self._outcome(state, limits, summary, missed)
        if outcome is not Outcome.SERVED:
            self._given_up = True
            go_on(state)
            state.rho = state.rho_0 = 1.0
            return Solved(None, outcome, state.k)
        if patience is not None and state.k - before > patience and is_slow(state, state.k - before, reduced):
            outcome, self._given_up = Outcome.DEAR, True
        self._loop.follow(request.ahead)
        return Solved(summary, outcome, summary.iterations)

    def _iterate(self, kernels: Any, state: PcgState, limits: LinearLimits) -> LinearSummary:
        summary = self._loop.run(kernels, state, limits)
        assert summary is not None  # it has no pause
        return summary

    def _outcome(self, state: PcgState, limits: LinearLimits, summary: LinearSummary, missed: bool) -> Outcome:
        """Of a solve that another preconditioner may go on with."""
        if summary.status is LinearStatus.MAX_ITERATIONS and state.k < limits.max_iterations:
            return Outcome.DEAR
        if summary.status in (LinearStatus.BREAKDOWN, LinearStatus.FAILURE) and state.status != PcgStatus.STAGNATED:
            return Outcome.DEAR
        return Outcome.DOUBTED if missed and not self._trusted else Outcome.SERVED

    def _run(self, state: PcgState, limits: LinearLimits, damped: bool) -> LinearSummary:
        """With the levels that there are, as far as they are good."""
        if self._first_iterations is None or self._excess > _BUILDING:
            self._build(damped)
        if self._first_iterations is not None:
            return self._with_old_levels(state, limits, damped, self._first_iterations)
        return self._iterate(self._levels.kernels(damped), state, limits)

    def _with_old_levels(
        self, state: PcgState, limits: LinearLimits, damped: bool, first_iterations: int
    ) -> LinearSummary:
        """A solve with the levels of another linearisation, until they prove to be worn; then with new ones."""
        kernels = self._levels.kernels(damped)
        before, reduced = state.k, _reduced(state)
        for patience in (_PROBATION, first_iterations + 2 * _BUILDING):
            limited = limits._replace(max_iterations=min(before + patience, limits.max_iterations))
            summary = self._iterate(kernels, state, limited)
            # With the levels of this linearisation M is positive definite.
            failed = summary.status is LinearStatus.BREAKDOWN or is_slow(state, state.k - before, reduced)
            if failed or summary.status is not LinearStatus.MAX_ITERATIONS or state.k >= limits.max_iterations:
                break
            state.status, failed = 0, True
        if failed and state.k < limits.max_iterations:
            self._build(damped)
            go_on(state)
            summary = self._iterate(kernels, state, limits)
        return summary

    def _build(self, damped: bool) -> None:
        self._first_iterations = None  # first, so that levels which are cut short are built again
        self._levels.build(damped, self._loop.safe_work)

    def _count(self, iterations: int) -> None:
        """Levels are worn once they have cost as much by being old as new ones would."""
        if not iterations:  # what another preconditioner has left was good enough: of the levels it says nothing
            return
        if self._first_iterations is None:
            self._first_iterations, self._excess = iterations, 0
        self._excess += max(iterations - self._first_iterations, 0)

    def _decided(self, limits: LinearLimits, slow: bool = False) -> LinearLimits:
        """With eta, or its default for multigrid as it has proved to be."""
        if self._misses_errors:
            return limits.decided(_CAREFUL)
        return limits.decided(None if slow else _FORCING)

    def _errors_are_missed(self, state: PcgState, slow: bool) -> bool:
        """Whether the solve has left r as it was, though r.z has fallen, or many iterations have been made.

        Where coefficients jump by orders, M can be too large by as many along errors that the coarse grids do not
        have: in r.z, and in the gains, these count for nothing at first, but they stay in r.
        """
        norms = self._levels.residual_norms()
        misjudged = norms["r_squared"] > MISJUDGED * state.rho / state.rho_0 * norms["g_squared"]
        return (slow or misjudged) and is_unreduced(norms)


def _reduced(state: PcgState) -> float:
    """r.z over that of the start."""
    return state.rho / state.rho_0 if state.k else 1.0


def is_slow(state: PcgState, iterations: int, reduced: float) -> bool:
    """Whether iterations with multigrid leave much of the error, as where coefficients jump by orders.

    Args:
        state: after them.
        reduced: r.z over that of the start, before them.
    """
    return bool(state.rho > state.rho_0 * reduced * SLOW ** (2 * iterations))
