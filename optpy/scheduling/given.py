"""Decisions that users have made, in place of the decider's: each is taken, or refused with what is there instead."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeVar

from optpy.errors import OptionError
from optpy.ir import ALL, Decision, FuncSchedule, ResidualSchedule, Schedule

Given = Schedule | Sequence[ResidualSchedule | FuncSchedule]
"""Decisions by hand: a schedule, or those of its decisions that tests most often make; optpy makes the others."""

D = TypeVar("D", bound=Decision)


def as_schedule(given: Given) -> Schedule:
    """Decisions as a schedule."""
    if isinstance(given, Schedule):
        return given
    return Schedule(
        funcs=tuple(x for x in given if isinstance(x, FuncSchedule)),
        residuals=tuple(x for x in given if isinstance(x, ResidualSchedule)),
    )


def decided_by(given: Iterable[D], thing: D) -> D | None:
    """The decision of a user's about a thing, which may be one about all.

    Args:
        given: the user's of this kind.
        thing: any decision about it.
    """
    by_name = {x.about: x for x in given}
    found = by_name.get(thing.about)
    if found is None and ALL in by_name:
        found = by_name[ALL].for_thing(thing)
    return None if found is None else replace(found, reason=found.reason or ASKED)  # type: ignore[type-var]


ASKED: Final = "as asked"
"""The reason of a decision that gives none."""


def completed(
    decided: Iterable[D],
    given: Sequence[D],
    schedule: Schedule,
    refusal: Callable[[D], str | None],
    others: Mapping[str, str] = MappingProxyType({}),
) -> tuple[D, ...]:
    """The decisions about all things of a kind: the user's, where there is one, or the decider's.

    Args:
        decided: the decider's, one about each thing.
        given: the user's.
        schedule: whose they are.
        refusal: why a thing cannot be so; None: it can.
        others: see ``check_names``.

    Raises:
        OptionError: a thing cannot be so, or there is none of that name.
    """
    found = []
    things = []
    for own in decided:
        things.append(own.about)
        by_user = decided_by(given, own)
        if by_user is not None and (why := refusal(by_user)) is not None:
            raise refused(schedule, _written(given, by_user), why)
        found.append(own if by_user is None else by_user)
    check_names(given, things, schedule, others)
    return tuple(found)


def check_names(given: Iterable[D], names: Sequence[str], schedule: Schedule, others: Mapping[str, str]) -> None:
    """Nothing, if there are things of all names that a user has decided about.

    Args:
        given: the user's decisions.
        names: of the things.
        schedule: whose they are.
        others: by the names of other things of which nothing can be decided, why not.

    Raises:
        OptionError: there is none of a name, with the one that was probably meant.
    """
    for decision in given:
        if decision.about in (ALL, *names):
            continue
        if decision.about in others:
            raise refused(schedule, decision, others[decision.about])
        close = difflib.get_close_matches(decision.about, names, n=1)
        listed = f"; there are: {', '.join(names)}" if names else ", nor any other here"
        cure = f"; did you mean {close[0]!r}?" if close else ""
        raise refused(schedule, decision, f"there is no {decision.kind} {decision.about!r}{listed}{cure}")


def refused(schedule: Schedule, decision: Decision, why: str) -> OptionError:
    """The error of a decision that cannot be taken."""
    return OptionError(f"{schedule.place_of(decision)}: {why}")


def _written(given: Iterable[D], taken: D) -> D:
    """The decision as the user wrote it: about one thing, or about all."""
    by_name = {x.about: x for x in given}
    return by_name.get(taken.about) or by_name[ALL]
