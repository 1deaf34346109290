"""Local sums of several threads: each takes its turns of the innermost loop, and all get the sum of their parts."""

from __future__ import annotations

from dataclasses import replace

from optpy.ir import loops


def sum_over_lanes(function: loops.Function) -> loops.Function:
    """Share the innermost loops of every ``Fold`` among the lanes of a point; one of them stores what follows."""

    def rule(s: loops.Statement) -> loops.Block:
        if isinstance(s, loops.Points):
            return (replace(s, interior=_by_first_lane(s.interior), border=_by_first_lane(s.border)),)
        if isinstance(s, loops.Fold):
            shared = loops.rewrite(s.body, _shared)
            return (*map(loops.Accumulator, s.names), *shared, *map(loops.OverLanes, s.names))
        return (s,)

    return replace(function, body=loops.rewrite(function.body, rule))


def _shared(s: loops.Statement) -> loops.Block:
    innermost = isinstance(s, loops.Loop) and not any(isinstance(x, loops.Loop) for x in loops.walk(s.body))
    return (replace(s, kind="lanes"),) if isinstance(s, loops.Loop) and innermost else (s,)


def _by_first_lane(block: loops.Block) -> loops.Block:
    """The block with all that follows its last local sum done by one lane."""
    ends = [n for n, s in enumerate(block) if isinstance(s, loops.OverLanes)]
    if not ends:
        return block
    first = ends[-1] + 1
    return (*block[:first], loops.If((loops.Flag("lane", False),), block[first:]))
