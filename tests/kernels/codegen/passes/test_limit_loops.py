"""Limits of loops that add to memory, from the checks of what they add."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optpy import ir
from optpy.ir import loops
from optpy.kernels.codegen.passes.limit_loops import limit_loops
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import Expr, add, const, mul, var
from tests.kernels.codegen.passes.routines import GRID, OUT, A, H, V, W, read, statements

Y, X = map(Affine.of, GRID)
K = Affine.of(ir.LoopVariable("k", V))
HERE = ir.InBounds(X + K * -1, W)
ROW = ir.InBounds(Y + K * -1, H)
MIRRORED = ir.InBounds(Affine.of(W) - X - K, W)
STRIDED = ir.InBounds(X * 2 - K, W)
VALUE = read(A, Y + K * -1, X + K * -1)


def adding(*values: Expr, update: loops.Update = "+=") -> loops.Function:
    """A loop over j that adds values, with all checks of their reads."""
    evaluation = loops.evaluate(values, "t")
    load = loops.Load(loops.MemoryOperand(VALUE), (ROW, HERE))
    stores = (loops.Store(loops.MemoryOperand(read(OUT, Y, X)), v, update) for v in values)
    body: loops.Block = (loops.Evaluate(values, "t", evaluation.leaves, ((VALUE, load),)), *stores)
    return loops.Function("adding", (loops.Loop(GRID[1], Affine(0), Affine.of(W), body, "independent"),))


def limits(function: loops.Function) -> list[str]:
    return [str(s.value) for s in statements(limit_loops(function).body, loops.Let)]


def test_checks_of_the_loop_are_its_limits_and_others_are_asked_before() -> None:
    function = limit_loops(adding(mul(var(HERE), var(ROW), var(VALUE))))
    (branch,) = function.body
    assert isinstance(branch, loops.If)
    assert branch.conditions == (ROW,)
    assert [str(s.value) for s in statements(branch.then, loops.Let)] == ["max(0, k)", "min(W, W + k)"]
    (loop,) = statements(branch.then, loops.Loop)
    assert (str(loop.low), str(loop.high), loop.kind) == ("from0", "to0", "independent")
    (evaluation,) = statements(loop.body, loops.Evaluate)
    assert evaluation.leaves == (VALUE,)
    assert [load.guards for _, load in evaluation.reads] == [()]
    (store,) = statements(loop.body, loops.Store)
    assert store.value is var(VALUE)


def test_several_checks_narrow_the_limits_in_turn() -> None:
    found = limits(adding(mul(var(HERE), var(MIRRORED), var(VALUE))))
    assert found == ["max(0, k)", "min(W, W + k)", "max(from0, -k + 1)", "min(to0, W - k + 1)"]


@pytest.mark.parametrize(
    "function",
    [
        adding(mul(var(STRIDED), var(VALUE))),
        adding(add(const(1), mul(var(HERE), var(VALUE)))),
        adding(mul(var(HERE), var(VALUE)), var(VALUE)),
        adding(mul(var(HERE), var(VALUE)), update="="),
    ],
    ids=["strided", "beside a constant", "of one of two", "stored"],
)
def test_other_checks_stay(function: loops.Function) -> None:
    assert limit_loops(function) == function


def test_a_check_of_every_summand_is_one_of_the_sum() -> None:
    total = add(mul(const(2), var(HERE), var(VALUE)), mul(const(3), var(HERE), var(VALUE), var(VALUE)))
    assert limits(adding(total)) == ["max(0, k)", "min(W, W + k)"]
    assert limits(adding(mul(var(HERE), var(VALUE)), var(HERE))) == ["max(0, k)", "min(W, W + k)"]


def test_what_is_added_to_sums_is_limited_alike() -> None:
    values = mul(var(HERE), var(VALUE)), mul(const(2), var(HERE))
    function = adding(*values)
    (loop,) = statements(function.body, loops.Loop)
    sums = tuple(loops.Accumulate(f"sum{n}", v) for n, v in enumerate(values))
    summing = replace(function, body=(replace(loop, body=(loop.body[0], *sums)),))
    assert limits(summing) == limits(function) == ["max(0, k)", "min(W, W + k)"]
    found = statements(limit_loops(summing).body, loops.Accumulate)
    assert [s.value for s in found] == [var(VALUE), const(2)]
    guarded = replace(loop, body=(loop.body[0], *(replace(s, guard=loops.Flag("some")) for s in sums)))
    assert limit_loops(replace(function, body=(guarded,))).body == (guarded,)
