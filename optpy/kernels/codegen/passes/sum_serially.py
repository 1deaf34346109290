"""Local sums of one thread: variables that are 0 before the loops that add to them."""

from __future__ import annotations

from dataclasses import replace

from optpy.ir import loops


def sum_serially(function: loops.Function) -> loops.Function:
    """Lower every ``Fold`` to accumulators and the loops as they are."""

    def rule(s: loops.Statement) -> loops.Block:
        return (*map(loops.Accumulator, s.names), *s.body) if isinstance(s, loops.Fold) else (s,)

    return replace(function, body=loops.rewrite(function.body, rule))
