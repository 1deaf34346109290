"""Local sums over whole dims: which loop is the innermost, what is done at each point and what before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optpy import ir
from optpy.ir import loops
from optpy.kernels.codegen.lower import lower
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.follow_edges import follow_edges
from optpy.kernels.codegen.passes.guard_reads import guard_reads
from optpy.kernels.codegen.passes.look_up import look_up
from optpy.kernels.codegen.passes.over_segments import over_segments
from optpy.kernels.codegen.passes.sum_in_strips import sum_in_strips
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import ONE, Expr, mul, var
from optpy.symbolic.inversion import Divides, IsZero
from tests.kernels.codegen.passes.routines import (
    GRAPH,
    GRID,
    LOOPS,
    OUT,
    E,
    H,
    V,
    W,
    conventions,
    dense,
    gather,
    read,
    statements,
)

Y, X, K, L = map(Affine.of, (*GRID, *LOOPS))
KERNEL = ir.Field("kernel", (V, E), 1, ir.REAL, ir.Role.DATA)
IMAGE = ir.Field("image", (H, W), 1, ir.REAL, ir.Role.DATA)
FRAMES = ir.Field("frames", (V, W), 1, ir.REAL, ir.Role.DATA)
STACK = ir.Field("stack", (V, E, W), 1, ir.REAL, ir.Role.DATA)
ROWS = ir.Field("rows", (W, E), 1, ir.REAL, ir.Role.DATA)
WINDOW = mul(var(read(IMAGE, Y + K * -1, X + L * -1)), var(read(KERNEL, K, L)))
ALONG_ROWS = mul(var(read(ROWS, X, L)), var(read(KERNEL, K, L)))
STACKED = mul(var(read(STACK, K, L, X)), var(read(KERNEL, K, L)))


def before_and_after(routine: ir.Routine) -> tuple[loops.Function, loops.Function]:
    (function,) = over_segments(guard_reads(build_loops(lower(routine))), 0, 0)
    return function, sum_in_strips(function)


def over_edges(at: Affine) -> ir.Routine:
    """out[i, j] = the sum of p at the other ends of the edges at a vertex, and of p at the point itself."""
    edge = ir.LoopVariable("k", E)
    (other,) = GRAPH.at(1, Affine.of(edge))
    summand = mul(var(read(FRAMES, other, X)), var(read(FRAMES, at, X)))
    x = ir.LocalSum(("local0",), (ir.Incidence(edge, GRAPH, 0, (at,)),), ONE, (summand,))
    return ir.Routine("over_edges", GRID, (ir.Assignment(read(OUT, *GRID), var(ir.LocalName("local0"))),), locals=(x,))


def test_edges_that_are_those_of_a_whole_row_stand_around_its_points() -> None:
    for at, expected in ((Y, ["strip", "k_q", "i1"]), (X, ["i1", "k_q"])):
        routine = over_edges(at)
        symbols = conventions(routine).symbols
        (function,) = over_segments(follow_edges(look_up(guard_reads(build_loops(lower(routine))), symbols)), 0, 0)
        found = sum_in_strips(function)
        nests = statements(found.body, loops.Loop)
        variables = [str(s.variable) for s in nests]
        assert set(expected) <= set(variables)
        assert bool(statements(found.body, loops.LetSum)) == ("strip" in expected)


def nest(block: loops.Block) -> list[str]:
    """The variables of a block's first nest of loops, from the outside in."""
    inner = statements(block, loops.Loop)
    return [str(inner[0].variable), *nest(inner[0].body)] if inner else []


def strips(function: loops.Function) -> loops.Loop:
    (found,) = (s for s in statements(function.body, loops.Loop) if str(s.variable) == "strip")
    return found


def test_points_are_the_innermost_loop_where_they_are_neighbours() -> None:
    _, function = before_and_after(dense(STACKED))
    strip = strips(function)
    assert not statements(function.body, loops.Fold)
    clear, outer, rest = (s for s in strip.body if isinstance(s, loops.Loop))
    assert nest((outer,)) == ["k", "l", "i1"]
    (sums,) = statements((strip,), loops.Alloc)
    assert sums.extents == (strip.step,)
    kinds = [s.kind for s in statements((strip,), loops.Loop) if str(s.variable) == "i1"]
    assert kinds == ["independent"] * 3
    assert [s.update for s in statements((clear, outer, rest), loops.Store)] == ["=", "+=", "="]
    assert [s.name for s in statements((rest,), loops.LetSum)] == ["local0"]


