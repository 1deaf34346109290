"""The nests of the GPU that take one point at a time: tiles, grid-stride loops, or thread groups for local sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optpy.ir import Domain, loops
from optpy.symbolic.affine import Affine


def on_grid(function: loops.Function, number: int, sums: Sequence[int], mask: loops.Mask | None) -> loops.Function:
    """The function that visits its points together with all other threads of the grid.

    - In thread groups, where there are local sums: each point is the work of one thread, one warp or one block,
      whichever fits the length of its loops.
    - In tiles, down the columns of a grid, so that a stencil finds its neighbours in the cache. The mask is loaded for
      a strip at a time: no row waits for it.
    - In a grid-stride loop, on a grid of one dim or of none.

    Args:
        function: one nest ``Points``.
        number: of the kernel: what ``Context.lane_bits`` has for it.
        sums: for each of its reductions, which of its launch's sums it adds to.
        mask: where on its grid something is solved for, if other points are to be left out.
    """
    (points,) = function.body
    assert isinstance(points, loops.Points)
    domain, last = points.domain, points.last
    body = _at_point(points, sums)
    shared = any(isinstance(s, loops.OverLanes) for s in loops.walk(points.interior))
    nest: loops.Statement
    if len(domain) > 1 and not shared:
        return replace(function, body=(loops.Tiles(domain, mask, body),))
    skip = () if mask is None else _skip(mask, domain)
    if shared:
        nest = loops.ThreadGroups(number, domain, last, (*skip, *body))
    else:
        nest = loops.GridStride(last, loops.Count(tuple(i.dim for i in domain)), (*skip, *body))
    return replace(function, body=(nest,))


def _skip(mask: loops.Mask, domain: Domain) -> loops.Block:
    row = Affine.of(loops.Variable("row"))
    return loops.MaskLoad("here", mask, domain, row), loops.Skip(loops.Flag("here"))


def _at_point(points: loops.Points, sums: Sequence[int]) -> loops.Block:
    """The statements at a point: in the interior with fewer checks."""
    unravel = (loops.Unravel(points.domain[:-1], "row"),) if points.domain[1:] else ()
    interior, border = total_in(points.interior, sums), total_in(points.border, sums)
    if not border:
        return (*unravel, *interior)
    axes = zip(points.domain, points.margins, strict=True)
    inside = tuple(loops.Within(i, *margins) for i, margins in axes if margins != (0, 0))
    return (*unravel, loops.If(inside, interior, border))


def total_in(block: loops.Block, sums: Sequence[int], guard: loops.Flag | None = None) -> loops.Block:
    """The block with its totals added up in the sums of the launch."""

    def rule(s: loops.Statement) -> loops.Block:
        if not isinstance(s, loops.Total):
            return (s,)
        return (loops.Accumulate(f"sum[{sums[s.number]}]", s.value, s.maximum, guard),)

    return loops.rewrite(block, rule)
