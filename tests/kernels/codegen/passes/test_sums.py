"""Local sums: of one thread, and shared among the lanes of a point."""

from __future__ import annotations

from optpy.ir import loops
from optpy.kernels.codegen.lower import lower
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.follow_edges import follow_edges
from optpy.kernels.codegen.passes.sum_over_lanes import sum_over_lanes
from optpy.kernels.codegen.passes.sum_serially import sum_serially
from tests.kernels.codegen.passes.routines import gather, points, statements, stencil

FUNCTION = follow_edges(build_loops(lower(gather())))


def test_one_thread_declares_its_sums_and_runs_the_loops_as_they_are() -> None:
    block = points(sum_serially(FUNCTION)).interior
    assert [type(s) for s in block[:3]] == [loops.Accumulator] * 3
    assert statements(block, loops.Loop) == statements(FUNCTION.body, loops.Loop)
    assert not statements(block, loops.Fold)


def test_lanes_share_the_innermost_loop_and_one_of_them_stores() -> None:
    block = points(sum_over_lanes(FUNCTION)).interior
    (loop,) = statements(block, loops.Loop)
    assert loop.kind == "lanes"
    assert [s.name for s in statements(block, loops.OverLanes)] == ["local0", "local1", "local2"]
    last = block[-1]
    assert isinstance(last, loops.If)
    assert last.conditions == (loops.Flag("lane", False),)
    assert statements(last.then, loops.Store) == statements(block, loops.Store)


def test_where_there_are_no_local_sums_nothing_changes() -> None:
    function = build_loops(lower(stencil()))
    assert sum_serially(function) == sum_over_lanes(function) == function
