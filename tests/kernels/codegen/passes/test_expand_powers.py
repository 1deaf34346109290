"""Whole powers by squaring, half powers by a root, the rest by ``pow``."""

from __future__ import annotations

from fractions import Fraction

import pytest

from optpy.kernels.codegen.passes.divide import divide
from optpy.kernels.codegen.passes.expand_powers import expand_powers
from optpy.kernels.codegen.passes.in_order import in_order
from optpy.symbolic.expr import Number, power
from tests.kernels.codegen.passes.expressions import assert_computes_the_same, counts, through, x, z

HALF = Fraction(1, 2)


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [
        (2, {"times": 1}),
        (3, {"times": 1}),
        (4, {"times": 2}),
        (7, {"times": 2}),
        (64, {"times": 6}),
        (65, {"pow": 1}),
        (-2, {"over": 1, "times": 1}),
        (HALF, {"sqrt": 1}),
        (3 * HALF, {"sqrt": 1, "times": 1}),
        (9 * HALF, {"sqrt": 1, "times": 3}),
        (11 * HALF, {"pow": 1}),
        (-5 * HALF, {"over": 1, "sqrt": 1, "times": 2}),
        (Fraction(1, 3), {"pow": 1}),
        (1.5e-3, {"pow": 1}),
    ],
)
def test_powers(exponent: Number, expected: dict[str, int]) -> None:
    e = power(x, exponent)
    (found,) = through([in_order, divide, expand_powers], e)
    assert counts(found) == expected
    assert_computes_the_same([e], [found])


def test_powers_of_one_base_share_squares_and_the_root() -> None:
    e = [power(z, 4), power(z, 5), power(z, 5 * HALF), power(z, HALF)]
    found = through([in_order, divide, expand_powers], *e)
    assert counts(*found) == {"times": 4, "sqrt": 1}
    assert_computes_the_same(e, found)
