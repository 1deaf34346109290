"""Edges at a point: a loop over positions, between two offsets."""

from __future__ import annotations

from dataclasses import replace

from optpy import ir
from optpy.ir import loops
from optpy.kernels.codegen.lower import lower
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.follow_edges import follow_edges
from optpy.kernels.codegen.tables import Offsets, Sorted
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import var
from tests.kernels.codegen.passes.routines import GRAPH, gather, statements


def test_the_loop_runs_between_neighbouring_offsets() -> None:
    body = follow_edges(build_loops(lower(gather()))).body
    (loop,) = statements(body, loops.Loop)
    assert not statements(body, loops.Edges)
    at = Affine.of(loops.Variable("k_at"))
    assert (loop.low, loop.high) == (loops.TableLoad(Offsets(GRAPH, 0), at), loops.TableLoad(Offsets(GRAPH, 0), at + 1))
    assert [s.name for s in statements(body, loops.Let)] == ["k_at"]  # nothing asks for the edge's own number


def test_the_edge_s_own_number_is_fetched_where_something_asks_for_it() -> None:
    routine = gather()
    (local,) = routine.locals
    number = var(ir.IndexValue(Affine.of(local.variables[0])))
    asking = replace(routine, locals=(replace(local, values=(number,) * 3),))
    (loop,) = statements(follow_edges(build_loops(lower(asking))).body, loops.Loop)
    first = loop.body[0]
    assert isinstance(first, loops.Let)
    assert first.value == loops.TableLoad(Sorted(GRAPH, 0, None), Affine.of(loops.Variable("k_q")))
