"""The native loop of conjugate gradients, and what a preconditioner makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

from optpy.energy.derive.vectors import vector
from optpy.ir import Field
from optpy.kernels.runtime.context import PcgKernels, PcgState
from optpy.kernels.runtime.library import BoundProgram
from optpy.linear.choice import Outcome
from optpy.linear.ending import linear_summary
from optpy.solver.protocol import LinearLimits, LinearSummary

_UNREDUCED = 0.3
"""A solve that leaves more than that of ||r|| has solved nothing."""


@final
@dataclass(frozen=True, slots=True)
class Solved:
    """What a preconditioner has done for a linear solve, which another one goes on with where ``state.status`` is 0.

    Attributes:
        summary: of its iterations.
        outcome: of the preconditioner; another one is to take its place from now on where it has not served.
    """

    summary: LinearSummary
    outcome: Outcome


class PreconditionedSolve(Protocol):
    """Conjugate gradients with one preconditioner."""

    @property
    def name(self) -> str:
        """As reports name the preconditioner."""

    def solve(self, state: PcgState, limits: LinearLimits, damped: bool, patience: int | None) -> Solved:
        """Run conjugate gradients, from where another preconditioner has left them.

        Args:
            state: of the loop.
            limits: of the whole solve.
            damped: whether A = J^T J + D, or J^T J alone.
            patience: iterations after which another preconditioner may go on where this one is slow; None: no other.
        """


Run = Callable[[Any, PcgState, LinearLimits], LinearSummary]
"""Runs conjugate gradients until a test ends them: ``run`` with a program on the CPU, ``CudaLoop.run`` on a GPU.

It takes the lines of the loop with a preconditioner, in whichever form the device has them; the state, which begins a
solve where ``rho_0`` is negative, begins anew from the last delta where ``resume`` is set, and else goes on; and the
limits, whose ``max_iterations`` count from the begin of the solve.
"""


def directions_and_steps(unknowns: Sequence[Field]) -> list[tuple[Field, Field]]:
    """The vectors p and delta of each unknown."""
    return [(vector("p", u), vector("delta", u)) for u in unknowns]


def run(bound: BoundProgram, kernels: PcgKernels, state: PcgState, limits: LinearLimits) -> LinearSummary:
    """Iterate until a test of the loop ends it."""
    state.max_iterations, state.eta = limits.max_iterations, limits.eta
    while state.status == 0:
        limits.safe_point.poll()
        state.time_left = limits.safe_point.seconds_left
        bound.pcg(kernels, state)
    return linear_summary(state, limits)


def go_on(state: PcgState) -> None:
    """The next run goes on from the delta of the last one."""
    state.status, state.resume = 0, 1


def begin_anew(state: PcgState) -> None:
    """The next run starts from delta = 0."""
    state.status, state.k, state.rho_0, state.resumed = 0, 0, -1.0, 0
    state.Q = state.zeta = state.alpha = state.beta = 0.0


def is_unreduced(norms: dict[str, float]) -> bool:
    """Whether ||r|| is about what it was before the solve; the squares are those of ``residual_norms``."""
    return norms["r_squared"] > _UNREDUCED**2 * norms["g_squared"]
