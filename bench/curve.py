"""Cost over time: what every contender of a race leaves."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Point:
    """The lowest cost that was known after so many seconds.

    Args:
        assembly: of these seconds, those in our own evaluation of F and J for a peer.
    """

    seconds: float
    cost: float
    assembly: float = 0.0


@final
@dataclass(frozen=True, slots=True)
class Curve:
    """One solve.

    Args:
        points: the seconds rise, the costs fall; the first is the start.
        ending: how it ended, in words.
        facts: what else is worth telling.
    """

    name: str
    points: tuple[Point, ...]
    ending: str
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def final_cost(self) -> float:
        """The lowest."""
        return self.points[-1].cost

    @property
    def seconds(self) -> float:
        """When the lowest cost was reached."""
        return self.points[-1].seconds

    def first_at(self, cost: float) -> Point | None:
        """The first point with `cost` or less; None if there is none."""
        return next((p for p in self.points if p.cost <= cost), None)


class TimeIsUpError(Exception):
    """Leaves a peer that has no time limit of its own."""


@final
class Recorder:
    """Collects a curve while a peer runs.

    Args:
        budget: seconds after which `cost` and `check` raise TimeIsUpError.
    """

    def __init__(self, budget: float) -> None:
        self._budget = budget
        self._begin = time.perf_counter()
        self.points: list[Point] = []

    @property
    def elapsed(self) -> float:
        """Seconds since the recorder was made."""
        return time.perf_counter() - self._begin

    def cost(self, cost: float, assembly: float) -> None:
        """Notes a cost if it is lower than all before.

        Args:
            assembly: seconds so far in the evaluation of F and J.

        Raises:
            TimeIsUpError: the budget is spent.
        """
        seconds = self.elapsed
        if not self.points or cost < self.points[-1].cost:
            self.points.append(Point(seconds, cost, assembly))
        self.check()

    def check(self) -> None:
        """Looks at the clock.

        Raises:
            TimeIsUpError: the budget is spent.
        """
        if self.elapsed > self._budget:
            raise TimeIsUpError
