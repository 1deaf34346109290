"""Dear values of params alone: at the head of the function, once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optpy import ir
from optpy.ir import Scalar, loops
from optpy.kernels.codegen.passes.divide import divide
from optpy.kernels.codegen.passes.expand_powers import expand_powers
from optpy.kernels.codegen.passes.hoist import hoist
from optpy.kernels.codegen.passes.in_order import in_order
from optpy.kernels.codegen.passes.share_reciprocals import share_reciprocals
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import Expr, add, call, const, mul, power, var
from optpy.symbolic.interpret import evaluate
from optpy.symbolic.operations import OPERATIONS, sqrt
from tests.kernels.codegen.passes.expressions import counts, values_of
from tests.kernels.codegen.passes.routines import GRID, A, read, statements

p, q = (var(Scalar(name)) for name in "pq")
element = read(A, *GRID)
x = var(element)


def hoisted(*values: Expr) -> tuple[loops.Block, loops.Loop]:
    """What stands before the loop over a row, and the loop."""
    inner = loops.evaluate(values, "t")
    reads = ((element, loops.Load(loops.MemoryOperand(element))),)
    row = loops.Loop(
        GRID[1], Affine(0), Affine.of(GRID[1].dim), (loops.Evaluate(inner.values, "t", inner.leaves, reads),)
    )
    function = hoist(expand_powers(divide(share_reciprocals(in_order(loops.Function("f", (row,)))))))
    *head, loop = function.body
    assert isinstance(loop, loops.Loop)
    return tuple(head), loop


def check(*values: Expr) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The expressions before the loop and in it; together they compute what was asked for."""
    head, loop = hoisted(*values)
    given: dict[Any, float] = {Scalar("p"): 1.7, Scalar("q"): 0.3, element: -2.5}
    known: dict[Any, Any] = dict(given)
    for s in statements(head, loops.LetNumber):
        (known[ir.Hoisted(s.name)],) = evaluate([s.value], given.__getitem__)
    inside = values_of(loops.Function("f", loop.body))
    assert np.array(evaluate(inside, known.__getitem__)) == pytest.approx(np.array(evaluate(values, given.__getitem__)))
    return values_of(loops.Function("f", head)), inside


def test_divisions_roots_and_functions_of_params_leave_the_loop() -> None:
    above, inside = check(mul(x, sqrt(p)), mul(x, power(q, -1)), mul(x, call(OPERATIONS["exp"], add(p, q))))
    assert counts(*inside) == {"times": 3}
    assert counts(*above) == {"sqrt": 1, "over": 1, "exp": 1, "sum++": 1}


def test_the_largest_expression_leaves() -> None:
    above, inside = check(mul(x, add(sqrt(p), power(q, -1))))
    assert len(above) == 1
    assert counts(*inside) == {"times": 1}


def test_a_value_is_computed_once_for_all_that_need_it() -> None:
    above, _ = check(mul(x, sqrt(p)), add(x, sqrt(p)), sqrt(p))
    assert counts(*above) == {"sqrt": 1}


def test_what_is_cheap_or_depends_on_the_point_stays() -> None:
    head, _ = hoisted(mul(x, p, q), add(mul(const(2), p), x), sqrt(x))
    assert head == ()


def test_the_loop_declares_no_more_than_it_reads() -> None:
    head, loop = hoisted(mul(x, sqrt(p)))
    (before,), (inside,) = (statements(block, loops.Evaluate) for block in (head, loop.body))
    assert before.leaves == (Scalar("p"),)
    assert set(inside.leaves) == {element, ir.Hoisted("given0")}
    assert [a for a, _ in inside.reads] == [element]
