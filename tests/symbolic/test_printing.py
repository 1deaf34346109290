"""Text of expressions: Python's notation, of bounded length."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given

from optpy.symbolic.expr import Expr, add, call, const, linear, logical_not, logical_or, mul, negate, power, subtract
from optpy.symbolic.nodes import to_text
from optpy.symbolic.operations import OPERATIONS, equal, less, less_equal, sqrt
from tests.support.programs import BOOLEANS, REALS, Program, Undefined, boolean, build, programs, real
from tests.symbolic.test_selection import values

x, y, b, c = real("x"), real("y"), boolean("b"), boolean("c")


@pytest.mark.parametrize(
    ("e", "texts"),
    [
        (const(-3), {"-3"}),
        (const(Fraction(1, 2)), {"1/2"}),
        (linear(1, [(-1, x), (2, y)]), {"1 - x + 2*y", "1 + 2*y - x"}),
        (negate(x), {"-x"}),
        (mul(x, power(y, -1)), {"x*y**(-1)", "y**(-1)*x"}),
        (mul(x, add(x, y)), {"x*(x + y)", "x*(y + x)", "(x + y)*x", "(y + x)*x"}),
        (sqrt(add(x, y)), {"(x + y)**(1/2)", "(y + x)**(1/2)"}),
        (power(power(x, 3), Fraction(1, 3)), {"(x**3)**(1/3)"}),
        (logical_not(b), {"~b"}),
        (mul(logical_not(mul(b, c)), x), {"~(b & c)*x", "~(c & b)*x", "x*~(b & c)", "x*~(c & b)"}),
        (call(OPERATIONS["atan2"], x, subtract(x, y)), {"atan2(x, x - y)", "atan2(x, -y + x)"}),
        (less(x, y), {"x < y"}),
        (logical_not(equal(x, const(0))), {"~(x == 0)"}),
        (mul(x, less(add(x, y), const(1))), {"x*(x + y < 1)", "x*(y + x < 1)", "(x + y < 1)*x", "(y + x < 1)*x"}),
        (mul(b, less(x, y)), {"b & (x < y)", "(x < y) & b"}),
        (less(call(OPERATIONS["less"], x, y), x), {"(x < y) < x"}),
    ],
)
def test_notation(e: Expr, texts: set[str]) -> None:
    assert repr(e) in texts


class _Algebra:
    """Python's operators on expressions, to read a text back."""

    def __init__(self, e: Expr) -> None:
        self.e = e

    def __add__(self, other: object) -> _Algebra:
        return _Algebra(add(self.e, _expr(other)))

    def __radd__(self, other: object) -> _Algebra:
        return self + other

    def __sub__(self, other: object) -> _Algebra:
        return _Algebra(subtract(self.e, _expr(other)))

    def __rsub__(self, other: object) -> _Algebra:
        return _Algebra(subtract(_expr(other), self.e))

    def __mul__(self, other: object) -> _Algebra:
        return _Algebra(mul(self.e, _expr(other)))

    __rmul__ = __mul__

    def __neg__(self) -> _Algebra:
        return _Algebra(negate(self.e))

    def __pow__(self, exponent: float) -> _Algebra:
        return _Algebra(power(self.e, exponent))

    def __and__(self, other: object) -> _Algebra:
        return self * other

    def __lt__(self, other: object) -> _Algebra:
        return _Algebra(less(self.e, _expr(other)))

    def __le__(self, other: object) -> _Algebra:
        return _Algebra(less_equal(self.e, _expr(other)))

    def __gt__(self, other: object) -> _Algebra:  # of a number on the left
        return _Algebra(less(_expr(other), self.e))

    def __ge__(self, other: object) -> _Algebra:
        return _Algebra(less_equal(_expr(other), self.e))

    def __eq__(self, other: object) -> _Algebra:  # type: ignore[override]
        return _Algebra(equal(self.e, _expr(other)))

    __hash__ = object.__hash__

    def __invert__(self) -> _Algebra:
        return _Algebra(logical_not(self.e))


def _expr(value: object) -> Expr:
    return value.e if isinstance(value, _Algebra) else const(value)  # type: ignore[arg-type]


@given(programs())
def test_the_text_means_the_expression(program: Program) -> None:
    try:
        e = build(program)
    except Undefined:
        return
    names: dict[str, object] = {n: _Algebra(real(n)) for n in REALS}
    names |= {n: _Algebra(boolean(n)) for n in BOOLEANS}
    for name in OPERATIONS:
        names[name] = lambda *args, name=name: _Algebra(call(OPERATIONS[name], *map(_expr, args)))
    *statements, last = to_text(e).split("; ")
    for statement in statements:
        target, text = statement.split(" = ", 1)
        names[target] = eval(text, {}, names)
    point = {"x": 0.75, "y": -1.25, "z": 0.5, "u": 2.0, "a": 0.0, "b": 1.0, "c": 1.0}
    assert values([_expr(eval(last, {}, names))], point) == pytest.approx(values([e], point), nan_ok=True, rel=1e-6)


def test_shared_and_deep_expressions_have_short_texts() -> None:
    e: Expr = x
    for _ in range(60):  # 2**60 leaves if written out
        e = call(OPERATIONS["sin"], mul(e, add(e, y)))
    assert len(repr(e)) < 10_000
    assert "t0 = " in repr(e)


def test_or_reads_as_negated_and() -> None:
    assert repr(logical_or(b, c)) in {"~(~b & ~c)", "~(~c & ~b)"}
