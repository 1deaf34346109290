"""Bounds on rounding errors, against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optpy.symbolic.expr import Expr, add, call, linear, mul, power
from optpy.symbolic.interpret import evaluate, rounding
from optpy.symbolic.operations import OPERATIONS, less
from tests.support.programs import real

x, y, z = real("x"), real("y"), real("z")
UNIT = 2.0**-53


def value(e: Expr, **values: float) -> float:
    return float(evaluate([e], lambda key: values[str(key)])[0])


def bound(e: Expr, leaf: float = 0.0, **values: float) -> float:
    return float(rounding([e], lambda key: values[str(key)], lambda _: leaf)[0])


numbers = st.one_of(*(st.floats(low, high, allow_subnormal=False) for low, high in [(-1e6, 1e6), (-1e-6, 1e-6)]))


@given(numbers, numbers, numbers)
def test_sums_and_products_are_as_near_to_the_exact_value_as_their_bound_says(a: float, b: float, c: float) -> None:
    A, B, C = map(Fraction, (a, b, c))
    for e, exact in [
        (add(x, y, z), A + B + C),
        (linear(3, [(5, x), (-7, y), (1, z)]), 3 + 5 * A - 7 * B + C),
        (mul(x, y, z), A * B * C),
        (power(add(x, mul(y, z)), 2), (A + B * C) ** 2),
    ]:
        error = abs(Fraction(value(e, x=a, y=b, z=c)) - exact)
        assert error <= Fraction(1.01 * bound(e, x=a, y=b, z=c)) + Fraction(1, 10**200)


def test_a_difference_of_near_numbers_is_exact_and_hides_what_was_rounded_before() -> None:
    near = linear(0, [(1, x), (-1, y)])
    assert bound(near, x=1e6 + 1e-3, y=1e6) < 1e-18
    assert bound(near, leaf=1e-10, x=1e6 + 1e-3, y=1e6) == pytest.approx(2e-10)
    turned = linear(0, [(1, mul(x, z)), (-1, mul(y, z))])
    assert 1e-11 < bound(turned, x=1e6 + 1e-3, y=1e6, z=0.1) < 1e-9
    assert bound(add(x, y), x=1e17, y=1.0) >= 8


def test_whole_numbers_and_conditions_are_exact() -> None:
    assert bound(linear(-3, [(2, x), (5, y)]), x=4.0, y=1e6) == 0
    assert bound(less(linear(0, [(1, x), (-3, y)]), z), x=4.0, y=1.0, z=1.0) == 0
    assert bound(less(mul(x, y), z), x=0.1, y=0.1, z=0.1 * 0.1) == 1  # it may flip


def test_a_function_passes_the_errors_of_its_arguments_on() -> None:
    exp = call(OPERATIONS["exp"], x)
    assert bound(exp, leaf=1e-9, x=2.0) == pytest.approx(np.exp(2.0) * 1e-9, rel=1e-6)
    assert bound(exp, x=2.0) == pytest.approx(UNIT * np.exp(2.0))


def test_what_a_condition_leaves_out_adds_no_error() -> None:
    condition = less(x, y)
    e = mul(condition, power(x, -1))
    assert bound(e, x=0.0, y=-1.0) == 0
    assert np.isfinite(bound(e, x=-4.0, y=-1.0))


def test_leaves_are_known_by_their_keys() -> None:
    errors = {"x": 1e-3, "y": 0.0}
    (error,) = rounding([add(x, y)], lambda _: 1.0, lambda key: errors[str(key)])
    assert error == pytest.approx(1e-3)
