"""The NumPy interpreter: evaluates expressions on arrays. The oracle of every generated routine's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .expr import Call, Const, Expr, Product, Sum, Var
from .traverse import topological

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


def _wide(value: Value) -> Value:
    # Whole numbers would wrap around, and sums in float32 would not be an oracle for kernels in float32.
    array = np.asarray(value)
    result: Value = (
        array[()] if np.result_type(array.dtype, np.float64) == array.dtype else array.astype(np.float64)[()]
    )
    return result


def _product(node: Product, values: dict[Expr, Value]) -> Value:
    result: Value = np.float64(1.0)
    for base, exponent in node.factors:
        if base not in node.guards:
            result = result * (values[base] if exponent == 1 else np.power(values[base], float(exponent)))
    guard: Value = np.float64(1.0)
    for b in node.guards:
        guard = guard * values[b]
    # Selection, not multiplication: an infinite factor under a false guard gives 0.
    return np.where(guard != 0, result, 0.0)[()] if node.guards else result
