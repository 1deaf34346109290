"""``where`` is selection: an arm that is not taken never contributes, in value or derivative."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from optpy.symbolic.derivative import Derivative
from optpy.symbolic.expr import (
    ONE,
    ZERO,
    Expr,
    Var,
    add,
    call,
    const,
    logical_and,
    logical_not,
    mul,
    power,
    subtract,
    where,
)
from optpy.symbolic.factor import factor
from optpy.symbolic.interpret import evaluate
from optpy.symbolic.operations import OPERATIONS, equal, less, less_equal, sqrt, stop_gradient
from tests.support.programs import boolean, real

x, y, z, u = real("x"), real("y"), real("z"), real("u")
a, b, c = boolean("a"), boolean("b"), boolean("c")
inverse = power(z, -1)
log = call(OPERATIONS["log"], z)


def values(roots: list[Expr], leaves: Mapping[str, float]) -> list[float]:
    return [float(v) for v in evaluate(roots, lambda key: leaves[key.name])]


def value_and_slopes(e: Expr, wrt: list[Var], leaves: Mapping[str, float]) -> list[float]:
    """The value and the slopes by partials, forward and backward, raw and factored, which must all agree."""
    d = Derivative([e], wrt)
    partials = [d.partial(e, v) for v in wrt]
    jvps = [d.jvp(e, {v: ONE}) for v in wrt]
    adjoint = d.adjoint(e, ONE)
    adjoints = [adjoint.get(v, ZERO) for v in wrt]
    result = values([e, *partials], leaves)
    for form in ([e, *jvps], [e, *adjoints], factor([e, *partials]), factor([e, *jvps])):
        assert values(form, leaves) == pytest.approx(result, nan_ok=True)
    return result


SAFE: dict[str, tuple[Expr, dict[str, float], list[float]]] = {
    "1/z at 0": (where(less(ZERO, z), inverse, ZERO), {"z": 0.0}, [0, 0]),
    "1/z at 2": (where(less(ZERO, z), inverse, ZERO), {"z": 2.0}, [0.5, -0.25]),
    "else arm": (where(equal(z, ZERO), const(7), inverse), {"z": 0.0}, [7, 0]),
    "log of a negative": (where(less(ZERO, z), log, z), {"z": -2.0}, [-2, 1]),
    "root of a negative": (where(less(ZERO, z), sqrt(z), ZERO), {"z": -1.0}, [0, 0]),
    "root at 0": (where(less(ZERO, z), sqrt(z), ZERO), {"z": 0.0}, [0, 0]),
    "nested": (
        where(less(ZERO, z), where(less(z, ONE), inverse, power(subtract(z, ONE), -1)), const(3)),
        {"z": 0.0},
        [3, 0],
    ),
    "nested, inner": (
        where(less(ZERO, z), where(less_equal(z, ONE), inverse, power(subtract(z, ONE), -1)), const(3)),
        {"z": 1.0},
        [1, -1],
    ),
    "same condition twice": (
        where(less(ZERO, z), where(less(ZERO, z), inverse, log), mul(const(2), z)),
        {"z": 0.0},
        [0, 2],
    ),
    "root of a guarded product": (sqrt(where(less(ZERO, z), mul(z, z, inverse), ZERO)), {"z": -4.0}, [0, 0]),
    "power of a guarded quotient": (power(where(less(ZERO, z), inverse, ZERO), 2), {"z": 0.0}, [0, 0]),
    "product with a guard": (mul(where(less(ZERO, z), inverse, ZERO), inverse, z), {"z": 0.0}, [0, 0]),
    "inside a function": (call(OPERATIONS["sin"], where(less(ZERO, z), inverse, z)), {"z": 0.0}, [0, 1]),
    "function outside, guarded": (
        where(less(ZERO, z), call(OPERATIONS["exp"], inverse), ZERO),
        {"z": 0.0},
        [0, 0],
    ),
    "stopped": (where(less(ZERO, z), stop_gradient(inverse), z), {"z": 0.0}, [0, 1]),
    "in a sum": (
        add(where(less(ZERO, z), inverse, ZERO), where(less(z, ZERO), inverse, z)),
        {"z": 0.0},
        [0, 1],
    ),
    "maximum": (where(less(ZERO, z), call(OPERATIONS["maximum"], inverse, log), z), {"z": 0.0}, [0, 1]),
}


@pytest.mark.parametrize(("e", "leaves", "want"), SAFE.values(), ids=SAFE.keys())
def test_arms_that_are_not_taken_do_not_contribute(e: Expr, leaves: dict[str, float], want: list[float]) -> None:
    assert value_and_slopes(e, [z], leaves) == pytest.approx(want)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_stay_behind_their_guards(bad: float) -> None:
    leaves = {"x": bad, "y": 2.0, "a": 0.0, "b": 0.0, "c": 1.0}
    for e in (
        where(a, x, ZERO),
        add(mul(a, x), mul(b, x)),
        add(mul(a, x), mul(a, y)),
        add(mul(a, x, y), mul(b, x), mul(a, b, x, x)),
        where(a, x, where(b, x, ZERO)),
        where(logical_and(a, b), mul(x, y), where(a, subtract(x, y), mul(b, x))),
        mul(where(a, x, ZERO), add(x, y)),
        power(where(a, x, ZERO), 2),
        sqrt(add(mul(a, x), mul(a, y))),
        where(logical_not(c), x, ZERO),
    ):
        raw, factored = values([e, *factor([e])], leaves)
        assert raw == 0
        assert factored == 0


def test_factoring_shares_across_guards_only_what_is_finite() -> None:
    # x may be infinite where both conditions fail; u may not.
    guarded = add(mul(a, x, y), mul(b, x, z))
    assert factor([guarded]) == [guarded]
    (shared,) = factor([add(mul(a, u, y), mul(b, u, z))])
    assert shared is mul(u, add(mul(a, y), mul(b, z)))
    # Under one condition anything is shared.
    (inside,) = factor([add(mul(a, x, y), mul(a, x, z))])
    assert inside is mul(a, x, add(y, z))


def test_arms_selected_by_several_conditions() -> None:
    e = where(logical_and(a, b), inverse, where(c, log, x))
    for bits in np.ndindex(2, 2, 2):
        leaves = {"z": 0.0, "x": 5.0} | dict(zip("abc", map(float, bits), strict=True))
        value, slope = value_and_slopes(e, [x], leaves)
        if bits[:2] != (1, 1) and not bits[2]:
            assert (value, slope) == (5, 1)


def test_conditions_have_no_slope() -> None:
    e = mul(less(x, y), x)
    assert value_and_slopes(e, [x, y], {"x": 1.0, "y": 2.0}) == [1, 1, 0]
    assert Derivative([less(x, y)], [x, y]).variables(less(x, y)) == []
    assert Derivative([e], [x, y]).variables(e) == [x]


def test_arrays_select_element_by_element() -> None:
    z_values = np.array([0.0, 2.0, -1.0])
    e = where(less(ZERO, z), inverse, ZERO)
    (got,) = evaluate([e], lambda key: z_values)
    np.testing.assert_array_equal(got, [0, 0.5, 0])
