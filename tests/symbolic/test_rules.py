"""Single rules of the canonical form: those that must hold, and those that would be wrong."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from optpy.symbolic.expr import (
    FLATTEN_LIMIT,
    ONE,
    ZERO,
    Expr,
    Product,
    Sum,
    Var,
    add,
    call,
    const,
    linear,
    logical_not,
    mul,
    negate,
    power,
    split_content,
    subtract,
    where,
)
from optpy.symbolic.interpret import evaluate
from optpy.symbolic.operations import OPERATIONS, absolute, less, sqrt
from optpy.symbolic.traverse import map_variables, substitute, variables
from tests.support.programs import Leaf, boolean, real

x, y, z, b, c = real("x"), real("y"), real("z"), boolean("b"), boolean("c")
HALF = Fraction(1, 2)


def value(e: Expr, **leaves: float) -> float:
    return float(evaluate([e], lambda key: leaves[key.name])[0])


# -- sums ----------------------------------------------------------------------------------------------------


def test_like_terms_are_collected() -> None:
    assert add(x, y, x) is linear(0, [(2, x), (1, y)])
    assert subtract(add(x, y), y) is x
    assert subtract(x, x) is ZERO
    assert add(const(2), x, const(-2)) is x
    assert mul(const(3), add(x, ONE)) is linear(3, [(3, x)])


def test_conditions_are_numbers_in_sums() -> None:
    assert value(add(b, b, ONE), b=1.0) == 3
    assert not subtract(ONE, b).boolean


# -- products ------------------------------------------------------------------------------------------------


def test_powers_are_collected() -> None:
    assert mul(x, y, x) is mul(power(x, 2), y)
    assert mul(x, power(x, -1)) is ONE
    assert mul(sqrt(x), sqrt(x)) is x
    assert power(power(x, 2), -1) is power(x, -2)
    assert power(mul(const(2), x, y), 3) is mul(const(8), power(x, 3), power(y, 3))


def test_sums_in_products_are_primitive() -> None:
    assert mul(subtract(y, x), z) is negate(mul(subtract(x, y), z))
    assert mul(linear(0, [(4, x), (6, y)]), z) is mul(const(2), linear(0, [(2, x), (3, y)]), z)
    assert power(linear(0, [(Fraction(1, 3), x), (Fraction(-1, 3), y)]), 2) is mul(
        const(Fraction(1, 9)), power(subtract(x, y), 2)
    )
    assert mul(linear(0, [(0.1, x), (-0.1, y)]), z) is mul(const(0.1), subtract(x, y), z)
    floats = linear(0, [(0.1, x), (0.3, y)])
    assert split_content(floats)[1] in (floats, negate(floats))


def test_series_are_not_multiples_of_huge_numbers() -> None:
    """The coefficients of a sine's series stay what they are, so that its powers fit into float32."""
    series = add(ONE, *(mul(const(Fraction(1, math.factorial(2 * n + 1))), power(x, n)) for n in range(1, 7)))
    assert split_content(series) == (1, series)
    assert split_content(mul(const(-3), series))[1] is series
    tenth = power(series, 10)
    assert tenth is power(series, 10)
    assert value(tenth, x=0.0) == 1
    assert split_content(linear(5000, [(3, x)])) == (5000, linear(1, [(Fraction(3, 5000), x)]))
    assert split_content(linear(4000, [(3, x)])) == (1, linear(4000, [(3, x)]))


@pytest.mark.parametrize("exponent", [1, 2, 3, -1, -2, -3])
def test_signs_of_whole_powers(exponent: int) -> None:
    difference, opposite = power(subtract(x, y), exponent), power(subtract(y, x), exponent)
    assert opposite is (difference if exponent % 2 == 0 else negate(difference))
    assert value(mul(z, opposite), x=3.0, y=1.0, z=5.0) == 5 * (-2.0) ** exponent


def test_no_sign_leaves_a_fractional_power() -> None:
    assert value(sqrt(subtract(y, x)), x=1.0, y=5.0) == 2
    assert np.isnan(value(sqrt(subtract(y, x)), x=5.0, y=1.0))
    assert value(mul(z, sqrt(subtract(y, x))), x=1.0, y=5.0, z=3.0) == 6


# -- roots ---------------------------------------------------------------------------------------------------


def test_root_of_a_square_is_the_absolute_value() -> None:
    assert sqrt(power(x, 2)) is absolute(x)
    assert sqrt(power(x, 4)) is power(x, 2)
    assert sqrt(power(x, -2)) is power(absolute(x), -1)
    assert power(power(x, 2), Fraction(3, 2)) is power(absolute(x), 3)
    assert sqrt(mul(power(x, 2), power(y, 2))) is mul(absolute(x), absolute(y))
    assert value(sqrt(power(subtract(x, y), 2)), x=1.0, y=4.0) == 3


def test_root_of_a_product_is_not_split() -> None:
    assert value(sqrt(mul(x, y)), x=-2.0, y=-8.0) == 4
    assert value(sqrt(mul(x, power(y, 3))), x=-2.0, y=-2.0) == 4
    assert value(power(mul(x, y), -HALF), x=-2.0, y=-8.0) == 0.25
    assert sqrt(mul(x, y)) is not mul(sqrt(x), sqrt(y))


def test_odd_powers_keep_their_sign_under_roots() -> None:
    cube_root = power(power(x, 3), Fraction(1, 3))
    assert np.isnan(value(cube_root, x=-2.0))
    assert power(sqrt(x), HALF) is power(x, Fraction(1, 4))
    assert power(mul(sqrt(mul(x, y)), z), 2) is mul(x, y, power(z, 2))


