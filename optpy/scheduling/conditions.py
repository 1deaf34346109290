"""Work under conditions: whether it is left out where they fail, by counted costs."""

from __future__ import annotations

from collections.abc import Iterable

from optpy.ir import ConditionalWork, Routine
from optpy.kernels.codegen.branch import conditional_parts
from optpy.symbolic.count import count


def conditional_work(routines: Iterable[Routine]) -> list[ConditionalWork]:
    """A branch for every routine that would leave out much.

    Args:
        routines: with all values that are stored read from memory.
    """
    found = []
    for r in routines:
        parts = conditional_parts(r)
        if parts:
            work = " and ".join(f"{p.saved} where {p.condition!r} fails" for p in parts)
            found.append(ConditionalWork(r.name, True, f"of {count(r.roots).cost} additions it leaves out {work}"))
    return found
