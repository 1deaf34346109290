"""Work under conditions: whether it is left out where they fail, by counted costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from optpy.ir import ConditionalWork, Group, Routine, Schedule, StoredValue, Target, When
from optpy.kernels.codegen.branch import LEAST, ConditionalPart, computes_one_by_one, conditional_parts, data_conditions
from optpy.kernels.codegen.guard_values import guard_values
from optpy.kernels.codegen.scheduled import apply_schedule
from optpy.scheduling.given import completed
from optpy.symbolic.count import count

IN_VECTORS: Final = 400
"""Additions that a part must save where a CPU computes several points side by side: to ask for the condition, and to
hand the part on, takes as long as 50, which is lost where it holds everywhere (``python -m bench.conditions stencil``).
On a GPU, which branches at each point, the decider lets all be selected: with branches, a product of shape_from_shading
takes 91 registers in place of 64 (``python -m bench.registers``), and no GPU has said yet what it gains."""
HANDED_ON: Final = 32
"""Additions that take as long as a number of a part does, which is stored, and 0 where the part is left out."""


def schedule_conditions(
    groups: Mapping[Group, Sequence[Routine]],
    decided: Schedule,
    stored: Sequence[StoredValue],
    target: Target,
    given: Schedule,
) -> tuple[ConditionalWork, ...]:
    """A decision about each routine of which much is under conditions on data.

    Args:
        groups: as they were derived.
        decided: what is stored, and which sums are split off.
        stored: the values that it has stored.
        target: where they run.
        given: by hand.

    Raises:
        OptionError: a given one is about no such routine.
    """
    found = []
    if any(data_conditions(r) and count(r.roots).cost >= LEAST for members in groups.values() for r in members):
        scheduled = apply_schedule(groups, decided, stored)
        scheduled |= {Group.PRECOMPUTE: guard_values(scheduled)}
        solving = (members for group, members in scheduled.items() if group.task.when is not When.REQUEST)
        found = [*conditional_work((r for members in solving for r in members), target)]
    return completed(found, given.conditions, given, lambda work: None)


def conditional_work(routines: Iterable[Routine], target: Target) -> Iterable[ConditionalWork]:
    """A branch for every routine that it would leave out enough of."""
    for r in routines:
        parts = conditional_parts(r)
        if parts:
            work = " and ".join(f"{p.saved} where {p.condition!r} fails" for p in parts)
            reason = f"of {count(r.roots).cost} additions a branch leaves out {work}"
            yield ConditionalWork(r.name, not target.gpu and all(map(_pays, parts)), reason)


def _pays(part: ConditionalPart) -> bool:
    """Whether a part is worth a branch."""
    return computes_one_by_one(part.values) or part.saved - HANDED_ON * part.handed_on >= IN_VECTORS
