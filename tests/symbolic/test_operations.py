"""Every row of the table of operations: partials against differences on its domain, simplifications."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from optpy.symbolic.expr import (
    ONE,
    ZERO,
    Const,
    Expr,
    Operation,
    add,
    call,
    const,
    linear,
    logical_not,
    make_call,
    mul,
    negate,
    power,
    subtract,
)
from optpy.symbolic.interpret import evaluate
from optpy.symbolic.operations import OPERATIONS, absolute, equal, less, less_equal, sqrt, stop_gradient
from tests.support.programs import Leaf, boolean, real

SAMPLES = 40
CONVENTIONS = {"stop_gradient": 0.0, "not": 0.0}
"""Operations whose partial is a convention, not their slope."""

arguments = [real("x"), real("y")]
x, y = arguments
b = boolean("a")


def ridders(f: Callable[[float], float], at: float, step: float = 0.02) -> tuple[float, float]:
    """The derivative by Richardson extrapolation of central differences, and its error.

    Reference: Ridders, "Accurate computation of F'(x) and F'(x)F''(x)", 1982.
    """
    best, error = np.nan, np.inf
    previous: list[float] = []
    for k in range(10):
        h = step / 1.6**k
        row = [(f(at + h) - f(at - h)) / (2 * h)]
        for m, old in enumerate(previous):
            scale = 1.6 ** (2 * (m + 1))
            row.append((scale * row[m] - old) / (scale - 1))
            change = max(abs(row[-1] - row[m]), abs(row[-1] - old))
            if change < error:
                best, error = row[-1], change
        previous = row
    return best, error


def samples(op: Operation) -> list[tuple[float, ...]]:
    """Points inside the domain, away from its border and from kinks."""
    random = np.random.default_rng(0)
    points: list[tuple[float, ...]] = []
    while len(points) < SAMPLES:
        point = tuple(float(random.uniform(low + 0.03, high - 0.03)) for low, high in op.domain)
        jumps = [abs(point[0] - round(point[0])), abs(point[0] - (point[1] if len(point) > 1 else 0))]
        if op.smooth or min(jumps) > 0.05:
            points.append(point)
    return points


def numeric(e: Expr, point: tuple[float, ...]) -> float:
    values = dict(zip(("x", "y"), point, strict=False))
    return float(evaluate([e], lambda key: values[key.name])[0])


def check_partials(op: Operation) -> None:
    assert op.domain, "a row must say on which interval each argument is checked"
    assert len(op.domain) == op.arity
    assert all(low < high for low, high in op.domain)
    partials = op.partials(*arguments[: op.arity])
    assert len(partials) == op.arity
    for point in samples(op):
        for n, partial in enumerate(partials):

            def along(t: float, n: int = n, point: tuple[float, ...] = point) -> float:
                return float(op.evaluate(*point[:n], t, *point[n + 1 :]))

            want, error = (CONVENTIONS[op.name], 0.0) if op.name in CONVENTIONS else ridders(along, point[n])
            assert error < 1e-6 * (1 + abs(want)), "the domain comes too close to a singularity"
            assert numeric(partial, point) == pytest.approx(want, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("op", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_partials_match_differences(op: Operation) -> None:
    check_partials(op)


@pytest.mark.parametrize(
    "change",
    [
        {"domain": ()},
        {"domain": ((0.5, 2.0), (0.5, 2.0))},
        {"partials": lambda x: (negate(call(OPERATIONS["cos"], x)),)},
        {"partials": lambda x: ()},
    ],
    ids=["no domain", "wrong domain", "wrong sign", "no partials"],
)
def test_a_bad_row_is_caught(change: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        check_partials(replace(OPERATIONS["sin"], **change))


@pytest.mark.parametrize("op", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_rows_are_consistent(op: Operation) -> None:
    assert OPERATIONS[op.name] is op
    for point in samples(op):
        value = op.evaluate(*point)
        assert np.isfinite(value)
        assert not op.boolean or op.name == "not" or value in (0.0, 1.0)
        array = op.evaluate(*(np.full((2, 3), p) for p in point))
        assert np.array_equal(array, np.full((2, 3), value))
    if op.boolean:
        assert not op.smooth


@pytest.mark.parametrize("op", [op for op in OPERATIONS.values() if op.total], ids=lambda op: op.name)
def test_total_operations_are_finite_everywhere(op: Operation) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 1e-300, 1e300, -1e300, 0.5, np.pi / 2]
    for first in values:
        for second in values if op.arity == 2 else [0.0]:
            assert np.isfinite(op.evaluate(*(first, second)[: op.arity]))


@pytest.mark.parametrize("op", [op for op in OPERATIONS.values() if op.name != "not"], ids=lambda op: op.name)
def test_simplification_keeps_the_value(op: Operation) -> None:
    forms = [
        x,
        negate(x),
        linear(0, [(-2, x)]),
        subtract(y, x),
        subtract(x, y),
        mul(x, y),
        b,
        ZERO,
        ONE,
        const(2),
    ]
    cases = [(f, g) for f in forms for g in forms] if op.arity == 2 else [(f,) for f in forms]
    random = np.random.default_rng(1)
    for case in cases:
        try:
            simplified = call(op, *case)
        except (ZeroDivisionError, ValueError):
            assert op.name == "pow"
            continue
        bare = make_call(op, case)
        for _ in range(5):
            value = {"x": random.uniform(-2, 2), "y": random.uniform(-2, 2), "a": float(random.integers(2))}

            def lookup(key: Leaf, value: dict[str, float] = value) -> float:
                return value[key.name]

            got, want = (float(v) for v in evaluate([simplified, bare], lookup))
            assert got == pytest.approx(want, rel=1e-12, nan_ok=True)


def test_constants_are_folded() -> None:
    assert call(OPERATIONS["cos"], ZERO) is ONE
    assert less(ZERO, ONE) is ONE
    assert call(OPERATIONS["maximum"], const(2), const(3)) is const(3)
    assert isinstance(call(OPERATIONS["asin"], const(2)), Expr)  # NaN: left for the run to meet
    assert not isinstance(call(OPERATIONS["asin"], const(2)), Const)


def test_parity_makes_one_node_of_two() -> None:
    for name in ("sin", "tan", "atan", "sinh", "tanh", "asinh", "sign", "cbrt"):
        assert call(OPERATIONS[name], negate(x)) is negate(call(OPERATIONS[name], x))
    for name in ("cos", "cosh", "abs"):
        assert call(OPERATIONS[name], subtract(y, x)) is call(OPERATIONS[name], subtract(x, y))


def test_absolute_value() -> None:
    assert absolute(linear(0, [(-3, x)])) is linear(0, [(3, absolute(x))])
    assert absolute(absolute(x)) is absolute(x)
    assert absolute(b) is b
    assert power(absolute(subtract(y, x)), 2) is power(subtract(x, y), 2)
    assert power(absolute(mul(x, y)), 2) is mul(power(x, 2), power(y, 2))
    assert mul(absolute(x), absolute(x)) is power(x, 2)
    assert power(absolute(x), 3) is not power(x, 3)


def test_comparisons() -> None:
    assert less(x, x) is ZERO
    assert less_equal(x, x) is not ONE  # false for NaN
    assert equal(x, x) is not ONE
    assert equal(b, ONE) is b
    assert equal(b, ZERO) is logical_not(b)
    assert less(ZERO, b) is b
    assert less(b, ONE) is logical_not(b)
    assert less_equal(ONE, b) is b
    assert less_equal(b, ONE) is ONE
    assert equal(b, const(2)) is ZERO


def test_constant_exponents_are_no_calls() -> None:
    assert call(OPERATIONS["pow"], x, const(3)) is power(x, 3)
    assert call(OPERATIONS["pow"], x, const(0.5)) is sqrt(x)
    assert power(x, const(0)) is ONE


@pytest.mark.parametrize(
    ("point", "want"),
    [
        ((0.0, 2.0), (0.0, 0.0)),
        ((0.0, 1.0), (1.0, 0.0)),
        ((0.0, 0.0), (0.0, 0.0)),
        ((2.0, 0.0), (0.0, np.log(2))),
    ],
)
def test_power_at_the_edge_of_its_domain(point: tuple[float, float], want: tuple[float, float]) -> None:
    partials = OPERATIONS["pow"].partials(x, y)
    assert tuple(numeric(p, point) for p in partials) == pytest.approx(want)


@pytest.mark.parametrize(
    ("name", "point", "want"),
    [
        ("cbrt", (0.0,), (np.inf,)),
        ("cbrt", (-8.0,), (1 / 12,)),
        ("log1p", (0.0,), (1.0,)),
        ("log1p", (-1.0,), (np.inf,)),
        ("expm1", (0.0,), (1.0,)),
        ("hypot", (0.0, 0.0), (np.nan, np.nan)),
        ("hypot", (0.0, -2.0), (0.0, -1.0)),
        ("hypot", (3e200, 4e200), (0.6, 0.8)),
    ],
)
def test_partials_at_special_points(name: str, point: tuple[float, ...], want: tuple[float, ...]) -> None:
    op = OPERATIONS[name]
    found = tuple(numeric(p, point) for p in op.partials(*arguments[: op.arity]))
    assert found == pytest.approx(want, nan_ok=True)


def test_a_length_is_one_node() -> None:
    hypot = OPERATIONS["hypot"]
    assert call(hypot, x, y) is call(hypot, y, x)
    assert call(hypot, negate(x), y) is call(hypot, x, negate(y))
    assert call(hypot, ZERO, y) is absolute(y)
    assert call(hypot, const(3), const(-4)) is const(5)


@pytest.mark.parametrize("name", ["log1p", "expm1", "cbrt"])
def test_small_arguments_lose_no_digits(name: str) -> None:
    want = 1e-5 if name == "cbrt" else 1e-15
    assert numeric(call(OPERATIONS[name], x), (1e-15,)) == pytest.approx(want, rel=2e-15)


@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_at_a_tie_one_argument_takes_the_whole_slope(name: str) -> None:
    partials = OPERATIONS[name].partials(x, y)
    assert sum(numeric(p, (1.5, 1.5)) for p in partials) == 1.0
    assert call(OPERATIONS[name], x, x) is x


def test_stop_gradient_keeps_conditions_conditions() -> None:
    assert stop_gradient(b) is b
    assert stop_gradient(const(3)) is const(3)
    assert stop_gradient(stop_gradient(x)) is stop_gradient(x)
    assert stop_gradient(x) is not x


def test_wrong_number_of_arguments() -> None:
    with pytest.raises(TypeError, match="sin takes 1 arguments, got 2"):
        call(OPERATIONS["sin"], x, y)


def test_constant_powers_that_do_not_exist() -> None:
    with pytest.raises(ZeroDivisionError):
        power(ZERO, -1)
    with pytest.raises(ValueError, match="not real"):
        power(const(-2), Fraction(1, 2))
    with pytest.raises(ValueError, match="not finite"):
        power(const(10), 1000)
    assert power(const(-2), -3) is const(Fraction(-1, 8))
    assert add(power(const(4), 0.5), x) is add(const(2), x)
