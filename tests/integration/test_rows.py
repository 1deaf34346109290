"""Rows of all lengths around those of vectors, compiled as for users: interiors, masked ends, and no access beyond."""

from __future__ import annotations

import numpy as np
import pytest

import optpy as op
from tests.support.operator_checks import Operators

D, H, W = op.dims("D H W")
k, i, j = op.indices(D, H, W)
X = op.Unknown("X", (D, H, W))
A = op.Array("A", (D, H, W))
Solved = op.Array("Solved", (D, H, W), dtype=bool)
ENERGY = op.Energy(
    before=A[k, i, j - 2] * X[k, i, j] - X[k, i + 1, j],
    along=op.where(Solved[k, i, j + 1], X[k, i, j + 1] ** 2 - X[k - 1, i, j], 0),
    fit=X[k, i, j] - A[k, i, j],
    fixed={X: ~Solved[k, i, j]},
)


@pytest.mark.native
@pytest.mark.optimised
@pytest.mark.parametrize(("dtype", "close"), [("float64", 1e-12), ("float32", 1e-4)])
def test_products_are_right_at_every_length_of_a_row(dtype: str, close: float) -> None:
    solver = op.compile(ENERGY, "cpu", np.dtype(dtype).type)
    rng = np.random.default_rng(5)
    for length in (1, 2, 7, 8, 9, 15, 16, 17, 18, 31, 33, 34, 47, 48, 49, 64, 66, 130):
        shape = (3, 4, length)
        data = dict(X=rng.standard_normal(shape), A=rng.standard_normal(shape), Solved=rng.random(shape) < 0.8)
        operators = Operators(ENERGY, data, np.dtype(dtype).type, solver=solver)
        operators.linearise()
        p = np.where(data["Solved"].ravel(), rng.standard_normal(3 * 4 * length), 0)
        jacobian = ENERGY.jacobian(data)
        expected = jacobian.T @ (jacobian @ p)
        found, dot = operators.apply(p)
        scale = np.abs(expected).max() + 1
        assert np.allclose(np.where(data["Solved"].ravel(), found, 0), expected, rtol=0, atol=close * scale)
        assert np.isclose(dot, p @ expected, rtol=0, atol=close * scale * (np.abs(p).sum() + 1))
        operators.check_poison()
