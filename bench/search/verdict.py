"""What a solve is worth, by what it says of itself and by where the minimum is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, final

import numpy as np

from bench.search.minimum import STATIONARY

RELATIVE = 1e-3
"""A right objective is at most so much of the minimum above it, and what rounding adds."""

Verdict = Literal["right", "short", "other minimum", "right, no success", "failed", "error", "WRONG"]
VERDICTS: tuple[Verdict, ...] = ("right", "short", "other minimum", "right, no success", "failed", "error", "WRONG")


@final
@dataclass(frozen=True, slots=True)
class Nearby:
    """What other solvers say of a point.

    Attributes:
        cosine: see `Landscape.cosine`.
        found: the objectives that they come to from there; asked for one after the other, until one decides.
    """

    cosine: float
    found: Iterable[float]


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """How a solve ended.

    Attributes:
        value: the objective at its end, in float64.
        status: its name, or the text of an exception.
    """

    success: bool
    value: float
    status: str
    iterations: int
    is_error: bool = False


@final
@dataclass(frozen=True, slots=True)
class Level:
    """What an objective is measured by.

    Attributes:
        minimum: the lowest that is known.
        floor: what rounding makes of it in the arithmetic of the solve.
        dtype: of that arithmetic.
    """

    minimum: float
    floor: float
    dtype: str

    def excess(self, value: float, minimum: float | None = None) -> float:
        """How far a value is above the minimum, or another one, in units of what is tolerated: right up to 1."""
        lowest = self.minimum if minimum is None else minimum
        tolerated = RELATIVE * lowest + self.floor
        above = max(value - lowest, 0.0)
        if above == 0:
            return 0.0
        return above / tolerated if tolerated else float("inf")

    def is_short(self, value: float) -> bool:
        """The minimum is zero but for rounding, and the value is one that rounding in float32 would leave."""
        coarser = float(np.finfo(np.float32).eps / np.finfo(self.dtype).eps)
        return self.minimum <= self.floor and value - self.minimum <= coarser**2 * self.floor


def judge(outcome: Outcome, level: Level, nearby: Callable[[], Nearby]) -> Verdict:
    """The verdict.

    Args:
        nearby: asked only for a success above the known minimum. It stands at another one if the gradient vanishes
            there, and no other solver, from a little beside it, comes lower by more than is tolerated.
    """
    if outcome.is_error:
        return "error"
    right = level.excess(outcome.value) <= 1  # NaN is not
    if not outcome.success:
        return "right, no success" if right else "failed"
    if right:
        return "right"
    if level.is_short(outcome.value):
        return "short"
    around = nearby()
    settled = around.cosine <= STATIONARY and all(level.excess(outcome.value, v) <= 1 for v in around.found)
    return "other minimum" if settled else "WRONG"


@final
@dataclass(frozen=True, slots=True)
class Run:
    """One solve of one problem, judged."""

    family: str
    seed: int
    dtype: str
    method: str
    preconditioner: str
    outcome: Outcome
    level: Level
    verdict: Verdict

    @property
    def command(self) -> str:
        """What repeats it."""
        return (
            f"python -m bench.search --only {self.family} --seed {self.seed} --dtype {self.dtype} "
            f"--method {self.method} --preconditioner {self.preconditioner}"
        )

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        excess = {"excess": self.level.excess(self.outcome.value)}
        return asdict(self) | excess | ({"command": self.command} if self.verdict in ("WRONG", "error") else {})
