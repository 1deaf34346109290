"""Quotients of high powers: the same value, in parts that stay in range."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from optpy.ir import Scalar
from optpy.kernels.codegen.passes.in_order import in_order
from optpy.kernels.codegen.passes.split_quotients import Powers, split_quotient, split_quotients
from optpy.symbolic.expr import Expr, Number, mul, power, var
from tests.kernels.codegen.passes.expressions import assert_computes_the_same, counts, through

x, y, z, w = (var(Scalar(name)) for name in "xyzw")
VALUES: dict[Expr, float] = {x: 1.1, y: 0.7, z: 1.3, w: 0.4}


def value(powers: Powers) -> float:
    return float(math.prod(VALUES[base] ** float(exponent) for base, exponent in powers))


CASES: list[tuple[tuple[Expr, Number], ...]] = [
    ((x, 4), (z, -5)),
    ((x, 2), (y, 1), (w, 1), (z, -5)),
    ((x, 1), (y, 1), (z, -3)),
    ((x, 1), (z, -7)),
    ((x, 2), (y, 2), (z, Fraction(-5, 2))),
    ((x, Fraction(3, 2)), (y, 1), (z, -3), (w, -2)),
    ((x, 40), (y, 3), (z, -50)),
    ((x, 2), (y, Fraction(1, 3)), (z, -3), (w, Fraction(-4, 3))),
    ((x, 1.5), (y, 70), (z, -70)),
]


@pytest.mark.parametrize("powers", CASES)
def test_the_parts_make_up_the_whole(powers: Powers) -> None:
    parts = split_quotient(powers)
    assert math.prod(value(part) ** n for part, n in parts) == pytest.approx(value(powers), rel=1e-12)
    exponents: dict[Expr, Number] = dict.fromkeys((b for b, _ in powers), 0)
    for part, n in parts:
        for base, exponent in part:
            exponents[base] += n * exponent
    assert exponents == dict(powers)


@pytest.mark.parametrize("powers", [((x, 1), (z, -1)), ((x, 6), (z, -2)), ((x, 5),), ((z, -5),), ((x, 1), (z, -5))])
def test_what_cannot_or_need_not_be_split_stays(powers: Powers) -> None:
    assert split_quotient(powers) == [(powers, 1)]


def test_numerators_and_denominators_are_dealt_out_evenly() -> None:
    assert split_quotient(((x, 20), (z, -20))) == [(((x, 2), (z, -2)), 10)]
    parts = split_quotient(((x, 2), (y, 1), (w, 1), (z, -5)))
    for part, _ in parts:
        assert sum(e for _, e in part if e > 0) <= 2
        assert sum(e for _, e in part if e < 0) >= -2


def test_products_become_products_of_quotients() -> None:
    e = mul(power(x, 4), power(z, -5))
    (found,) = through([in_order, split_quotients], e)
    parts = [counts(part) for part in found.children]
    assert [part["power"] for part in parts] == [2, 1, 1]  # x**2 / z**2, x / z**2, x / z
    assert_computes_the_same([e], [found])
