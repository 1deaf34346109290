"""Iteratively reweighted least squares: weights held by ``op.stop_gradient``; costs compare at the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op

pytestmark = pytest.mark.native

N = op.dims("N")
n = op.indices(N)
X, A = op.Unknown("X", (N,)), op.Array("A", (N,))


def weighted(e: op.Expression) -> op.Expression:
    return op.stop_gradient((e**2 + 1e-12) ** -0.25)


SHRUNK = op.Energy(fit=X[n] - A[n], l1=weighted(X[n]) * X[n])
"""1/2 (x - a)^2 + 1/2 |x|, at the fixed point of its weights: a residual's share of the gradient is x |x|^-1."""


def solve(energy: op.Energy, data: dict[str, Any], **options: Any) -> op.SolveResult:
    return op.solve(energy, data, device="cpu", dtype=options.pop("dtype", np.float64), **options)


@pytest.mark.parametrize("method", ["lm", "gn"])
@pytest.mark.parametrize("start", [[2.0, 3.0, 5.0], [1.0, 2.0, 4.0], [30.0, -4.0, 5.5]])
def test_the_fixed_point_of_the_weights_is_reached(method: str, start: list[float]) -> None:
    result = solve(SHRUNK, dict(X=start, A=[2.0, 3.0, 5.0]), method=method)
    assert result.success, result.message
    np.testing.assert_allclose(result.x["X"], [1, 2, 4], atol=1e-6)
    assert "best point" not in result.message


def test_the_cost_reported_is_that_of_the_weights_there() -> None:
    data = dict(X=[2.0, 3.0, 5.0], A=[2.0, 3.0, 5.0])
    result = solve(SHRUNK, data)
    assert result.cost == pytest.approx(SHRUNK.cost(data | result.x))
    for record in result.iterations[1:]:
        if record.accepted:
            assert record.cost_change > 0  # at the weights of that iteration
    assert any(b.cost < a.cost for b, a in zip(result.iterations, result.iterations[1:], strict=False))  # yet it rises


def test_a_line_with_the_least_sum_of_magnitudes() -> None:
    line = op.Unknown("line", (), 2)
    T, Y = op.Array("T", (N,)), op.Array("Y", (N,))
    r = line[()][0] + line[()][1] * T[n] - Y[n]
    t = np.linspace(0, 1, 41)
    y = 2 + 3 * t
    y[::7] += 20
    result = solve(op.Energy(l1=weighted(r) * r), dict(line=[0.0, 0.0], T=t, Y=y))
    assert result.success, result.message
    np.testing.assert_allclose(result.x["line"], [2, 3], atol=1e-4)


def test_neighbours_in_the_weights() -> None:
    """Total variation: the weight reads what the residual reads, at two points."""
    step = X[n + 1] - X[n]
    energy = op.Energy(fit=X[n] - A[n], tv=op.where(op.in_bounds(n + 1), weighted(step) * step, 0))
    a = np.where(np.arange(40) < 20, 0.0, 8.0)
    for method in ("lm", "gn"):
        result = solve(energy, dict(X=a + 0.1 * np.sin(np.arange(40)), A=a), method=method)
        assert result.success, result.message
        # 1/2 (x - a)^2 summed over a plateau of 20, and a jump whose slope is 1/2 |jump|^0 ... : each moves by 1/20.
        np.testing.assert_allclose(result.x["X"], np.where(a > 0, 8 - 1 / 20, 1 / 20), atol=1e-4)


def test_a_robust_scale_that_is_held_constant() -> None:
    """The scale follows the unknown; costs of one iteration are compared at one scale."""
    scale = op.stop_gradient(1 + op.abs(X[n]))
    energy = op.Energy(fit=op.robust(X[n] - A[n], "huber", scale=scale))
    result = solve(energy, dict(X=np.full(3, 9.0), A=[2.0, 3.0, 5.0]))
    assert result.success, result.message
    np.testing.assert_allclose(result.x["X"], [2, 3, 5], atol=1e-6)


def test_what_holds_no_unknown_is_an_ordinary_cost() -> None:
    energy = op.Energy(fit=op.stop_gradient(A[n]) * (X[n] - A[n]))
    assert "cost_of_step" not in op.compile(energy, device="cpu", dtype=np.float64).routines
    assert "cost_of_step" in op.compile(SHRUNK, device="cpu", dtype=np.float64).routines


def test_float32_ends_at_its_precision() -> None:
    result = solve(SHRUNK, dict(X=[2.0, 3.0, 5.0], A=[2.0, 3.0, 5.0]), dtype=np.float32)
    assert result.success
    np.testing.assert_allclose(result.x["X"], [1, 2, 4], atol=2e-3)


def test_linear_solves_at_their_limit_are_told_with_what_weights_have_to_do_with_it() -> None:
    H, W = op.dims("H W")
    i, j = op.indices(H, W)
    Z, S = op.Unknown("Z", (H, W)), op.Array("S", (H, W))

    def sparse(slope: op.Expression) -> op.Expression:  # |slope|^0.5
        return op.stop_gradient((slope**2 + 1e-14) ** -0.375) * slope

    energy = op.Energy(fit=Z[i, j] - S[i, j], edges=[sparse(Z[i, j] - Z[i + 1, j]), sparse(Z[i, j] - Z[i, j + 1])])
    steps = np.add.outer(np.arange(24) // 8, np.arange(24) // 12) + 0.05 * np.random.default_rng(0).normal(
        size=(24, 24)
    )
    result = solve(energy, dict(Z=steps, S=steps), preconditioner="jacobi", linear_iterations=20, max_iterations=10)
    assert result.nit == 10
    assert "10 linear solves ran into linear_iterations = 20" in result.message
    assert "bound on weights" in result.message
    assert result.message in result.report()
