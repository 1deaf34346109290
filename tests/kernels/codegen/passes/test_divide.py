"""One division for each product with negative powers."""

from __future__ import annotations

from fractions import Fraction

from optpy.kernels.codegen.passes.divide import divide
from optpy.kernels.codegen.passes.in_order import in_order
from optpy.symbolic.expr import add, mul, power
from tests.kernels.codegen.passes.expressions import assert_computes_the_same, counts, through, w, x, y, z


def test_a_product_is_one_quotient() -> None:
    e = mul(x, y, power(z, -1), power(w, Fraction(-3, 2)))
    (found,) = through([in_order, divide], e)
    assert counts(found) == {"over": 1, "times": 2, "power": 1}
    assert_computes_the_same([e], [found])


def test_a_negative_power_alone_is_a_reciprocal() -> None:
    e = [power(z, -1), power(z, -2), add(x, power(w, -1))]
    found = through([in_order, divide], *e)
    assert counts(*found) == {"over": 3, "power": 1, "sum++": 1}
    assert_computes_the_same(e, found)


def test_quotients_inside_quotients_stay() -> None:
    e = mul(x, power(add(y, power(z, -1)), -1))
    (found,) = through([in_order, divide], e)
    assert counts(found)["over"] == 2
    assert_computes_the_same([e], [found])
