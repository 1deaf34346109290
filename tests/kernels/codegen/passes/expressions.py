"""Functions that evaluate expressions alone: what passes over expressions are tried on, and what the tests count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pytest

from optpy.ir import Scalar, loops
from optpy.symbolic.expr import Call, Expr, var
from optpy.symbolic.interpret import evaluate
from optpy.symbolic.order import topological

Pass = Callable[[loops.Function], loops.Function]

x, y, z, w = (var(Scalar(name)) for name in "xyzw")
VALUES: Mapping[object, float] = {Scalar("x"): 1.1, Scalar("y"): -0.7, Scalar("z"): 1.3, Scalar("w"): 0.4}


def evaluation(*values: Expr) -> loops.Function:
    """A function that does nothing but evaluate expressions."""
    return loops.Function("f", (loops.evaluate(values, "t"),))


def values_of(function: loops.Function) -> tuple[Expr, ...]:
    """The expressions that a function evaluates."""
    return tuple(v for s in loops.walk(function.body) if isinstance(s, loops.Evaluate) for v in s.values)


def through(passes: Iterable[Pass], *values: Expr) -> tuple[Expr, ...]:
    """What passes make of expressions."""
    function = evaluation(*values)
    for one in passes:
        function = one(function)
    return values_of(function)


def counts(*values: Expr) -> Counter[str]:
    """How many operations of each kind compute some expressions."""
    return Counter(node.op.name for node in topological(values) if isinstance(node, Call))


def assert_computes_the_same(
    before: Iterable[Expr], after: Iterable[Expr], values: Mapping[object, float] = VALUES
) -> None:
    """In float64, but for rounding; infinite or NaN where it was."""
    expected, found = (np.array(evaluate(e, values.__getitem__), float) for e in (before, after))
    assert found == pytest.approx(expected, rel=1e-12, nan_ok=True)
