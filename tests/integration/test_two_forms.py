"""Energies that have equal expressions in different forms: one is computed, and it is right."""

from __future__ import annotations

import numpy as np
import pytest

import optpy as op
from optpy.api.pipeline import derive
from optpy.ir import Group
from optpy.symbolic.count import count
from optpy.symbolic.expr import Call
from optpy.symbolic.order import topological
from tests.support.operator_checks import check_everything


def two_forms(second: bool) -> op.Energy:
    """A sine of a square beside that of another form of it, at the neighbour; a quotient under a condition, twice."""
    H, W = op.dims("H W")
    i, j = op.indices(H, W)
    X, B, C = op.Unknown("X", (H, W)), op.Array("B", (H, W)), op.Array("C", (H, W))
    x, b, c = X[i, j], B[i, j], C[i, j]
    x1, b1 = X[i + 1, j], B[i + 1, j]
    square = x1 * x1 + 2 * x1 * b1 + b1 * b1 if second else (x1 + b1) ** 2
    over = x / c + b / c if second else (x + b) / c
    return op.Energy(
        here=c * op.sin((x + b) ** 2),
        below=op.sin(square) * b,
        inside=op.where(c > 0, op.cos((x + b) / c), x),
        again=op.where(c > 0, op.cos(over) * b, b),
    )


def functions(energy: op.Energy) -> tuple[int, int]:
    """Functions in J^T F, and its operations."""
    (routine,) = derive(energy.problem, "float64").routines.groups[Group.GRADIENT]
    calls = [e for e in topological(routine.roots) if isinstance(e, Call) and not e.boolean]
    return len(calls), count(routine.roots).cost


def test_functions_of_equal_arguments_are_computed_once() -> None:
    written, other = functions(two_forms(second=False)), functions(two_forms(second=True))
    assert other[0] == written[0]
    assert other[1] <= 1.1 * written[1]


@pytest.mark.native
def test_what_is_computed_is_right_where_an_untaken_arm_divides_by_zero() -> None:
    rng = np.random.default_rng(3)
    data = {name: rng.uniform(-1, 1, (9, 11)) for name in "XB"} | {"C": rng.uniform(0.2, 1, (9, 11))}
    data["C"][::2, 1::3] = 0
    check_everything(two_forms(second=True), data, epsilon=1e-10)
