"""Marks compute nothing."""

from __future__ import annotations

from optpy.kernels.codegen.passes.drop_marks import drop_marks
from optpy.kernels.codegen.passes.in_order import in_order
from optpy.symbolic.expr import add, call, mul
from optpy.symbolic.operations import OPERATIONS
from tests.kernels.codegen.passes.expressions import assert_computes_the_same, counts, through, x, y


def test_marks_are_left_out_wherever_they_stand() -> None:
    stopped, whole = call(OPERATIONS["stop_gradient"], add(x, y)), call(OPERATIONS["whole"], add(x, y))
    e = [mul(stopped, x), call(OPERATIONS["sin"], whole), stopped]
    before, after = through([in_order], *e), through([in_order, drop_marks], *e)
    assert counts(*before)["stop_gradient"] == counts(*before)["whole"] == 1
    assert counts(*after) == {"times": 1, "sin": 1, "sum++": 1}
    assert_computes_the_same(e, after)
