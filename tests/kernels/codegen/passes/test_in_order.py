"""Sums and products in an order that stays; conditions select."""

from __future__ import annotations

from optpy.ir.loops.arithmetic import signs_of
from optpy.kernels.codegen.passes.in_order import in_order
from optpy.symbolic.expr import Call, Expr, add, call, const, linear, mul, power
from optpy.symbolic.operations import OPERATIONS
from tests.kernels.codegen.passes.expressions import assert_computes_the_same, counts, through, w, x, y, z


def ordered(e: Expr) -> Expr:
    (found,) = through([in_order], e)
    return found


def test_positive_terms_come_first_and_numbers_last() -> None:
    e = linear(-2, [(-1, x), (3, y), (-0.5, z), (1, w)])
    found = ordered(e)
    assert isinstance(found, Call)
    assert signs_of(found.op) == "++---"
    assert found.args[-1] is const(2)
    assert counts(found)["times"] == 2
    assert_computes_the_same([e], [found])


def test_a_multiple_is_no_sum() -> None:
    assert counts(ordered(linear(0, [(2, x)]))) == {"times": 1}
    assert counts(ordered(linear(0, [(-2, x)]))) == {"times": 1, "sum-": 1}


def test_powers_keep_their_exponents() -> None:
    e = mul(power(x, 3), power(z, -2), y)
    found = ordered(e)
    assert counts(found) == {"times": 1, "power": 2}
    assert_computes_the_same([e], [found])


def test_conditions_select_where_the_rest_is_infinite() -> None:
    is_less = call(OPERATIONS["less"], y, x)
    is_more = call(OPERATIONS["less"], z, x)
    zero = add(x, const(-1.1))
    infinite = power(zero, -1)
    e = [mul(is_less, is_more, infinite), mul(is_less, x), mul(is_less, is_more)]
    found = through([in_order], *e)
    assert counts(*found)["select"] == 2
    assert counts(*found)["all"] == 1
    assert_computes_the_same(e, found)
