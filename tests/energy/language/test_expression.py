from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import optpy as op
from optpy.symbolic.derivative import Derivative
from optpy.symbolic.interpret import evaluate
from optpy.symbolic.traverse import variables

N = op.dims("N")
i = op.indices(N)
X, V = op.Unknown("X", (N,)), op.Unknown("V", (N,), 2)
V3, W3 = op.Unknown("V3", (N,), 3), op.Unknown("W3", (N,), 3)
Mask, Flag = op.Array("Mask", (N,), dtype=np.uint8), op.Array("Flag", (N,), dtype=bool)
w = op.params("w")
x, v = X[i], V[i]
M = op.matrix([[v[0], v[1]], [x, 2 * x], [0, 1]])

VALUES: dict[str, Any] = {
    "X": np.array([0.3]), "V": np.array([0.7, -1.2]), "V3": np.array([0.2, -0.4, 0.9]),
    "W3": np.array([1.3, 0.1, -0.6]), "Mask": np.array([2]), "Flag": np.array([1]), "w": 0.4,
}  # fmt: skip


def value_of(e: op.Expression) -> Any:
    """The value at VALUES, in the shape of the expression."""

    def lookup(key: Any) -> Any:
        return VALUES[key.field.name][key.channel] if hasattr(key, "field") else VALUES[key.name]

    return np.array(evaluate(e.components, lookup)).reshape(e.shape)


xv, vv, wv = 0.3, VALUES["V"], 0.4
Mv = np.array([[0.7, -1.2], [0.3, 0.6], [0, 1]])
A2, A3 = np.array([2.0, 3.0]), np.arange(6.0).reshape(3, 2)

FORMULAS: list[tuple[Any, Any]] = [
    (x + 1, xv + 1), (1 + x, 1 + xv), (x - v, xv - vv), (v - x, vv - xv), (2 - v, 2 - vv), (v * v, vv * vv),
    (v / 2, vv / 2), (2 / v, 2 / vv), (v**2, vv**2), (2**v, 2**vv), (x**0.5, xv**0.5), (x**-1.5, xv**-1.5),
    (-v, -vv), (+v, vv), (abs(v), abs(vv)), (x**w, xv**wv), (x**v, xv**vv), (np.float64(2) * x, 2 * xv),
    (np.float32(2) - v, 2 - vv), (A2 * v, A2 * vv), (v - A2, vv - A2), (A2 - x, A2 - xv), (A2**x, A2**xv),
    (M + v, Mv + vv), (A3 - M, A3 - Mv), (M * 2, Mv * 2), (M @ v, Mv @ vv), (M.T @ M, Mv.T @ Mv), (v @ M.T, vv @ Mv.T),
    (v @ v, vv @ vv), (A3 @ v, A3 @ vv), (v @ A3.T, vv @ A3.T), (v * [1, 2], vv * [1, 2]), (v + (1, 2), vv + [1, 2]),
    (v[0], vv[0]), (v[-1], vv[-1]), (v[::-1], vv[::-1]), (V3[i][1:], VALUES["V3"][1:]), (M[1], Mv[1]),
    (M[1, 0], Mv[1, 0]), (M[:, 1], Mv[:, 1]), (M.T, Mv.T), (v.T, vv), (v.sum(), vv.sum()), (M.sum(), Mv.sum()),
    (x < 1, 1), (x > 1, 0), (x <= v, xv <= vv), (v >= x, vv >= xv), (x == 0.3, 1), (x != 0.3, 0), (x > 1, 0),
    (v < A2, vv < A2), (np.float64(0.2) <= x, 1), ((x > 0) & (x < 1), 1), ((x > 1) | (x < 0), 0), (~(x > 1), 1),
    (Flag[i], 1), (~Flag[i] | (Mask[i] == 2), 1), ((v > 0).all(), 0), ((v > 0).any(), 1), (True & (x > 0), 1),
    (False | (x > 1), 0), (Flag[i] + Flag[i], 2), (2 * (x > 0), 2), (sum([x, v[0]]), xv + vv[0]),
    (op.where(x > 1, v, 0), [0, 0]), (op.where(v > 0, v, -v), abs(vv)), (op.where(True, x, v), [xv, xv]),
    (op.where(x > 0, v, A2), vv),
    (op.sqrt(x), xv**0.5), (op.exp(v), np.exp(vv)), (op.log(x), np.log(xv)), (op.sin(v), np.sin(vv)),
    (op.cos(v), np.cos(vv)), (op.tan(x), np.tan(xv)), (op.asin(x), np.arcsin(xv)), (op.acos(x), np.arccos(xv)),
    (op.atan(v), np.arctan(vv)), (op.atan2(v[0], v[1]), np.arctan2(*vv)), (op.sinh(v), np.sinh(vv)),
    (op.cosh(v), np.cosh(vv)), (op.tanh(v), np.tanh(vv)), (op.asinh(v), np.arcsinh(vv)),
    (op.acosh(x + 1), np.arccosh(xv + 1)), (op.atanh(x), np.arctanh(xv)), (op.minimum(v, x), np.minimum(vv, xv)),
    (op.maximum(0, v), np.maximum(0, vv)), (op.floor(v), np.floor(vv)), (op.sign(v), np.sign(vv)),
    (op.abs(v), abs(vv)), (op.stop_gradient(v), vv), (op.vector(x, 1, w), [xv, 1, wv]),
    (op.matrix([v, [1, x]]), [vv, [1, xv]]), (op.dot(v, A2), vv @ A2), (op.norm(v), np.linalg.norm(vv)),
    (op.norm(M), np.linalg.norm(Mv)), (op.normalize(v), vv / np.linalg.norm(vv)),
    (v % x, vv % xv), (7 % v, 7 % vv), (np.float64(3) % x, 3 % xv), (op.arctan(v), np.arctan(vv)),
    (op.cross(V3[i], W3[i]), np.cross(VALUES["V3"], VALUES["W3"])), (op.sin(0.5) * x, np.sin(0.5) * xv),
]  # fmt: skip


