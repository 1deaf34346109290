"""Whatever the simplification on construction and factoring do, the value stays."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optpy.symbolic.expr import Expr
from optpy.symbolic.factor import factor
from optpy.symbolic.interpret import evaluate
from tests.support.programs import Program, Run, Undefined, build, guarded_sums, points, programs, run


def value(e: Expr, point: Mapping[str, float]) -> float:
    (result,) = evaluate([e], lambda key: point[key.name])
    return float(result)


def expected(program: Program, point: Mapping[str, float]) -> tuple[float, float]:
    """The value, and the rounding error to allow for; skips the example where there is none."""
    record = Run()
    try:
        result = run(program, point, record)
    except Undefined:
        assume(False)
    assume(record.largest < 1e8)
    return result, 1e-9 * record.largest**2


def built(program: Program) -> Expr:
    try:
        return build(program)
    except Undefined:
        assume(False)


@settings(max_examples=200)
@given(st.one_of(programs(), guarded_sums()), points())
def test_building_preserves_value(program: Program, point: dict[str, float]) -> None:
    want, tolerance = expected(program, point)
    assert math.isclose(value(built(program), point), want, rel_tol=1e-7, abs_tol=tolerance)


@settings(max_examples=200)
@given(st.one_of(programs(), guarded_sums()), points())
def test_factoring_preserves_value(program: Program, point: dict[str, float]) -> None:
    want, tolerance = expected(program, point)
    (factored,) = factor([built(program)])
    assert math.isclose(value(factored, point), want, rel_tol=1e-7, abs_tol=tolerance)


@settings(max_examples=200)
@given(st.one_of(programs(), guarded_sums()))
def test_factoring_is_idempotent(program: Program) -> None:
    (once,) = factor([built(program)])
    (twice,) = factor([once])
    assert twice is once
