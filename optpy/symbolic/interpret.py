"""The NumPy interpreter: evaluates expressions on arrays. The oracle of every generated routine's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optpy.symbolic.elements import ELEMENT, GIVEN_SLOPES
from optpy.symbolic.expr import Call, Const, Expr, Product, Sum, Var
from optpy.symbolic.order import topological

Value = NDArray[Any] | np.floating[Any] | float


def evaluate(roots: Iterable[Expr], lookup: Callable[[Any], Value]) -> list[Value]:
    """The value of each expression.

    Args:
        roots: the expressions.
        lookup: the value of a leaf, given its key: a number or an array; arrays broadcast.

    Returns:
        One value for each root, in float64; in complex numbers if a leaf is complex.
    """
    roots = list(roots)
    values: dict[Expr, Value] = {}
    with np.errstate(all="ignore"):
        for node in topological(roots):
            values[node] = _value(node, values, lookup)
    return [values[r] for r in roots]


def _value(node: Expr, values: dict[Expr, Value], lookup: Callable[[Any], Value]) -> Value:
    if isinstance(node, Const):
        return np.float64(float(node.value))
    if isinstance(node, Var):
        return _wide(lookup(node.key))
    if isinstance(node, Sum):
        total: Value = np.float64(float(node.constant))
        for c, e in node.terms:
            total = total + float(c) * values[e]
        return total
    if isinstance(node, Product):
        return _product(node, values)
    assert isinstance(node, Call)
    result: Value = node.op.evaluate(*(values[a] for a in node.args))
    return result


def rounding(roots: Iterable[Expr], lookup: Callable[[Any], Value], leaf: Callable[[Any], Value]) -> list[Value]:
    """A bound, to first order, on the rounding errors in what ``evaluate`` returns: running error analysis.

    Each operation adds u times its result, u the unit roundoff of float64, to what it makes of the errors of its
    arguments.

    Args:
        roots, lookup: as for ``evaluate``.
        leaf: the error that the value of a leaf has already, given its key.

    Reference: N. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., 2002, section 3.3.
    """
    roots = list(roots)
    values: dict[Expr, Value] = {}
    errors: dict[Expr, Value] = {}
    with np.errstate(all="ignore"):
        for node in topological(roots):
            values[node] = _value(node, values, lookup)
            errors[node] = leaf(node.key) if isinstance(node, Var) else _error(node, values, errors)
    return [errors[r] for r in roots]


def _error(node: Expr, values: dict[Expr, Value], errors: dict[Expr, Value]) -> Value:
    if isinstance(node, Const):
        return np.float64(0.0)
    if isinstance(node, Sum):
        return _error_of_sum(node, values, errors)
    error: Value = np.float64(0.0)
    own = {e: values[e] for e in node.children}
    for e in node.children:
        if np.any(errors[e]):
            changed = [_value(node, own | {e: values[e] + d}, _no_leaf) for d in (errors[e], -errors[e])]
            error = error + np.fmax(*(np.abs(v - values[node]) for v in changed))
    if node.boolean or (isinstance(node, Call) and node.op.name in _EXACT):
        return error
    rounded = _UNIT * len(node.children) * np.abs(values[node])
    return error + np.where(_is_whole_quotient(node, values), 0.0, rounded)


def _is_whole_quotient(node: Expr, values: dict[Expr, Value]) -> Any:
    """Whether a product or quotient of two whole numbers is whole: then it is exact."""
    if not isinstance(node, Product) or len(node.factors) > 2 or any(x not in (1, -1) for _, x in node.factors):
        return False
    whole: Any = _is_whole(values[node])
    for base in node.children:
        whole = whole & _is_whole(values[base])
    return whole


def _error_of_sum(node: Sum, values: dict[Expr, Value], errors: dict[Expr, Value]) -> Value:
    total: Value = np.float64(float(node.constant))
    error: Value = np.float64(0.0)
    whole: Any = _is_whole(total)
    for n, (c, e) in enumerate(node.terms):
        term = float(c) * values[e]
        total = total + term
        whole = whole & _is_whole(term) & _is_whole(total)
        error = error + abs(float(c)) * errors[e]
        if abs(c) != 1:
            error = error + np.where(whole, 0.0, _UNIT * np.abs(term))
        if n > 0 or node.constant != 0:  # 0 + x is x
            error = error + np.where(whole, 0.0, _UNIT * np.abs(total))
    return error


def _is_whole(value: Value) -> Any:
    """Sums of such numbers are exact: indices and masks."""
    return (np.abs(value) < 2.0**53) & (np.floor(value) == value)


_EXACT = ("floor", "abs", "sign", "minimum", "maximum", "stop_gradient", "whole", ELEMENT, GIVEN_SLOPES)
"""Operations whose results are never rounded."""

_UNIT = float(np.finfo(np.float64).eps) / 2


def _no_leaf(key: Any) -> Value:
    raise KeyError(key)


def _wide(value: Value) -> Value:
    # Whole numbers would wrap around, and sums in float32 would not be an oracle for kernels in float32.
    array = np.asarray(value)
    result: Value = (
        array[()] if np.result_type(array.dtype, np.float64) == array.dtype else array.astype(np.float64)[()]
    )
    return result


def _product(node: Product, values: dict[Expr, Value]) -> Value:
    result: Value = np.float64(1.0)
    # Divisions come last: k * (1 / k) may be less than 1, and its floor 0.
    for base, exponent in sorted(node.factors, key=lambda factor: factor[1] == -1):
        if exponent == -1:
            result = result / values[base]
        elif base not in node.guards:
            result = result * (values[base] if exponent == 1 else np.power(values[base], float(exponent)))
    guard: Value = np.float64(1.0)
    for b in node.guards:
        guard = guard * values[b]
    # Selection, not multiplication: an infinite factor under a false guard gives 0.
    return np.where(guard != 0, result, 0.0)[()] if node.guards else result
