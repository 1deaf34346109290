"""Equal expressions in different forms: which meet, which must not, and that values stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from optpy.symbolic.derivative import Derivative
from optpy.symbolic.expr import Call, Expr, add, call, linear, logical_not, mul, power, subtract, where
from optpy.symbolic.factor import factor
from optpy.symbolic.interpret import evaluate, rounding
from optpy.symbolic.operations import OPERATIONS, less, sqrt, stop_gradient, whole
from optpy.symbolic.order import topological
from optpy.symbolic.value_numbers import ValueNumbers
from tests.support.programs import Program, Undefined, boolean, build, points, programs, real

x, y, z, u = real("x"), real("y"), real("z"), real("u")
a, b = boolean("a"), boolean("b")
square, expanded = power(add(x, y), 2), add(power(x, 2), linear(0, [(2, mul(x, y))]), power(y, 2))
inside, outside = mul(subtract(x, y), add(x, y)), subtract(power(x, 2), power(y, 2))


def one_form(*roots: Expr) -> list[Expr]:
    return ValueNumbers().in_one_form(roots)


def sin(e: Expr) -> Expr:
    return call(OPERATIONS["sin"], e)


# -- what meets ----------------------------------------------------------------------------------------------


def test_forms_of_a_polynomial_become_the_one_of_fewest_operations() -> None:
    assert one_form(expanded, square) == [square, square]
    assert one_form(mul(x, add(y, z)), add(mul(x, y), mul(x, z))) == [mul(x, add(y, z))] * 2
    assert one_form(outside, inside) == [inside, inside]


def test_functions_of_equal_arguments_meet() -> None:
    assert one_form(sin(expanded), sqrt(expanded), sin(square), sqrt(square)) == [sin(square), sqrt(square)] * 2
    assert one_form(less(expanded, z), less(square, z)) == [less(square, z)] * 2
    nested = [sin(add(z, power(sin(e), 2))) for e in (expanded, square)]
    assert one_form(*nested) == [nested[1]] * 2


def test_odd_and_even_functions_of_negatives_meet() -> None:
    for name in ("sin", "cos"):
        first, second = (call(OPERATIONS[name], e) for e in (linear(0, [(-1, outside)]), inside))
        calls = [e for e in topological(one_form(first, second)) if isinstance(e, Call)]
        assert len(calls) == 1


def test_quotients_by_the_same_meet() -> None:
    q = power(linear(1, [(1, power(z, 2))]), -1)
    together, apart = mul(add(x, y), q), add(mul(x, q), mul(y, q))
    assert one_form(apart, together) == [together, together]
    by_forms = [power(linear(1, [(1, e)]), -1) for e in (expanded, square)]
    assert one_form(*by_forms) == [by_forms[1]] * 2


def test_parts_of_larger_expressions_are_replaced() -> None:
    first, second = one_form(add(sin(expanded), z), mul(sin(square), z))
    assert first is add(sin(square), z)
    assert second is mul(sin(square), z)


# -- what must not -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (add(x, y), mul(outside, power(subtract(x, y), -1))),
        (
            sin(x),
            sin(add(x, mul(add(y, z), power(u, -1)), mul(y, linear(0, [(-1, power(u, -1))])), mul(z, power(u, -1)))),
        ),
        (sin(x), sin(stop_gradient(x))),
        (mul(x, y), whole(mul(x, y))),
        (logical_not(a), linear(1, [(-1, a)])),
        (subtract(mul(linear(1, [(1, x)]), linear(1, [(-1, x)])), x), linear(1, [(-1, power(x, 2)), (-1, x)])),
    ],
)
def test_these_stay_apart(first: Expr, second: Expr) -> None:
    assert one_form(first, second) == [first, second]


def test_what_rounds_less_is_not_replaced_by_what_has_fewer_operations() -> None:
    exact, short = mul(linear(1, [(1, x)]), linear(1, [(-1, x)])), linear(1, [(-1, power(x, 2))])
    assert one_form(exact, short) == [exact, short]


def test_a_condition_selects_what_it_did() -> None:
    over = power(z, -1)
    guarded, bare = mul(a, over, add(x, y)), mul(over, add(mul(a, u), mul(u, u)))
    selected = where(a, mul(x, over), mul(y, over))
    joined = mul(add(mul(a, x), mul(logical_not(a), y)), over)
    assert one_form(guarded, bare, selected, joined) == [guarded, bare, selected, joined]


def test_an_arm_that_is_not_taken_may_divide_by_zero() -> None:
    form = add(mul(x, power(z, -1)), mul(y, power(z, -1)))
    other = mul(add(x, y), power(z, -1))
    roots = one_form(where(a, form, x), where(a, other, y), where(a, sin(form), y), where(b, sin(other), x))
    leaves = {"x": 1.0, "y": 2.0, "z": 0.0, "a": 0.0, "b": 0.0}
    assert [float(v) for v in evaluate(roots, lambda k: leaves[k.name])] == [1.0, 2.0, 2.0, 1.0]


# -- values --------------------------------------------------------------------------------------------------


@given(programs(), programs(), points())
def test_values_stay(p: Program, q: Program, leaves: dict[str, float]) -> None:
    """Of expressions, their products, derivatives and factored forms: finite values stay, but for rounding."""
    try:
        e, f = build(p), build(q)
        sums = [mul(add(e, f), add(e, x)), add(mul(e, e), mul(e, x), mul(f, e), mul(f, x)), power(add(e, f), 2)]
        d = Derivative([e, *sums], [x, y])
        roots = [e, f, *sums, add(power(e, 2), linear(0, [(2, mul(e, f))]), power(f, 2))]
        roots += [d.partial(r, v) for r in (e, *sums) for v in (x, y)]
    except (Undefined, ZeroDivisionError, ValueError):  # constants that are not finite
        return
    roots += factor(roots)
    kept = one_form(*roots)
    before, after = (evaluate(r, lambda k: leaves[k.name]) for r in (roots, kept))
    bounds = [rounding(r, lambda k: leaves[k.name], lambda k: 0.0) for r in (roots, kept)]
    for value, new, *bound in zip(before, after, *bounds, strict=True):
        if np.isfinite(value) and np.isfinite(bound[0]) and abs(value) < 1e100:
            assert abs(new - value) <= 4 * (bound[0] + bound[1]) + 1e-300


def test_many_forms_take_one_walk() -> None:
    """A long chain, each link in two forms."""
    first: Expr = x
    second: Expr = x
    for _ in range(300):
        first, second = (
            sin(power(add(first, y), 2)),
            sin(add(power(second, 2), linear(0, [(2, mul(second, y))]), power(y, 2))),
        )
    kept = one_form(first, second)
    assert len(topological(kept)) < len(topological([first, second])) - 30