def test_conditions_leave_roots() -> None:
    assert sqrt(mul(b, x)) is mul(b, sqrt(x))
    assert sqrt(add(mul(b, power(x, 2)), mul(b, power(y, 2)))) is mul(b, sqrt(add(power(x, 2), power(y, 2))))
    assert value(power(mul(b, x), -HALF), b=0.0, x=4.0) == np.inf


# -- conditions in products ----------------------------------------------------------------------------------


def test_conditions_are_idempotent() -> None:
    assert mul(b, b) is b
    assert power(b, 3) is b
    assert power(b, HALF) is b
    assert power(mul(b, c), 2) is mul(b, c)
    assert mul(b, logical_not(b), x) is ZERO


def test_negative_powers_of_conditions() -> None:
    inverse = power(b, -1)
    assert value(inverse, b=0.0) == np.inf
    assert value(inverse, b=1.0) == 1
    assert mul(b, inverse) is b  # not 1: where b is 0 the product is 0
    assert mul(b, power(b, -HALF), x) is mul(b, x)
    assert power(inverse, -1) is b


def test_one_minus_a_condition_selects() -> None:
    assert mul(subtract(ONE, b), x) is mul(logical_not(b), x)
    assert mul(linear(3, [(-3, b)]), x) is mul(const(3), logical_not(b), x)
    assert where(subtract(ONE, b), x, y) is where(b, y, x)


def test_zero_and_one_are_conditions_and_numbers() -> None:
    assert mul(ONE, x) is x
    assert mul(ZERO, power(x, -1)) is ZERO
    assert where(ONE, x, y) is x
    assert where(ZERO, x, y) is y
    assert where(b, ONE, ZERO) is b
    assert where(b, ZERO, ONE) is logical_not(b)
    assert where(b, c, ZERO) is mul(b, c)
    assert where(b, x, x) is x


@pytest.mark.parametrize("number", [x, const(2), const(0.5), add(b, c)])
def test_a_number_is_no_condition(number: Expr) -> None:
    with pytest.raises(TypeError, match="a condition is needed"):
        where(number, x, y)
    with pytest.raises(TypeError, match="a condition is needed"):
        logical_not(number)


# -- long ones -----------------------------------------------------------------------------------------------


def test_long_sums_and_products_keep_value_and_guards() -> None:
    names = [f"v{n}" for n in range(3 * FLATTEN_LIMIT)]
    leaves = {n: 1.0 + k / 1000 for k, n in enumerate(names)} | {"b": 0.0, "x": np.inf}
    total: Expr = ZERO
    product: Expr = b
    for n in names:
        total = add(total, mul(const(2), real(n)))
        product = mul(product, real(n))
    assert value(total, **leaves) == pytest.approx(2 * sum(leaves[n] for n in names))
    assert value(mul(total, product, x), **leaves) == 0  # the guard stays in front of the infinite factor
    leaves |= {"b": 1.0, "x": 2.0}
    want = 2 * np.prod([leaves[n] for n in names])
    assert value(mul(product, x), **leaves) == pytest.approx(want)
    assert value(mul(x, product, power(product, -1)), **leaves) == pytest.approx(2.0)
    assert subtract(total, total) is ZERO


def test_many_arguments_at_once_are_one_node() -> None:
    leaves = [real(f"v{n}") for n in range(200)]
    total, product = add(*leaves), mul(*leaves)
    assert isinstance(total, Sum)
    assert len(total.terms) == 200
    assert isinstance(product, Product)
    assert len(product.factors) == 200


# -- rewriting -----------------------------------------------------------------------------------------------


def test_substitution_simplifies_anew() -> None:
    e = add(mul(x, power(y, 2)), call(OPERATIONS["equal"], x, y), less(x, z))
    (new,) = substitute([e], {x: y, z: y})
    assert new is add(power(y, 3), call(OPERATIONS["equal"], y, y))
    assert substitute([e], {}) == [e]
    assert substitute([add(x, y)], {x: y, y: x}) == [add(x, y)]
    (swapped,) = substitute([call(OPERATIONS["equal"], x, y)], {x: y, y: x})
    assert swapped is call(OPERATIONS["equal"], x, y)


def test_substitution_under_a_guard_may_leave_undefined_constants() -> None:
    e = where(less(ZERO, x), add(power(x, -1), sqrt(x), call(OPERATIONS["log"], x)), y)
    for number in (0, -1):
        (new,) = substitute([e], {x: const(number)})
        assert value(new, y=7.0) == 7
    (undefined,) = substitute([add(y, power(x, -1))], {x: ZERO})
    assert value(undefined, y=1.0) == np.inf
    (undefined,) = substitute([add(y, sqrt(x))], {x: const(-1)})
    assert np.isnan(value(undefined, y=1.0))


def test_variables_are_mapped() -> None:
    e = mul(add(x, y), power(x, 2))
    (new,) = map_variables([e], lambda v: real(v.key.name + "_"))
    assert new is mul(add(real("x_"), real("y_")), power(real("x_"), 2))
    assert {v.key for v in variables([e])} == {Leaf("x"), Leaf("y")}


def test_what_was_mapped_before_is_not_mapped_again() -> None:
    seen: list[str] = []

    def primed(v: Var) -> Expr:
        seen.append(v.key.name)
        return real(v.key.name + "_")

    done: dict[Expr, Expr] = {}
    inner = call(OPERATIONS["sin"], add(x, y))
    outer = mul(x, call(OPERATIONS["cos"], inner))
    map_variables([inner], primed, done)
    (new,) = map_variables([outer], primed, done)
    assert sorted(seen) == ["x", "y"]
    assert new is map_variables([outer], primed)[0]
