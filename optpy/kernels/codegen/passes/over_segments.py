"""The nest of the CPU: segments of rows, in each a plain loop over the interior that compilers vectorise.

The points of a segment that are no interior are visited by a function of their own: what a function sets up costs more
than a border point. They are up to a vector's points at each end of a row: the others are whole vectors. Sums are kept
in double, one for each segment, so that they do not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import replace

from optpy.errors import InternalError
from optpy.ir import loops
from optpy.symbolic.affine import Affine

BLOCK = 8
"""Segments of which border and interior are visited before those of the next: rows of a volume are short, and what its
border has brought from memory is still in the cache for its interior."""

_V = loops.Variable


def over_segments(function: loops.Function, segments: int, reduction: int) -> tuple[loops.Function, ...]:
    """The functions that visit a range of segments: those of border and interior, where there is one, and that which
    calls them.

    Args:
        function: one nest ``Points``.
        segments: number of the list of segments.
        reduction: number of the kernel's first reduction.
    """
    (points,) = function.body
    assert isinstance(points, loops.Points)
    if any(isinstance(s, loops.Store) and s.atomic for s in loops.walk(function.body)):
        raise InternalError(f"{function.name} adds to what other points add to: there is no C for atomic additions")

    def visit(*body: loops.Statement, join: bool) -> loops.Segments:
        totals = list(dict.fromkeys((s.number, s.maximum) for s in loops.walk(body) if isinstance(s, loops.Total)))
        return loops.Segments(
            segments,
            (
                *([loops.Unravel(points.domain[:-1], "row")] if points.domain[1:] else []),
                *(loops.Accumulator(f"sum{n}", maximum) for n, maximum in totals),
                *_summed(body),
                *(loops.Partial(reduction + n, f"sum{n}", maximum, join) for n, maximum in totals),
            ),
        )

    if not points.border:
        return (replace(function, body=(visit(_row(points, points.interior, "begin", "end"), join=False),)),)
    row = _row(points, points.interior, "low", "high")
    border = loops.Function(f"{function.name}_border", (visit(*_limits(points), _ends(points), join=False),), True)
    interior = loops.Function(f"{function.name}_interior", (visit(*_limits(points), row, join=True),), True)
    return border, interior, replace(function, body=(_in_blocks(border, interior),))


def _in_blocks(*functions: loops.Function) -> loops.Loop:
    """Calls of functions, all of them for a few segments before the next ones."""
    block, stop, last = _V("block"), _V("block_end"), Affine.of(_V("last"))
    end = loops.Let(str(stop), loops.MinMax("min", Affine.of(block) + BLOCK, last))
    calls = (loops.FunctionCall(f.name, block, stop) for f in functions)
    return loops.Loop(block, Affine.of(_V("first")), last, (end, *calls), step=BLOCK)


def _summed(block: loops.Block) -> loops.Block:
    """The block with totals added up in this function's variables."""

    def rule(s: loops.Statement) -> loops.Block:
        return (loops.Accumulate(f"sum{s.number}", s.value, s.maximum),) if isinstance(s, loops.Total) else (s,)

    return loops.rewrite(block, rule)


def _row(
    points: loops.Points, body: loops.Block, low: str, high: str, kind: loops.LoopKind = "independent"
) -> loops.Loop:
    return loops.Loop(points.last, Affine.of(_V(low)), Affine.of(_V(high)), body, kind)


def _ends(points: loops.Points) -> loops.Loop:
    """Both ends of a segment, around its interior."""

    def either(first: str, second: str) -> loops.Select:
        return loops.Select((loops.Flag("part"),), Affine.of(_V(second)), Affine.of(_V(first)))

    return loops.Loop(
        _V("part"),
        Affine(0),
        Affine(2),
        (
            loops.Let("start", either("begin", "high")),
            loops.Let("stop", either("low", "end")),
            _row(points, points.border, "start", "stop", "narrow"),
        ),
    )


def _limits(points: loops.Points) -> loops.Block:
    """The interior [low, high) of this segment; empty on a border row."""
    outer = zip(points.domain[:-1], points.margins[:-1], strict=True)
    low, high = points.margins[-1]
    begin, end, start, stop = (Affine.of(_V(name)) for name in ("begin", "end", "from", "to"))
    length = Affine.of(points.last.dim)
    some = (loops.Flag("inside"), loops.Less(start, stop))
    return (
        loops.LetFlag("inside", tuple(loops.Within(i, *m) for i, m in outer if m != (0, 0))),
        # Rows and segments begin on cache lines: from there, few loads straddle two of them, and no point of the
        # interior is left over, which would take as long as a vector.
        loops.Let("first_inside", loops.WholeVectors("up", Affine(low))),
        loops.Let("last_inside", loops.WholeVectors("down", length + -high)),
        loops.Let("from", loops.MinMax("max", begin, Affine.of(_V("first_inside")))),
        loops.Let("to", loops.MinMax("min", end, Affine.of(_V("last_inside")))),
        loops.Let("low", loops.Select(some, start, end)),
        loops.Let("high", loops.Select(some, stop, end)),
    )
