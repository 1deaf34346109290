"""The search for the schedule that is fastest where it is measured: greedy, one decision at a time.

Each decision is tried in its other ways while all others stay, in an order in which none takes back what an earlier one
has left to decide: intermediates, residuals, terms, values, sums over edges, conditions, layouts, orders of channels,
sweeps. Where several things of a kind may be in one way, all of them together are tried first: what none gains alone,
as a stencil of J^T J that one residual more or less does not make smaller, all may gain together.

The form of J^T J for preconditioners is left as it is: it decides in how many iterations systems are solved, and not
how long one takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, final

from optpy.errors import DeviceMemoryError, OptionError
from optpy.ir import (
    ChannelOrder,
    ConditionalWork,
    Decision,
    FuncSchedule,
    FuncStorage,
    GridLayout,
    ResidualSchedule,
    Schedule,
    Split,
    Target,
    TermSchedule,
    ValueSchedule,
    VectorSweep,
)
from optpy.scheduling.residuals import gathers, scatters, stencils

GAIN: Final = 0.97
"""A way is better where it takes less than so much of the other's time: less is noise. By reasoning."""

_GROUPS: Final = ("funcs", "residuals", "terms", "values", "splits", "conditions", "layouts", "orders", "sweeps")
_TOGETHER: Final = ("funcs", "residuals", "terms", "values")
"""Kinds of which all things are tried together in one way, too."""

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
        if group in _TOGETHER:
            search.decide_together(group, target)
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

    def decide_together(self, group: str, target: Target) -> None:
        """Try all things of a kind in one way, for each way that there is."""
        things: tuple[Decision, ...] = getattr(self.best, group)
        if len(things) < 2:
            return
        for way in [*_ways(things[0], target), things[0]]:
            now: tuple[Decision, ...] = getattr(self.best, group)
            if self._is_over() or {x.choice for x in now} == {way.choice}:
                continue
            times: dict[str, float] = {}
            tried = self._decided
            for x in now:
                tried = _with(tried, group, way.for_thing(x))
            if self._raced(tried, "as before", "all of them so", times):
                reason = _reason("all of them so", times)
                self._decided = replace(tried, **{group: _told(getattr(tried, group), reason)})  # type: ignore[arg-type]
                self.best = replace(self.best, **{group: _told(getattr(self.best, group), reason)})  # type: ignore[arg-type]

    def _raced(self, tried: Schedule, before: str, after: str, times: dict[str, float]) -> bool:
        """Whether a schedule is better than the best, whose place it then takes; what was measured is entered."""
        try:
            candidate = self._in_force(tried)
            if candidate == self.best:
                return False
            now, then = self._race(self.best, candidate)
        except (OptionError, DeviceMemoryError):  # it cannot be so, or not here
            return False
        times[before] = min(now, times.get(before, now))
        times[after] = then
        if then >= GAIN * now:
            return False
        self._decided, self.best = tried, candidate
        return True

    def _of(self, group: str, name: str) -> Decision | None:
        decisions: tuple[Decision, ...] = getattr(self.best, group)
        return next((d for d in decisions if d.about == name), None)

    def _try(self, group: str, best: Decision, other: Decision, times: dict[str, float]) -> Decision:
        """The better of two ways; what was measured is entered in the times."""
        tried = _with(self._decided, group, other)
        return other if self._raced(tried, best.choice, other.choice, times) else best


def _told(decisions: tuple[Decision, ...], reason: str) -> tuple[Decision, ...]:
    return tuple(replace(x, reason=reason) for x in decisions)  # type: ignore[type-var]


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
            all_ways = [*gathers(found.label), *stencils(found.label)]
            all_ways += scatters(found.label) if target is Target.GPU else []
            yield from (way for way in all_ways if way != found)
        case TermSchedule():
            yield replace(found, separate=not found.separate)
        case ValueSchedule():
            yield replace(found, stored=not found.stored)
        case Split():
            yield replace(found, apart=not found.apart)
        case ConditionalWork():
            yield replace(found, branched=not found.branched)
        case GridLayout():
            ways = [(False, False), (True, False), *([(True, True)] if target.gpu else [])]
            others = (replace(found, interleaved=i, padded=p) for i, p in ways)
            yield from (way for way in others if way != found)
        case ChannelOrder():
            yield replace(found, positions=tuple(range(len(found.positions))))
        case VectorSweep():
            yield from (replace(found, points=n) for n in (1, 2, 4) if n != found.points)


def _ways_in_cost(found: Decision, target: Target) -> Iterator[Decision]:
    """The other way of an intermediate in costs."""
    if isinstance(found, FuncSchedule):
        yield replace(found, in_cost=not found.in_cost)
