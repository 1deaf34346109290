"""The search for the schedule that is fastest where it is measured: greedy, one decision at a time.

Each decision is tried in its other ways while all others stay, in an order in which none takes back what an earlier one
has left to decide: intermediates, residuals, values, sums over edges, conditions, layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, final

from optpy.errors import DeviceMemoryError, OptionError
from optpy.ir import (
    ConditionalWork,
    Decision,
    FuncSchedule,
    FuncStorage,
    GridLayout,
    ResidualSchedule,
    Schedule,
    Split,
    Target,
    ValueSchedule,
)
from optpy.scheduling.residuals import gathers, scatters

GAIN: Final = 0.97
"""A way is better where it takes less than so much of the other's time: less is noise. By reasoning."""

_GROUPS: Final = ("funcs", "residuals", "values", "splits", "conditions", "layouts")

Race = Callable[[Schedule, Schedule], tuple[float, float]]
"""Measures two schedules side by side: the seconds of each."""


def fastest(
    in_force: Callable[[Schedule], Schedule], race: Race, target: Target, is_over: Callable[[], bool]
) -> Schedule:
    """The best schedule that is found, with what was measured as the reasons.

    Args:
        in_force: the whole schedule that follows from some decisions; raises OptionError where they cannot be.
        race: measures the best so far, and another; may raise DeviceMemoryError.
        target: where they run.
        is_over: whether the time for measuring is: what has not been tried stays as it was counted.
    """
    search = _Search(in_force, race, is_over)
    for group in _GROUPS:
        for name in [d.about for d in getattr(search.best, group)]:
            search.decide(group, name, target)
    return search.best


@final
class _Search:
    """The state of a search.

    Attributes:
        best: the whole schedule that is the fastest so far.
    """

    def __init__(self, in_force: Callable[[Schedule], Schedule], race: Race, is_over: Callable[[], bool]) -> None:
        self._in_force, self._race, self._is_over = in_force, race, is_over
        self._decided = Schedule()
        self.best = in_force(self._decided)

    def decide(self, group: str, name: str, target: Target) -> None:
        """Try all ways of one thing, and keep the fastest."""
        found = self._of(group, name)
        if found is None:
            return
        times: dict[str, float] = {}
        for ways in (_ways, _ways_in_cost):
            for other in ways(found, target):
                if self._is_over():
                    break
                found = self._try(group, found, other, times)
        if times:
            measured = replace(found, reason=_reason(found.choice, times))  # type: ignore[type-var]
            self._decided = _with(self._decided, group, measured)
            self.best = _with(self.best, group, measured)

    def _of(self, group: str, name: str) -> Decision | None:
        decisions: tuple[Decision, ...] = getattr(self.best, group)
        return next((d for d in decisions if d.about == name), None)

    def _try(self, group: str, best: Decision, other: Decision, times: dict[str, float]) -> Decision:
        """The better of two ways; what was measured is entered in the times."""
        tried = _with(self._decided, group, other)
        try:
            candidate = self._in_force(tried)
            now, then = self._race(self.best, candidate)
        except (OptionError, DeviceMemoryError):  # it cannot be so, or not here
            return best
        times[best.choice] = min(now, times.get(best.choice, now))
        times[other.choice] = then
        if then >= GAIN * now:
            return best
        self._decided, self.best = tried, candidate
        return other


def _with(schedule: Schedule, group: str, decision: Decision) -> Schedule:
    """A schedule with one more decision, or another one in its place."""
    decisions = {d.about: d for d in getattr(schedule, group)} | {decision.about: decision}
    return replace(schedule, **{group: tuple(decisions.values())})  # type: ignore[arg-type]


def _reason(chosen: str, times: dict[str, float]) -> str:
    others = ", ".join(f"{1e3 * t:.4g} ms {way}" for way, t in times.items() if way != chosen)
    return f"measured: {1e3 * times[chosen]:.4g} ms, against {others}"


def _ways(found: Decision, target: Target) -> Iterator[Decision]:
    """The other ways of a thing."""
    match found:
        case FuncSchedule():
            yield from (replace(found, storage=s) for s in FuncStorage if s is not found.storage)
        case ResidualSchedule():
            all_ways = gathers(found.label) + (scatters(found.label) if target is Target.GPU else [])
            yield from (way for way in all_ways if way != found)
        case ValueSchedule():
            yield replace(found, stored=not found.stored)
        case Split():
            yield replace(found, apart=not found.apart)
        case ConditionalWork():
            yield replace(found, branched=not found.branched)
        case GridLayout():
            yield replace(found, interleaved=not found.interleaved, padded=target.gpu and not found.interleaved)


def _ways_in_cost(found: Decision, target: Target) -> Iterator[Decision]:
    """The other way of an intermediate in costs."""
    if isinstance(found, FuncSchedule):
        yield replace(found, in_cost=not found.in_cost)
