"""Routines with work under conditions split off: what is left where they fail, counted; and that nothing is lost."""

from __future__ import annotations

import pytest

from optpy import ir
from optpy.kernels.codegen.branch import LEAST, branch_conditions, conditional_parts, has_parts, zero_without
from optpy.symbolic.count import count
from optpy.symbolic.expr import ONE, ZERO, Expr, add, call, const, logical_not, mul, power, var
from optpy.symbolic.operations import OPERATIONS, equal
from tests.kernels.codegen.passes.routines import GRID, OUT, A, H, W, read

pytestmark = pytest.mark.core

ROW, COLUMN = ir.point(GRID)
MASK = ir.Field("M", (H, W), 1, "uint8", ir.Role.DATA)
OTHER = ir.Field("N", (H, W), 1, "uint8", ir.Role.DATA)


def holds(field: ir.Field = MASK, d: int = 0) -> Expr:
    return logical_not(equal(var(read(field, ROW, COLUMN + d)), ZERO))


def dear(n: int, terms: int = 3) -> Expr:
    """Functions of A, others for each n."""
    a = var(read(A, ROW, COLUMN))
    return add(*(call(OPERATIONS["sin"], add(mul(const(n * terms + k + 2), a), const(n))) for k in range(terms)))


def storing(value: Expr) -> ir.Routine:
    return ir.Routine("r", GRID, (ir.Assignment(read(OUT, ROW, COLUMN), value),), (ir.Reduce("s", power(value, 2)),))


def cost(routine: ir.Routine) -> int:
    """Additions where no condition holds."""
    outer = [s.value for s in routine.assignments] + [r.value for r in routine.reductions]
    return count([*outer, *(x.condition for x in routine.locals)]).cost


def test_terms_under_one_condition_stand_together() -> None:
    a = var(read(A, ROW, COLUMN))
    whole = storing(add(a, mul(holds(), dear(0)), mul(holds(), a, dear(1))))
    (part,) = conditional_parts(whole)
    split = branch_conditions(whole)
    (local,) = split.locals
    assert part.condition is local.condition is holds()
    assert part.values == local.values
    assert not local.loops
    assert cost(split) < 12 < part.saved
    assert has_parts(split)
    assert not has_parts(whole)


def test_conditions_that_differ_by_the_point_are_asked_at_once() -> None:
    whole = storing(add(mul(holds(), dear(0)), mul(holds(d=1), dear(1)), mul(holds(d=-1), dear(2))))
    (local,) = branch_conditions(whole).locals
    assert zero_without([local.condition], [holds(d=d) for d in (-1, 0, 1)]) >= {holds(), holds(d=1)}
    for d in (-1, 0, 1):  # any of them is reason enough
        assert not zero_without([local.condition], {holds(d=k) for k in (-1, 0, 1) if k != d}) >= {local.condition}


def test_each_condition_has_a_part() -> None:
    whole = storing(add(mul(holds(), dear(0, 4)), mul(holds(OTHER), dear(1, 5))))
    assert [p.condition for p in conditional_parts(whole)] == [holds(OTHER), holds()]
    names = {name for x in branch_conditions(whole).locals for name in x.names}
    assert len(names) == 2


def test_two_conditions_of_one_part_must_both_hold() -> None:
    (local,) = branch_conditions(storing(mul(holds(), holds(OTHER), dear(0)))).locals
    assert local.condition is mul(holds(), holds(OTHER))


def test_what_is_needed_elsewhere_is_not_left_out() -> None:
    shared = dear(0)
    assert conditional_parts(storing(add(shared, mul(holds(), var(read(A, ROW, COLUMN)), shared)))) == []


def test_little_work_is_selected() -> None:
    little = mul(holds(), call(OPERATIONS["sin"], var(read(A, ROW, COLUMN))))
    assert count([little]).cost < LEAST
    assert conditional_parts(storing(little)) == []


@pytest.mark.parametrize("exponent", [-1, 1])
def test_nought_times_what_may_be_infinite_is_no_nought(exponent: int) -> None:
    scale = power(var(read(A, ROW, COLUMN)), exponent)
    value = mul(scale, add(mul(holds(), dear(0)), mul(holds(), holds(OTHER), dear(1))))
    assert (value in zero_without([value], {holds()})) is (exponent == 1)
    split = branch_conditions(storing(value))
    left = split.assignments[0].value
    assert isinstance(left, type(var(ir.LocalName("x")))) is (exponent == 1)
    assert count([left]).cost < 20


def test_bounds_are_no_conditions_on_data() -> None:
    inside = var(ir.InBounds(COLUMN + 1, W))
    assert conditional_parts(storing(mul(inside, dear(0)))) == []
    assert zero_without([mul(inside, dear(0))], {ONE}) == {ONE}
