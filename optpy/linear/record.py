"""The record of a preconditioner in the registry, by which the driver knows it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from optpy.ir import Coupling, Uncoupled
from optpy.linear.method import LinearMethod
from optpy.linear.system import System


def _nothing(system: System, damped: bool) -> None:
    """It runs what solves begin with, and no other kernels."""


@final
@dataclass(frozen=True, slots=True)
class Implementation:
    """A preconditioner on one device.

    Attributes:
        make: for a system to which it applies.
        compile: all that its solves will need, whose systems are damped or not; nothing, where that is there.
    """

    make: Callable[[System], LinearMethod]
    compile: Callable[[System, bool], None] = _nothing


@final
@dataclass(frozen=True, slots=True, eq=False)  # each is itself alone: what is kept of it is found by identity
class Record:
    """One preconditioner.

    Attributes:
        option: by which users ask for it; of several with the same, the first one that applies is taken.
        cpu: its implementation on the CPU.
        gpu: that on a GPU, or the reason why there is none, as in "... does not apply on a GPU, where REASON".
        applicability: why it does not apply to a system, in words; None where it does.
        other_names: what else it is called, for the message of an error that names the option.
        is_sure_on_gpu: whether it applies on a GPU to every data of an energy, by how that couples its unknowns; None:
            to every energy.
        takes_blocks: whether J^T J is to have its blocks computed, not only its diagonal, while it is in force.
        starter: what "auto" begins with where this one applies, and may take its place; None: "auto" comes to it as a
            starter only.
        patience: iterations that the starter may make in the solve in which this one is first tried.
        making: iterations of the starter that take as long as what each solve with this one begins with, by counts; the
            starter may make as many, where that is more. None: no more than its patience.
        affordable: whether "auto" may take it, which may take time to find out; it is also told whether none but the
            starter has been tried yet. None: it always may.
        iteration_cost: of an iteration, in iterations with Jacobi. Not by the clock: the same choices in every run.
        is_exact: whether a few iterations are enough, so that their number says nothing of the time.
        is_left_midway: whether another one may go on in the middle of a solve, also once it has taken over itself;
            what begins anew loses all that its directions know of A.
    """

    option: str
    cpu: Implementation
    gpu: Implementation | str
    applicability: Callable[[System], str | None]
    other_names: tuple[str, ...] = ()
    is_sure_on_gpu: Callable[[Coupling | Uncoupled], bool] | None = None
    takes_blocks: bool = False
    starter: Record | None = None
    patience: int | None = None
    making: Callable[[System], float] | None = None
    affordable: Callable[[Any, bool], bool] | None = None
    iteration_cost: float = 1
    is_exact: bool = False
    is_left_midway: bool = False

    def patience_for(self, system: System) -> int | None:
        """Iterations that the starter may make with a system in the solve in which this one is first tried."""
        if self.patience is None or self.making is None:
            return self.patience
        return max(self.patience, math.ceil(self.making(system)))

    def implementation(self, system: System) -> Implementation | str:
        """On the device of a system."""
        return self.cpu if system.loop.device == "cpu" else self.gpu
