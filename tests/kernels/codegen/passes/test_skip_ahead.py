"""The mask of a tile's next row is on its way while a row is worked on."""

from __future__ import annotations

from dataclasses import replace

from optpy import ir
from optpy.ir import loops
from optpy.kernels.codegen.lower import lower
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.on_grid import on_grid
from optpy.kernels.codegen.passes.skip_ahead import skip_ahead
from tests.kernels.codegen.passes.routines import GRID, stencil

MASK = loops.Mask(ir.Field("solved", tuple(i.dim for i in GRID), 1, "uint8", ir.Role.STORED))


def tiles(mask: loops.Mask | None) -> tuple[loops.Tiles, loops.Tiles]:
    function = on_grid(build_loops(lower(stencil())), 0, (0,), mask)
    (before,), (after,) = function.body, skip_ahead(function).body
    assert isinstance(before, loops.Tiles)
    assert isinstance(after, loops.Tiles)
    return before, after


def test_each_row_loads_for_the_next() -> None:
    before, after = tiles(MASK)
    (first,) = after.strip
    here, then, skip, *rest = after.body
    assert isinstance(first, loops.MaskLoad)
    assert str(first.row) == "row if row < end else top"
    assert here == loops.LetFlag("here", (loops.Flag("next"),))
    assert isinstance(then, loops.MaskLoad)
    assert then == replace(first, row=then.row, again=True)
    assert isinstance(skip, loops.Skip)
    assert (skip, *rest) == before.body[1:]


def test_where_all_is_solved_for_nothing_is_loaded() -> None:
    before, after = tiles(None)
    assert before == after
