"""GPUs: thread groups for local sums, tiles on grids, else grid-stride loops; sums go where the launch has them."""

from __future__ import annotations

from optpy import ir
from optpy.ir import loops
from optpy.kernels.codegen.lower import lower
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.follow_edges import follow_edges
from optpy.kernels.codegen.passes.on_grid import on_grid
from optpy.kernels.codegen.passes.sum_over_lanes import sum_over_lanes
from tests.kernels.codegen.passes.routines import GRID, gather, scatter, statements, stencil

MASK = loops.Mask(ir.Field("solved", tuple(i.dim for i in GRID), 1, "uint8", ir.Role.STORED))


def nest(routine: ir.Routine, mask: loops.Mask | None = None) -> loops.Statement:
    function = sum_over_lanes(follow_edges(build_loops(lower(routine))))
    (found,) = on_grid(function, 7, (2,), mask).body
    return found


def test_a_stencil_runs_in_tiles_its_interior_with_fewer_checks() -> None:
    tiles = nest(stencil(), MASK)
    assert isinstance(tiles, loops.Tiles)
    assert tiles.mask == MASK
    assert not statements(tiles.body, loops.MaskLoad)  # for a strip at a time, before its rows
    assert not statements(tiles.body, loops.Skip)
    (inside,) = statements(tiles.body, loops.If)
    assert [str(c) for c in inside.conditions] == ["2 <= i0 < H - 0", "0 <= i1 < W - 1"]
    assert {s.name for s in statements(tiles.body, loops.Accumulate)} == {"sum[2]"}


def test_local_sums_are_the_work_of_teams_and_edges_a_line() -> None:
    groups = nest(gather())
    assert isinstance(groups, loops.ThreadGroups)
    assert groups.number == 7
    assert isinstance(nest(scatter()), loops.GridStride)
    masked = nest(gather(), MASK)
    assert isinstance(masked, loops.ThreadGroups)
    assert isinstance(masked.body[0], loops.MaskLoad)
    assert isinstance(masked.body[1], loops.Skip)
