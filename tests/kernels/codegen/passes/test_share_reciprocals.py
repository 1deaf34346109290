"""One division for each divisor that several products have; the same values."""

from __future__ import annotations

from fractions import Fraction

import pytest

from optpy import ir
from optpy.ir import Scalar, loops
from optpy.kernels.codegen.passes.divide import divide
from optpy.kernels.codegen.passes.expand_powers import expand_powers
from optpy.kernels.codegen.passes.in_order import in_order
from optpy.kernels.codegen.passes.share_reciprocals import share_reciprocals
from optpy.kernels.codegen.passes.split_quotients import split_quotients
from optpy.symbolic.expr import Expr, add, call, const, linear, mul, power, var
from optpy.symbolic.operations import OPERATIONS
from tests.kernels.codegen.passes.expressions import assert_computes_the_same, counts, evaluation, values_of

a, b, c, d, e = (var(ir.LocalName(name)) for name in "abcde")
p = var(Scalar("p"))
VALUES = {v.key: x for v, x in zip((a, b, c, d, e, p), (1.1, -0.7, 1.3, 0.4, 2.1, 0.3), strict=True)}
HALF = Fraction(1, 2)


def both(*values: Expr) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Expressions lowered without the pass, and with it."""
    plain = in_order(evaluation(*values))
    shared = share_reciprocals(plain)
    before, after = (values_of(expand_powers(divide(split_quotients(f)))) for f in (plain, shared))
    assert_computes_the_same(values, before, VALUES)
    assert_computes_the_same(values, after, VALUES)
    return before, after


def divisions(values: tuple[Expr, ...]) -> int:
    return counts(*values)["over"]


def test_quotients_by_one_number_share_its_reciprocal() -> None:
    before, after = both(mul(a, power(c, -1)), mul(b, power(c, -2)), add(a, power(c, -3)))
    assert (divisions(before), divisions(after)) == (3, 1)


def test_powers_of_one_root_share_one_root() -> None:
    before, after = both(*(mul(x, power(c, -n * HALF)) for x, n in ((a, 1), (b, 3), (d, 1), (e, 3))))
    assert (divisions(before), divisions(after)) == (4, 2)  # by c, and by its root
    assert counts(*after)["sqrt"] == 1


def test_a_single_quotient_stays() -> None:
    before, after = both(mul(a, power(c, -1)), mul(b, power(d, -1)))
    assert after == before


def test_no_more_divisions_than_before() -> None:
    below = power(mul(c, d, e), -1)
    before, after = both(mul(a, below), mul(b, below))
    assert (divisions(before), divisions(after)) == (2, 2)


def test_by_params_alone_there_is_a_reciprocal_always() -> None:
    before, after = both(mul(a, power(p, -1)))
    assert counts(*before) == {"over": 1}
    assert counts(*after) == {"over": 1, "times": 1}


def test_quotients_of_high_powers_stay() -> None:
    high = [mul(power(x, 4), power(c, -5)) for x in (a, b)]
    before, after = both(*high)
    assert after == before


def compared(sign: str, quotient: Expr) -> Expr:
    return call(OPERATIONS["floor"], quotient) if sign == "floor" else call(OPERATIONS[sign], quotient, a)


@pytest.mark.parametrize("sign", ["floor", "less", "less_equal"])
@pytest.mark.parametrize("within", [lambda q: q, lambda q: linear(Fraction(1, 2), [(-3, q), (1, b)])])
def test_where_the_last_digit_decides_quotients_stay(sign: str, within: object) -> None:
    assert callable(within)
    quotients = [mul(x, power(c, -1)) for x in (d, e)]
    before, after = both(*(compared(sign, within(q)) for q in quotients))
    assert after == before
    before, after = both(*(compared(sign, mul(a, add(q, const(1)))) for q in quotients))
    assert (divisions(before), divisions(after)) == (2, 1)  # rounded in any case


def test_sums_of_several_quotients_are_rounded_in_any_case() -> None:
    before, after = both(compared("less", add(mul(d, power(c, -1)), mul(e, power(c, -1)))))
    assert (divisions(before), divisions(after)) == (2, 1)


def test_what_two_evaluations_divide_by_is_not_shared() -> None:
    """Interior and border are not both computed at a point."""
    one, other = (evaluation(mul(x, power(c, -1))).body for x in (a, b))
    function = in_order(loops.Function("f", (*one, *other)))
    assert share_reciprocals(function) == function
