"""A preconditioner as the driver of linear solves uses it, and what it tells of a solve."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, final

from optpy.kernels.codegen.pcg_structures import PcgIteration
from optpy.linear.pcg.state import PcgState
from optpy.solver.protocol import LinearLimits, LinearSummary

UNREDUCED = 0.3
"""A solve that leaves more than that of ||r|| has solved nothing. No benchmark has set it: where errors
are missed about all of it is left (``tests/linear/test_multigrid_is_taken.py``)."""


class Outcome(Enum):
    """The outcome of a preconditioner in a linear solve."""

    SERVED = "it has ended the solve, and may go on with the next"
    DEAR = "it has taken more than it was to take, or met the limit of the solve"
    DOUBTED = "it has ended by its own test, but leaves a residual as if it missed errors"
    UNFIT = "it cannot solve at all: there is no memory, or the matrix is singular"


@final
class SolveRequest(NamedTuple):
    """One linear solve.

    Attributes:
        limits: of the whole solve.
        damped: whether A = J^T J + D, or J^T J alone.
        patience: iterations after which another preconditioner may go on where this one is slow; None: no other.
        ahead: queues what follows the solve, for a device that need not wait for the host.
    """

    limits: LinearLimits
    damped: bool
    patience: int | None
    ahead: Callable[[], None]


@final
class Solved(NamedTuple):
    """The part of a linear solve that one preconditioner has done.

    Attributes:
        summary: of the solve; None: another preconditioner is to go on with it.
        outcome: of the preconditioner; another one is to take its place from now on where it has not served.
        iterations: of the solve so far.
    """

    summary: LinearSummary | None
    outcome: Outcome
    iterations: int


class NoMemory(Exception):
    """There is no memory for a preconditioner: "auto" does without it.

    Args:
        error: for the user who has asked for it by name.
        note: what a report says of "auto"; "": nothing.
    """

    def __init__(self, error: Exception, note: str = "") -> None:
        self.error, self.note = error, note


class LinearMethod(ABC):
    """Conjugate gradients with one preconditioner, which lasts from solve to solve."""

    @property
    @abstractmethod
    def name(self) -> str:
        """As reports name the preconditioner."""

    @abstractmethod
    def solve(self, state: PcgState, request: SolveRequest) -> Solved:
        """Run conjugate gradients, from where another preconditioner has left them.

        Args:
            state: of the loop; its status is 0 afterwards where another one is to go on.
            request: what is asked for.

        Raises:
            NoMemory: nothing has been done.
        """

    @property
    def nbytes(self) -> int:
        """Of memory beside the vectors."""
        return 0

    def data_changed(self) -> None:  # noqa: B027 - most find out nothing
        """Forgets what was found out with the old data."""

    def trust(self) -> None:  # noqa: B027 - most are never doubted
        """A doubt about the last solve has proved to be without reason."""


def go_on(state: PcgState) -> None:
    """The next run goes on from the delta of the last one."""
    state.status, state.resume = 0, 1


def begin_anew(state: PcgState) -> None:
    """The next run starts from delta = 0."""
    state.iteration = PcgIteration(rho_0=-1.0)


def is_unreduced(norms: dict[str, float]) -> bool:
    """Whether ||r|| is about what it was before the solve; the squares are those of ``residual_norms``."""
    return norms["r_squared"] > UNREDUCED**2 * norms["g_squared"]
