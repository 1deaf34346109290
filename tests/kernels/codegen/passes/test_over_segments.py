"""Segments: the interior in a plain loop of its own, sums joined in a fixed order."""

from __future__ import annotations

import pytest

from optpy.errors import InternalError
from optpy.ir import loops
from optpy.kernels.codegen.lower import lower
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.over_segments import over_segments
from tests.kernels.codegen.passes.routines import elementwise, scatter, statements, stencil


def test_border_and_interior_are_functions_of_their_own() -> None:
    border, interior, kernel = over_segments(build_loops(lower(stencil())), segments=3, reduction=5)
    assert border.noinline
    (blocks,) = statements(kernel.body, loops.Loop)
    assert (str(blocks.low), str(blocks.high)) == ("first", "last")
    calls = statements(blocks.body, loops.FunctionCall)
    assert [(s.name, str(s.first), str(s.last)) for s in calls] == [
        (border.name, "block", "block_end"),
        (interior.name, "block", "block_end"),
    ]
    (partial,) = statements(border.body, loops.Partial)
    (joined,) = statements(interior.body, loops.Partial)
    assert (partial.number, partial.join, joined.number, joined.join) == (5, False, 5, True)
    (row,) = (s for s in statements(interior.body, loops.Loop) if s.kind == "independent")
    assert (str(row.variable), str(row.low), str(row.high)) == ("i1", "low", "high")
    (ends,) = (s for s in statements(border.body, loops.Loop) if s.kind == "narrow")
    assert (str(ends.variable), str(ends.low), str(ends.high)) == ("i1", "start", "stop")


def test_without_a_border_there_is_one_function_and_no_limit() -> None:
    (function,) = over_segments(build_loops(lower(elementwise())), segments=0, reduction=0)
    assert not statements(function.body, loops.Let)
    (accumulator,) = statements(function.body, loops.Accumulator)
    assert accumulator.maximum


def test_there_are_no_atomics() -> None:
    with pytest.raises(InternalError, match="atomic"):
        over_segments(build_loops(lower(scatter())), 0, 0)
