"""Elements of arrays at computed places, and derivatives that are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optpy.symbolic.derivative import Derivative
from optpy.symbolic.elements import element, given_slopes, is_element
from optpy.symbolic.expr import ZERO, Var, add, call, mul, subtract
from optpy.symbolic.interpret import evaluate, rounding
from optpy.symbolic.operations import OPERATIONS
from optpy.symbolic.sympy_bridge import to_sympy
from optpy.symbolic.traverse import substitute
from tests.support.programs import real

A, x, y = (real(n) for n in "Axy")


def values(e: Any, **at: Any) -> Any:
    return evaluate([e], lambda key: at[str(key)])[0]


@pytest.mark.parametrize(
    ("index", "found"), [(0.0, 1.0), (2.0, 5.0), (3.0, 5.0), (-1.0, 1.0), (1e30, 5.0), (-1e30, 1.0)]
)
def test_an_index_is_moved_inside(index: float, found: float) -> None:
    assert values(element(A, x), A=np.array([1.0, 3.0, 5.0]), x=index) == found


def test_nan_and_infinity_read_inside() -> None:
    at = np.array([np.nan, np.inf, -np.inf])
    assert values(element(A, x), A=np.array([1.0, 3.0]), x=at).tolist() == [1.0, 3.0, 1.0]


def test_axes_are_those_of_the_array() -> None:
    array = np.arange(12.0).reshape(3, 4)
    found = values(element(A, x, y), A=array, x=np.array([0, 1, 2]), y=np.array([3, 0, 9]))
    assert found.tolist() == [3.0, 4.0, 11.0]


def test_it_is_piecewise_constant() -> None:
    floor = call(OPERATIONS["floor"], x)
    e = mul(subtract(x, floor), element(A, floor))
    assert Derivative([e], [x]).partial(e, x) is element(A, floor)
    assert Derivative([element(A, x)], [x]).partial(element(A, x), x) is ZERO


def test_it_is_rebuilt_with_other_indices() -> None:
    (moved,) = substitute([element(A, add(x, y))], {y: x})
    assert is_element(moved)
    assert values(moved, A=np.array([1.0, 3.0, 5.0]), x=1.0) == 5.0


def test_rounding_of_an_index_that_is_no_limit_is_none() -> None:
    at: dict[str, Any] = {"A": np.array([1.0, 30.0, 500.0]), "x": 1.3}
    e = element(A, call(OPERATIONS["floor"], x))
    (error,) = rounding([e], lambda key: at[str(key)], lambda key: np.float64(1e-12 if str(key) == "x" else 0))
    assert error == 0


def test_slopes_that_are_given_are_those_of_the_derivative() -> None:
    e = mul(x, given_slopes(element(A, x), [(x, y)]))
    partial = Derivative([e], [x]).partial(e, x)
    at = dict(A=np.array([2.0, 7.0]), x=1.0, y=10.0)
    assert values(e, **at) == 7.0
    assert values(partial, **at) == 7.0 + 10.0


def test_sympy_has_it_as_a_function_without_slope() -> None:
    found = to_sympy(mul(x, element(A, call(OPERATIONS["floor"], x))))
    assert str(found) == "x*A(floor(x))"
    (symbol,) = found.free_symbols
    assert str(found.diff(symbol)) == "A(floor(x))"
    assert to_sympy(given_slopes(x, [(x, y)])) == symbol


def test_its_leaf_is_a_variable() -> None:
    assert isinstance(A, Var)
