"""Factoring: what it finds, and that it lowers the operation counts; the counts themselves."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optpy.symbolic.count import DIVIDE_COST, ROOT_COST, OperationCount, count, count_unshared
from optpy.symbolic.expr import ONE, Expr, add, call, const, linear, logical_not, mul, negate, power, subtract, where
from optpy.symbolic.factor import factor
from optpy.symbolic.operations import OPERATIONS, less, sqrt
from tests.support.programs import boolean, real

x, y, z, w = real("x"), real("y"), real("z"), real("w")
a, b, c = boolean("a"), boolean("b"), boolean("c")


def factored(e: Expr) -> Expr:
    (result,) = factor([e])
    return result


# -- what is found -------------------------------------------------------------------------------------------


def test_shared_factors_are_pulled_out() -> None:
    assert factored(add(mul(x, y), mul(x, z))) is mul(x, add(y, z))
    assert factored(add(mul(a, x, y), mul(a, x, z))) is mul(a, x, add(y, z))
    assert factored(add(mul(x, y), mul(x, z), mul(w, y), mul(w, z))) is mul(add(x, w), add(y, z))
    assert factored(linear(5, [(2, mul(x, y)), (2, mul(x, z))])) is linear(5, [(2, mul(x, add(y, z)))])


def test_powers_are_in_horner_form() -> None:
    polynomial = linear(1, [(2, x), (3, power(x, 2)), (4, power(x, 3))])
    assert factored(polynomial) is linear(1, [(1, mul(x, linear(2, [(1, mul(x, linear(3, [(4, x)])))])))])


def test_quotients_and_roots_are_shared() -> None:
    norm = power(add(power(x, 2), power(y, 2)), Fraction(-1, 2))
    assert factored(add(mul(x, norm, z), mul(y, norm, w))) is mul(norm, add(mul(x, z), mul(y, w)))
    assert factored(add(mul(y, power(x, -1)), mul(z, power(x, -1)))) is mul(power(x, -1), add(y, z))
    assert factored(add(mul(y, power(x, -2)), mul(z, power(x, -1)))) is mul(power(x, -1), add(z, mul(y, power(x, -1))))


def test_conditions_come_first() -> None:
    e = factored(add(mul(a, x, y), mul(a, x, z), mul(b, x, w), mul(b, x, z)))
    assert e is add(mul(a, x, add(y, z)), mul(b, x, add(w, z)))


def test_equal_arms_of_a_condition_become_one() -> None:
    not_a = logical_not(a)
    assert factored(add(mul(a, x), mul(not_a, x))) is x
    assert factored(add(mul(a, b, x), mul(not_a, b, x))) is mul(b, x)
    assert factored(add(mul(a, b, x), mul(not_a, b, x), mul(logical_not(b), x))) is x
    assert factored(add(a, not_a)) is ONE
    assert factored(add(where(a, x, y), where(a, y, x))) is add(x, y)
    assert factored(add(mul(a, x), mul(not_a, x), x)) is linear(0, [(2, x)])
    kept = add(mul(a, x), mul(const(2), not_a, x))
    assert factored(kept) is kept


def test_shared_nodes_stay_shared() -> None:
    common = add(mul(x, y), mul(x, z))
    sin = call(OPERATIONS["sin"], common)
    first, second = factor([mul(sin, w), add(sin, common)])
    new = call(OPERATIONS["sin"], mul(x, add(y, z)))
    assert first is mul(new, w)
    assert second is add(new, mul(x, add(y, z)))


_monomials = st.lists(
    st.lists(st.sampled_from([x, y, z, a, b, c]), min_size=1, max_size=3).map(lambda f: mul(*f)),
    min_size=2,
    max_size=6,
    unique_by=id,
)


@settings(max_examples=200)
@given(_monomials)
def test_factoring_monomials_saves_operations(terms: list[Expr]) -> None:
    before = add(*terms)
    after = factored(before)
    assert count([after]).cost <= count([before]).cost
    assert count([after]).add <= count([before]).add
    assert factored(after) is after


# -- counts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("e", "want"),
    [
        (const(3), OperationCount()),
        (x, OperationCount(load=1, cost=1)),
        (add(x, y, ONE), OperationCount(add=2, load=2, cost=4)),
        (subtract(x, y), OperationCount(add=1, load=2, cost=3)),
        (linear(0, [(2, x), (3, y)]), OperationCount(add=1, multiply=2, load=2, cost=5)),
        (mul(x, y, z), OperationCount(multiply=2, load=3, cost=5)),
        (power(x, 2), OperationCount(multiply=1, load=1, cost=2)),
        (power(x, 5), OperationCount(multiply=3, load=1, cost=4)),
        (power(x, -1), OperationCount(divide=1, load=1, cost=1 + DIVIDE_COST)),
        (mul(x, power(y, -1)), OperationCount(divide=1, load=2, cost=2 + DIVIDE_COST)),
        (power(mul(x, y), -1), OperationCount(multiply=1, divide=1, load=2, cost=3 + DIVIDE_COST)),
        (mul(x, y, power(z, -2)), OperationCount(multiply=2, divide=1, load=3, cost=5 + DIVIDE_COST)),
        (sqrt(x), OperationCount(function=1, load=1, cost=1 + ROOT_COST)),
        (power(x, Fraction(3, 2)), OperationCount(multiply=1, function=1, load=1, cost=2 + ROOT_COST)),
        (mul(a, x), OperationCount(select=1, load=2, cost=3)),
        (mul(a, b), OperationCount(boolean=1, load=2, cost=3)),
        (mul(a, b, x, y), OperationCount(boolean=1, select=1, multiply=1, load=4, cost=7)),
        (less(x, y), OperationCount(boolean=1, load=2, cost=3)),
        (call(OPERATIONS["sin"], x), OperationCount(function=1, load=1, cost=1 + OPERATIONS["sin"].cost)),
    ],
)
def test_counts(e: Expr, want: OperationCount) -> None:
    assert count([e]) == want


def test_shared_work_counts_once() -> None:
    sin = call(OPERATIONS["sin"], x)
    roots = [mul(sin, y), add(sin, y)]
    assert count(roots).function == 1
    assert count(roots).load == 2
    assert count_unshared(roots).function == 2
    assert count_unshared(roots).load == 4
    assert str(count(roots)).startswith("1 add, 1 mul, 0 div, 1 function")


def test_negation_is_free_in_a_sum() -> None:
    assert count([subtract(x, y)]).cost == count([add(x, y)]).cost
    assert count([negate(x)]).multiply == 0