@pytest.mark.parametrize(("e", "expected"), FORMULAS)
def test_formulas_have_numpy_values_and_shapes(e: op.Expression, expected: Any) -> None:
    assert e.shape == np.shape(expected)
    np.testing.assert_allclose(value_of(e), expected, rtol=1e-14, atol=1e-15)


ONE_ARGUMENT = [
    "absolute", "arcsin", "arccos", "arctan", "arcsinh", "arctanh", "cbrt", "ceil", "deg2rad", "degrees", "exp2",
    "expm1", "fabs", "floor", "log10", "log1p", "log2", "negative", "positive", "rad2deg", "radians", "reciprocal",
    "rint", "round", "sinc", "sqrt", "square", "trunc",
]  # fmt: skip
TWO_ARGUMENTS = [
    "arctan2", "copysign", "fmax", "fmin", "fmod", "heaviside", "hypot", "logaddexp", "maximum", "minimum", "mod",
    "pow", "power", "remainder",
]  # fmt: skip


def everywhere(function: Any, *columns: np.ndarray) -> Any:
    """The values of a function of so many arguments at many points."""
    reads = [op.Array(f"A{n}", (N,))[i] for n in range(len(columns))]
    (component,) = function(*reads).components
    (value,) = evaluate([component], lambda key: columns[int(key.field.name[1:])])
    return np.broadcast_to(value, columns[0].shape)


@pytest.mark.parametrize("name", ONE_ARGUMENT)
def test_functions_of_one_number_have_numpys_values(name: str) -> None:
    points = np.concatenate([np.linspace(-4, 4, 65), np.logspace(-300, 100, 101), [0.3, 1 - 1e-9, 1e-9 - 1]])
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(points)
    if name not in ("log2", "log10"):
        np.testing.assert_allclose(everywhere(getattr(op, name), points), expected, rtol=2e-15, atol=1e-323)
    else:  # where they are 0
        np.testing.assert_allclose(everywhere(getattr(op, name), points), expected, rtol=2e-15, atol=1e-16)


@pytest.mark.parametrize("name", TWO_ARGUMENTS)
def test_functions_of_two_numbers_have_numpys_values(name: str) -> None:
    values = np.array([-3.25, -2.0, -0.5, 0.0, 0.3, 1.0, 2.0, 700.0])
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    if "mod" in name or name == "remainder":
        x, y = x[y != 0], y[y != 0]
    numpys = getattr(np, name, np.power)  # NumPy 1 has no pow
    with np.errstate(all="ignore"):
        expected = numpys(x, y)
    np.testing.assert_allclose(everywhere(getattr(op, name), x, y), expected, rtol=1e-14, atol=1e-13)


