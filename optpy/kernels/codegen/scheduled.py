"""A schedule applied to routines: values stored, sums split off, work under conditions apart, channels in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optpy.ir import Group, Routine, Schedule, StoredValue
from optpy.kernels.codegen.branch import branch_conditions
from optpy.kernels.codegen.channel_order import order_channels
from optpy.kernels.codegen.guard_values import guard_values
from optpy.kernels.codegen.split import split_sums
from optpy.kernels.codegen.store import store_values


def apply_schedule(
    groups: Mapping[Group, Sequence[Routine]], schedule: Schedule, stored: Sequence[StoredValue]
) -> dict[Group, list[Routine]]:
    """The routines as the schedule has them.

    Args:
        groups: as they were derived.
        schedule: which sums are split off, which conditions branch, and which channels are where.
        stored: the values that it has stored.

    Returns:
        The groups; ``Group.PRECOMPUTE`` computes stored values, if there are any.
    """
    split = {s.routine for s in schedule.splits if s.apart}
    branched = {s.routine for s in schedule.conditions if s.branched}
    kept = store_values(groups, stored)
    if not branched.isdisjoint(r.name for r in kept.get(Group.PRECOMPUTE, ())):
        kept[Group.PRECOMPUTE] = guard_values(kept)
    found = {
        name: [
            branch_conditions(part) if part.name in branched else part
            for r in routines
            for part in (split_sums(r) if r.name in split else [r])
        ]
        for name, routines in kept.items()
    }
    if schedule.orders:
        found = {name: [order_channels(r, schedule.orders) for r in routines] for name, routines in found.items()}
    return found
