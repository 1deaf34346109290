"""Entries: each looked up once, where its row is known."""

from __future__ import annotations

from optpy.ir import loops
from optpy.kernels.codegen.lower import lower
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.look_up import look_up
from optpy.kernels.codegen.tables import Column, Sorted
from tests.kernels.codegen.passes.routines import GRAPH, conventions, gather, points, scatter, statements, stencil


def test_entries_at_a_point_are_looked_up_first_and_guarded_where_the_row_may_be_outside() -> None:
    function = look_up(build_loops(lower(scatter())), conventions(scatter()).symbols)
    own, other = points(function).interior[:2]
    assert isinstance(own, loops.Lookup)
    assert isinstance(other, loops.Lookup)
    found = {str(s.entry): str(s.guard) for s in (own, other)}
    assert found == {"edges[i0, 0]": "None", "edges[i0 + 1, 0]": "in_bounds(i0 + 1, E)"}
    assert own.value.table == other.value.table == Column(GRAPH, 0)


def test_entries_of_a_loop_are_looked_up_in_it_in_its_order() -> None:
    function = look_up(build_loops(lower(gather())), conventions(gather()).symbols)
    (edges,) = statements(function.body, loops.Edges)
    (lookup,) = statements(function.body, loops.Lookup)
    assert edges.body[0] is lookup
    assert lookup.value.table == Sorted(GRAPH, 0, 1)


def test_a_grid_looks_nothing_up() -> None:
    function = build_loops(lower(stencil()))
    assert look_up(function, conventions(stencil()).symbols) == function