@pytest.mark.parametrize(
    "function", [op.fmin, op.fmax, op.heaviside, op.rint, op.trunc, op.ceil, op.mod, op.log1p, op.hypot, op.clip]
)
def test_not_a_number_is_not_lost(function: Any) -> None:
    two = [np.array([np.nan, np.nan, 1.0]), np.array([np.nan, 2.0, np.nan])]
    columns = two[: 1 if function in (op.rint, op.trunc, op.ceil, op.log1p, op.clip) else 2]
    found = everywhere(function, *columns)
    if function in (op.fmin, op.fmax):  # which take the other one
        np.testing.assert_array_equal(found, [np.nan, 2, 1])
    else:
        assert np.isnan(found[0])
        assert np.isnan(found[1])


def test_clip_takes_limits_on_one_side() -> None:
    assert [float(value_of(op.clip(v, *limits)).sum()) for limits in [(), (0,), (None, 0), (-1, 0.5)]] == pytest.approx(
        [-0.5, 0.7, -1.2, -0.5]
    )


@pytest.mark.parametrize("at", [0.0, 1e-30, -1e-9, 1e-4, 0.1, 0.1591549, 0.1591550, 1.0, 2.5, -7.0])
def test_sinc_and_its_slope(at: float) -> None:
    with mpmath.workdps(90):
        value = mpmath.sincpi(mpmath.mpf(at))
        slope = (mpmath.cospi(mpmath.mpf(at)) - value) / mpmath.mpf(at) if at else mpmath.mpf(0)
    (e,) = op.sinc(x).components
    (leaf,) = variables([e])
    found = evaluate([e, Derivative([e], [leaf]).partial(e, leaf)], lambda key: at)
    assert found == pytest.approx([float(value), float(slope)], rel=2e-14, abs=4e-16 if abs(at) >= 1 else 0)


@pytest.mark.parametrize("pair", [(0.0, 0.0), (1.5, 1.5), (-3.0, 2.0), (2.0, -3.0), (900.0, 0.0), (0.0, 900.0)])
def test_slopes_of_the_sum_of_exponentials(pair: tuple[float, float]) -> None:
    a, b = op.Array("A0", (N,))[i], op.Array("A1", (N,))[i]
    (e,) = op.logaddexp(a, b).components
    leaves = [c.components[0] for c in (a, b)]
    derivative = Derivative([e], leaves)
    partials = [derivative.partial(e, leaf) for leaf in leaves]
    found = evaluate(partials, lambda key: pair[int(key.field.name[1:])])
    share = 1 / (1 + math.exp(min(pair[1] - pair[0], 700)))
    assert found == pytest.approx([share, 1 - share], abs=1e-15)


@given(st.data())
def test_broadcasting_is_that_of_numpy(data: st.DataObject) -> None:
    shapes = hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3)
    (first, second), _ = data.draw(shapes)
    a, b = (np.arange(1.0, 1 + np.prod(s)).reshape(s) for s in (first, second))
    found: Any = (a * x) * b
    assert found.shape == (a * b).shape
    np.testing.assert_allclose(value_of(found), a * b * xv)


def test_a_vector_unpacks() -> None:
    first, second = v
    assert (first.components, second.components) == (v[0].components, v[1].components)
    assert len(v) == 2
    assert len(M) == 3


def test_equal_formulas_are_the_same_nodes() -> None:
    assert (x * x + 1).components[0] is (1 + x**2).components[0]
    assert ((x > 0) & (x > 0)).components[0] is (x > 0).components[0]