def test_more_sums_have_shorter_strips() -> None:
    one = dense(STACKED)
    names = tuple(f"local{n}" for n in range(9))
    many = replace(one, locals=(replace(one.locals[0], names=names, values=(STACKED,) * 9),))
    lengths = [strips(before_and_after(routine)[1]).step for routine in (one, many)]
    assert lengths[0] > lengths[1]
    assert lengths[1] % 16 == 0


def test_short_rows_are_summed_along_their_own_loops_where_those_have_neighbours_too() -> None:
    function, strip = before_and_after(dense(WINDOW))
    (either,) = statements(strip.body, loops.If)
    (row,) = (s for s in statements(function.body, loops.Loop) if str(s.variable) == "i1")
    assert either.then == (row,)
    assert nest(either.otherwise) == ["strip", "i1"]


@pytest.mark.parametrize(
    "routine",
    [
        gather(),
        dense(ALONG_ROWS),
        dense(STACKED, var(ir.IndexCondition(IsZero(Y - X)))),
        dense(var(read(KERNEL, *GRAPH.at(0, X), L))),
    ],
    ids=["over edges", "rows of the sum's own loop", "on a diagonal", "through a table at the point"],
)
def test_other_sums_stay_as_they_are(routine: ir.Routine) -> None:
    function, same = before_and_after(routine)
    assert statements(function.body, loops.Fold)
    assert same == function


@pytest.mark.parametrize("condition", [(), (var(ir.IndexCondition(Divides(Y, 2))),)])
def test_a_sum_that_is_the_same_along_a_row_is_added_up_once(condition: tuple[Expr, ...]) -> None:
    _, function = before_and_after(dense(mul(var(read(KERNEL, K, L)), var(read(IMAGE, Y, K))), *condition))
    accumulator, *between, row = strips(function).body[1:]
    assert accumulator == loops.Accumulator("local0")
    assert [s.name for s in statements(tuple(between), loops.Accumulate)] == ["local0"]
    assert not statements((row,), loops.LetSum)


def test_a_condition_is_asked_before_the_sum_or_of_its_result() -> None:
    of_row, of_point = var(ir.IndexCondition(Divides(Y, 2))), var(ir.IndexCondition(Divides(X, 2)))
    _, function = before_and_after(dense(STACKED, of_row, of_point))
    strip = strips(function)
    (branch,) = statements((strip,), loops.If)
    assert branch.conditions == (loops.Holds(of_row),)
    assert nest(branch.then) == ["k", "l", "i1"]
    select = next(s for s in statements((strip,), loops.Store) if s.value is mul(of_point, var(ir.LocalName("local0"))))
    assert select.update == "="


def test_a_sum_of_another_sum_comes_after_it() -> None:
    first, second = dense(STACKED), dense(mul(STACKED, var(ir.LocalName("local0"))), local="local1")
    _, function = before_and_after(replace(second, locals=(*first.locals, *second.locals)))
    added = [s for s in statements(function.body, loops.Loop) if statements(s.body, loops.Store)]
    reads = [s.name for s in statements(function.body, loops.LetSum)]
    assert added
    assert reads == ["local0", "local1"]
    _, stays = before_and_after(replace(second, locals=(*dense(ALONG_ROWS).locals, *second.locals)))
    assert len(statements(stays.body, loops.Fold)) == 2


def test_what_a_table_has_for_a_loop_is_looked_up_once_for_all_points() -> None:
    (entry,) = GRAPH.at(0, L)
    routine = dense(mul(var(read(STACK, entry, L, X)), var(read(KERNEL, K, L))))
    looked_up = look_up(guard_reads(build_loops(lower(routine))), conventions(routine).symbols)
    (function,) = over_segments(looked_up, 0, 0)
    (inner,) = (s for s in statements(sum_in_strips(function).body, loops.Loop) if str(s.variable) == "l")
    assert [type(s) for s in inner.body] == [loops.Lookup, loops.Loop]
