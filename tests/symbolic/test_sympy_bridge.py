"""To SymPy and back; SymPy's values and derivatives as an independent opinion."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optpy.symbolic.derivative import Derivative
from optpy.symbolic.expr import (
    ONE,
    ZERO,
    Expr,
    add,
    call,
    const,
    logical_and,
    logical_not,
    logical_or,
    mul,
    negate,
    power,
    subtract,
    where,
)
from optpy.symbolic.latex import to_latex
from optpy.symbolic.operations import OPERATIONS, absolute, equal, less, less_equal, sqrt, stop_gradient
from optpy.symbolic.sympy_bridge import from_sympy, real_symbol, to_sympy
from tests.support.programs import (
    BOOLEANS,
    REALS,
    Program,
    Run,
    Undefined,
    boolean,
    build,
    guarded_sums,
    points,
    programs,
    real,
    run,
)
from tests.symbolic.test_selection import values

LEAVES: dict[str, Expr] = {**{n: real(n) for n in REALS}, **{n: boolean(n) for n in BOOLEANS}}
SYMBOLS = {n: sympy.Symbol(n, real=True) for n in LEAVES}
VARIABLES: dict[Any, Expr] = {SYMBOLS[n]: e for n, e in LEAVES.items()}
x, y, z, _, a, b, c = LEAVES.values()


def number(e: Any, point: Mapping[str, float]) -> float:
    result = e.subs({SYMBOLS[n]: sympy.Rational(Fraction(v)) for n, v in point.items()}).evalf(30)
    return float(result) if result.is_real else math.nan


ROUND_TRIPS: list[Expr] = [
    const(Fraction(2, 3)),
    add(x, mul(const(0.1), y)),
    mul(x, power(y, -2), sqrt(z)),
    power(add(power(x, 2), power(y, 2)), Fraction(-3, 2)),
    absolute(x),
    where(a, x, y),
    where(less(ZERO, z), power(z, -1), ZERO),
    where(logical_and(a, b), sqrt(x), mul(const(2), y)),
    where(a, add(x, y), where(b, x, negate(y))),
    where(logical_or(a, equal(x, y), b), x, ZERO),
    mul(x, a, b),
    add(a, x),
    add(mul(a, x), mul(b, y), mul(logical_not(a), z)),
    subtract(where(a, x, y), where(b, y, x)),
    mul(logical_not(a), equal(x, y), z),
    stop_gradient(mul(x, y)),
    call(OPERATIONS["pow"], x, y),
    *(call(op, *(x, y)[: op.arity]) for op in OPERATIONS.values() if not op.boolean),
]


@pytest.mark.parametrize("e", ROUND_TRIPS, ids=repr)
def test_round_trip_gives_the_same_node(e: Expr) -> None:
    assert from_sympy(to_sympy(e), VARIABLES) is e


@settings(max_examples=60)
@given(st.one_of(programs(), guarded_sums()), points())
def test_round_trip_keeps_the_value(program: Program, point: dict[str, float]) -> None:
    record = Run()
    try:
        want = run(program, point, record)
        e = build(program)
    except Undefined:
        assume(False)
    assume(record.largest < 1e8)
    theirs = to_sympy(e)
    # SymPy works out 1/0 and log(-1) also in an arm that is not taken.
    assume(not theirs.has(sympy.zoo, sympy.nan, sympy.I))
    (got,) = values([from_sympy(theirs, VARIABLES)], point)
    assert got == pytest.approx(want, rel=1e-7, abs=1e-9 * record.largest**2)


@settings(max_examples=40)
@given(programs(rough=False, select=False), points())
def test_sympy_agrees_on_value_and_derivative(program: Program, point: dict[str, float]) -> None:
    record = Run()
    try:
        run(program, point, record)
        e = build(program)
    except Undefined:
        assume(False)
    assume(not record.singular)
    assume(record.largest < 1e4)
    theirs = to_sympy(e)
    d = Derivative([e], [real("x"), real("y")])
    ours = values([e, d.partial(e, real("x")), d.partial(e, real("y"))], point)
    assume(all(map(math.isfinite, ours)))
    tolerance = 1e-8 * record.largest**2
    opinions = [theirs, sympy.diff(theirs, SYMBOLS["x"]), sympy.diff(theirs, SYMBOLS["y"])]
    for got, opinion in zip(ours, opinions, strict=True):
        want = number(opinion, point)
        if math.isfinite(want):
            assert got == pytest.approx(want, rel=1e-7, abs=tolerance * (1 + abs(want)))


def test_selections_are_readable() -> None:
    sa, sb = sympy.Ne(SYMBOLS["a"], 0), sympy.Ne(SYMBOLS["b"], 0)
    sx, sy, sz = (SYMBOLS[n] for n in "xyz")
    assert to_sympy(where(a, x, y)) == sympy.Piecewise((sx, sa), (sy, True))
    assert to_sympy(where(logical_not(a), x, y)) == sympy.Piecewise((sy, sa), (sx, True))
    assert to_sympy(mul(a, b, x)) == sympy.Piecewise((sx, sympy.And(sa, sb)), (0, True))
    assert to_sympy(less(x, y)) == sympy.Piecewise((1, sx < sy), (0, True))
    assert to_sympy(where(less(ZERO, z), power(z, -1), ZERO)) == sympy.Piecewise((1 / sz, sz > 0), (0, True))
    assert to_sympy(add(a, ONE)) == SYMBOLS["a"] + 1
    assert to_sympy(power(x, Fraction(1, 2))) == sympy.sqrt(sx)


def test_sympy_turns_comparisons_around() -> None:
    # For numbers that is the same; we keep both, as they differ for NaN.
    assert from_sympy(to_sympy(logical_not(less(x, y))), VARIABLES) is where(less_equal(y, x), ONE, ZERO)


def test_stopped_gradients_have_no_slope_in_sympy() -> None:
    theirs = to_sympy(mul(x, stop_gradient(mul(x, y))))
    assert sympy.diff(theirs, SYMBOLS["x"]) == to_sympy(stop_gradient(mul(x, y)))
    assert to_sympy(stop_gradient(x)).func is to_sympy(stop_gradient(y)).func


@pytest.mark.parametrize("at", [-8.0, 0.3])
def test_functions_that_sympy_lacks_have_values_and_derivatives(at: float) -> None:
    sx, sy = SYMBOLS["x"], SYMBOLS["y"]
    for name, args in (("cbrt", (x,)), ("hypot", (x, y)), ("expm1", (x,)), ("log1p", (power(x, 2),))):
        e = call(OPERATIONS[name], *args)
        ours = values([e, Derivative([e], [real("x")]).partial(e, real("x"))], {"x": at, "y": 2.0})
        theirs = to_sympy(e)
        found = [float(f.subs({sx: at, sy: 2.0}).evalf()) for f in (theirs, sympy.diff(theirs, sx))]
        assert found == pytest.approx(ours)


def test_leaves_may_be_indexed() -> None:
    image, i, j = (
        sympy.IndexedBase("X", real=True),
        sympy.Symbol("i", integer=True),
        sympy.Symbol("j", integer=True),
    )
    theirs = to_sympy(power(x, 2), lambda key: image[i, j + 1])
    assert theirs == image[i, j + 1] ** 2
    assert from_sympy(theirs, {image[i, j + 1]: x}) is power(x, 2)


def test_from_sympy_knows_other_spellings() -> None:
    sx, sy = SYMBOLS["x"], SYMBOLS["y"]
    assert from_sympy(sx > sy, VARIABLES) is less(y, x)
    assert from_sympy(sx >= sy, VARIABLES) is less_equal(y, x)
    assert from_sympy(sympy.Ne(sx, sy), VARIABLES) is logical_not(equal(x, y))
    assert from_sympy(sympy.ceiling(sx), VARIABLES) is negate(call(OPERATIONS["floor"], negate(x)))
    assert from_sympy(sympy.Max(sx, sy, 3), VARIABLES).children
    assert from_sympy(sympy.pi, VARIABLES) is const(math.pi)
    assert from_sympy(sympy.Or(sx > 1, sy > 1), VARIABLES) is logical_or(less(ONE, x), less(ONE, y))
    assert from_sympy(sympy.ITE(sx > 0, sy > 0, sy > 1), VARIABLES).boolean
    assert from_sympy(sympy.true, VARIABLES) is ONE
    assert from_sympy(2, VARIABLES) is const(2)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (sympy.Symbol("unknown"), "the symbol unknown is not in variables"),
        (sympy.gamma(SYMBOLS["x"]), "gamma has no counterpart"),
        (sympy.Piecewise((SYMBOLS["x"], SYMBOLS["x"] > 0)), "what holds otherwise"),
        (sympy.oo, "not a finite real number"),
        (sympy.zoo, "not a finite real number"),
        (sympy.I * SYMBOLS["x"], "no counterpart"),
    ],
    ids=str,
)
def test_what_cannot_come_back(bad: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_sympy(bad, VARIABLES)


def test_latex() -> None:
    assert to_latex(power(x, 2)) == "x^{2}"
    assert to_latex(mul(less(ZERO, z), power(z, -1))) == r"\left[z > 0\right] \, \frac{1}{z}"
    assert to_latex(mul(a, add(x, y))) == r"\left[a \neq 0\right] \, \left(x + y\right)"
    assert to_latex(less(x, y)) == r"\left[x < y\right]"
    assert to_latex(where(a, x, y)).startswith(r"\begin{cases}")
    assert to_latex(x, lambda key: sympy.Symbol(rf"\hat{{{key}}}")) == r"\hat{x}"
    assert to_latex(mul(const(0.5), x), fold_short_frac=True) == "x / 2"


def test_the_default_symbol_is_real() -> None:
    assert real_symbol("X[i]").is_real


def test_sympy_is_imported_when_needed_only() -> None:
    program = "import sys, optpy.symbolic.sympy_bridge; sys.exit('sympy' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