MISTAKES: list[tuple[Callable[[], Any], list[str]]] = [
    (lambda: v + V3[i], ["(2,)", "(3,)", "channels"]),
    (lambda: v + np.ones(3), ["(2,)", "(3,)"]),
    (lambda: op.where(x > 0, v, V3[i]), ["where", "(2,)", "(3,)"]),
    (lambda: bool(x > 0), ["truth value", "op.where", "&"]),
    (lambda: 0 < x < 1, ["truth value", "(a < x) & (x < b)"]),
    (lambda: 1 if x > 0 else 2, ["op.where"]),
    (lambda: (x > 0) and (x < 1), ["& | ~"]),
    (lambda: math.sin(x), ["op.sin"]),
    (lambda: np.sin(x), ["np.sin", "op.sin"]),
    (lambda: np.arctan2(x, x), ["op.arctan2"]),
    (lambda: np.dot(v, v), ["np.dot", "write op.dot"]),
    (lambda: np.linalg.norm(v), ["np.linalg.norm", "write op.norm"]),
    (lambda: np.where(x > 0, x, 0), ["np.where", "write op.where"]),
    (lambda: np.sum(v), ["np.sum", "write v.sum()", "op.sum(e, over=k)"]),
    (lambda: np.clip(x, 0, 1), ["np.clip", "write op.clip"]),
    (lambda: np.i0(x), ["np.i0", "atan2", "where"]),
    (lambda: 7 // x, ["//", "op.floor(x / y)"]),
    (lambda: divmod(x, 2), ["divmod", "op.floor(x / y) and x % y"]),
    (lambda: round(x), ["round", "op.round(x)"]),
    (lambda: math.floor(x), ["math.floor", "op.floor(x)"]),
    (lambda: math.ceil(x), ["op.ceil(x)"]),
    (lambda: math.trunc(x), ["op.trunc(x)"]),
    (lambda: int(x), ["op.floor(x)"]),
    (lambda: float(x), ["no value while the energy is written"]),
    (lambda: complex(x), ["no value while the energy is written"]),
    (lambda: [1, 2][x], ["op.indices"]),
    (lambda: (x > 0) ^ (x < 1), ["^", "a != b"]),
    (lambda: x << 2, ["x * 2**n"]),
    (lambda: len(x), ["scalar", "length"]),
    (lambda: not x, ["truth value", "| ~"]),
    (lambda: np.array([x, x]), ["op.vector"]),
    (lambda: np.add.reduce(x), ["np.add"]),
    (lambda: Mask[i] & (x > 0), ["&", "a number", "!= 0"]),
    (lambda: ~Mask[i], ["~", "a number"]),
    (lambda: (x > 0) | 2, ["|", "2 is a number"]),
    (lambda: v.all(), [".all()", "a number"]),
    (lambda: op.where(x, 1, 2), ["op.where", "a condition"]),
    (lambda: x[0], ["scalar", "op.Array('A', (H, W), 2)"]),
    (lambda: v[2], ["[2]", "(2,)"]),
    (lambda: v[i], ["whole numbers or slices"]),
    (lambda: v[0.5], ["0.5"]),
    (lambda: list(x), ["scalar", "length"]),
    (lambda: x + "a", ["'a'"]),
    (lambda: x + 1j, ["1j", "real"]),
    (lambda: x * math.nan, ["nan", "not finite"]),
    (lambda: x * np.array([1, math.inf]), ["inf", "not finite"]),
    (lambda: x * 10**400, ["a whole number of some 400 digits", "does not fit into float64"]),
    (lambda: -(10**5000) * x, ["does not fit into float64"]),
    (lambda: x ** Fraction(10**400, 3), ["does not fit into float64"]),
    (lambda: x + np.zeros((2, 2, 2)), ["(2, 2, 2)", "matrices"]),
    (lambda: x + np.array(["a"]), ["'a'"]),
    (lambda: X + 1, ["'X'", "X[i]"]),
    (lambda: 1 + X, ["'X'", "X[i]"]),
    (lambda: x * X, ["'X'", "X[i]"]),
    (lambda: np.ones(2) * X, ["'X'", "X[i]"]),
    (lambda: Mask == 0, ["'Mask'", "Mask[i]"]),
    (lambda: X % 2, ["'X'", "X[i]"]),
    (lambda: 2 // X, ["'X'", "X[i]"]),
    (lambda: round(X), ["'X'", "X[i]"]),
    (lambda: math.sin(X), ["'X'", "X[i]"]),
    (lambda: np.sin(X), ["'X'", "X[i]"]),
    (lambda: np.sum(X), ["'X'", "X[i]"]),
    (lambda: op.sin(X), ["'X'", "X[i]"]),
    (lambda: list(X), ["'X'", "X[i]"]),
    (lambda: x / 0, ["/", "divides by zero"]),
    (lambda: (x - x) ** -1, ["divides by zero"]),
    (lambda: op.sqrt(-1.0) * x, ["sqrt", "not real"]),
    (lambda: op.vector(v, x), ["op.vector", "(2,)"]),
    (lambda: op.vector(), ["op.vector", "nothing"]),
    (lambda: op.matrix([x, x]), ["op.matrix", "()"]),
    (lambda: op.matrix([[x, x], [x]]), ["(2,)", "(1,)"]),
    (lambda: op.dot(v, V3[i]), ["op.dot", "(2,)", "(3,)"]),
    (lambda: op.cross(v, v), ["op.cross", "(2,)"]),
    (lambda: M @ M, ["@", "(3, 2)"]),
    (lambda: x @ v, ["@", "()"]),
    (lambda: op.rotate2d(v, v), ["op.rotate2d", "angle", "a scalar", "(2,)"]),
    (lambda: op.rotate3d(V3[i], v), ["op.rotate3d", "v must be a vector of 3", "(2,)"]),
    (lambda: op.rotate_quaternion(V3[i], V3[i]), ["op.rotate_quaternion", "q must be a vector of 4", "(3,)"]),
    (lambda: op.in_bounds(2 * i + op.indices(op.dims("K"))), ["op.in_bounds", "of=X"]),
    (lambda: op.in_bounds(0), ["op.in_bounds", "of=X"]),
    (lambda: op.in_bounds(), ["op.in_bounds(i + 1, j)"]),
    (lambda: op.in_bounds(i, of=x), ["of="]),
    (lambda: op.value(0.5), ["op.value", "0.5"]),
    (lambda: op.Unknown("X", (N,), dtype=np.int32), ["'X'", "dtype", "solver's precision"]),
    (lambda: op.Array("A", (N,), dtype=np.int64), ["'A'", "int64", "int32"]),
    (lambda: op.Array("A", (N,), dtype="nonsense"), ["'A'", "nonsense", "uint8"]),
    (lambda: op.Array("A", (5,)), ["'A'", "symbolic sizes", "5"]),  # type: ignore[arg-type]
    (lambda: op.Array("A", (N, 2)), ["'A'", "symbolic sizes", "2"]),  # type: ignore[arg-type]
    (lambda: op.Array("A", (N,), 0), ["'A'", "channels", "0"]),
    (lambda: op.Array("A", (N,), (2, 2)), ["'A'", "channels"]),  # type: ignore[arg-type]
    (lambda: op.Array("my array", (N,)), ["'my array'", "name"]),
    (lambda: op.Array(3, (N,)), ["3", "name"]),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("mistake", "parts"), MISTAKES)
def test_mistakes_in_formulas(mistake: Callable[[], Any], parts: list[str]) -> None:
    with pytest.raises(op.EnergyError) as caught:
        mistake()
    message = str(caught.value)
    assert "test_expression.py:" in message
    for part in parts:
        assert part in message


def test_declarations_show_themselves() -> None:
    assert repr(V) == "Unknown('V', (N,), 2)"
    assert repr(Mask) == "Array('Mask', (N,), dtype=uint8)"
    assert repr(op.Array("K", ())) == "Array('K', ())"
    assert X.dims == (N,)
    assert V.channels == 2
    assert X.channels is None


def test_a_long_expression_shows_its_size() -> None:
    e = x
    for _ in range(200):
        e = op.sin(e) + e
    assert "nodes" in repr(e)
    assert "X[" in repr(x + 1)


@pytest.mark.parametrize("shape", [(50,), (7, 6)])
def test_data_in_a_formula_is_refused_with_the_cure(shape: tuple[int, ...]) -> None:
    """It would count as a constant vector at each point."""
    with pytest.raises(op.EnergyError, match=rf"{re.escape(str(shape))} stands in a formula.*op\.Array.*bind it"):
        X[i] - np.zeros(shape)
    assert (X[i] * np.zeros((6, 6))).shape == (6, 6)
