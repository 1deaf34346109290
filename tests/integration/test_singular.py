"""Compiled solves whose J^T J is singular, or too stiff for the arithmetic, end converged where nothing is left to
gain, and only there."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import optpy as op
from optpy.solver.result import SolveResult, Status

pytestmark = pytest.mark.native

V, E, H, W = op.dims("V E H W")
v, e = op.indices(V, E)
i, j = op.indices(H, W)
X, D = op.Unknown("X", (V,)), op.Array("D", (E,))
Y, A = op.Unknown("Y", (H, W)), op.Array("A", (H, W))
edges = op.Graph("edges", E, (V, V))
a, b = edges[e]

OFF: dict[str, Any] = dict(function_tolerance=0, cosine_tolerance=0, parameter_tolerance=0, max_iterations=300)
TOLERANCES: list[dict[str, Any]] = [{}, OFF]
DTYPES = [np.float32, np.float64]
METHODS = ["lm", "gn"]


def ring(n: int, rng: np.random.Generator) -> Any:
    """A cycle through n vertices and n chords."""
    chords = rng.integers(0, n, (n, 2))
    cycle = np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1)
    return np.concatenate([cycle, chords[chords[:, 0] != chords[:, 1]]])


DIFFERENCES = op.Energy(r=X[a] - X[b] - D[e])
SMOOTH = op.Energy(r=[Y[i, j] - Y[i + 1, j], Y[i, j] - Y[i, j + 1]])


def converged(energy: op.Energy, data: dict[str, Any], dtype: Any, **options: Any) -> SolveResult:
    result = op.solve(energy, data, device="cpu", dtype=dtype, **options)
    assert result.success, result.message
    return result


@pytest.mark.optimised
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", TOLERANCES)
@pytest.mark.parametrize(("n", "scale", "noise"), [(5, 1.0, 0.0), (5, 1e3, 0.0), (5, 1.0, 0.1), (200, 1.0, 0.0)])
def test_a_graph_without_an_anchor(
    dtype: Any, method: str, options: dict[str, Any], n: int, scale: float, noise: float
) -> None:
    rng = np.random.default_rng(n)
    x, pairs = scale * rng.normal(size=n), ring(n, rng)
    measured = x[pairs[:, 0]] - x[pairs[:, 1]] + noise * scale * rng.normal(size=len(pairs))
    start = scale * rng.normal(size=n)
    result = converged(DIFFERENCES, dict(X=start, D=measured, edges=pairs), dtype, method=method, **options)
    J = np.zeros((len(pairs), n))
    np.add.at(J, (np.arange(len(pairs)), pairs[:, 0]), 1)
    np.add.at(J, (np.arange(len(pairs)), pairs[:, 1]), -1)
    best = np.linalg.lstsq(J, measured, rcond=None)[0]
    found = result.x["X"] - result.x["X"].mean()
    np.testing.assert_allclose(found, best - best.mean(), atol=2e-3 * scale)
    if options:  # to the end of what the arithmetic can do
        np.testing.assert_allclose(found, best - best.mean(), atol=3e3 * np.finfo(dtype).eps * scale)


@pytest.mark.optimised
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("preconditioner", ["auto", "block_jacobi", None])
def test_a_grid_that_only_smooths(dtype: Any, method: str, preconditioner: Any) -> None:
    data = dict(Y=np.random.default_rng(0).normal(size=(40, 50)))
    result = converged(SMOOTH, data, dtype, method=method, preconditioner=preconditioner)
    assert result.cost < 1e-9 * result.initial_cost
    assert result.nit < 50


@functools.cache
def pose_graph() -> op.Energy:
    T, Z = op.Unknown("T", (V,), op.SE3), op.Array("Z", (E,), op.SE3)
    return op.Energy(r=(Z[e].inverse() @ T[a].inverse() @ T[b]).log())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", TOLERANCES)
def test_a_pose_graph_without_a_fixed_pose(dtype: Any, method: str, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    n = 30
    R, t, pairs = Rotation.random(n, random_state=1), 3 * rng.normal(size=(n, 3)), ring(n, rng)
    first, second = R[pairs[:, 0]], R[pairs[:, 1]]
    shift = first.inv().apply(t[pairs[:, 1]] - t[pairs[:, 0]])
    measured = np.concatenate([(first.inv() * second).as_quat(), shift], axis=1)
    turned = Rotation.from_rotvec(0.1 * rng.normal(size=(n, 3))) * R
    start = np.concatenate([turned.as_quat(), t + 0.1 * rng.normal(size=t.shape)], axis=1)
    result = converged(pose_graph(), dict(T=start, Z=measured, edges=pairs), dtype, method=method, **options)
    assert result.cost <= (1e-8 if dtype is np.float32 else 1e-9)


fit, smooth = op.params("fit smooth")
STIFF = op.Energy(
    fit=fit * (Y[i, j] - A[i, j]), smooth=[smooth * (Y[i, j] - Y[i + 1, j]), smooth * (Y[i, j] - Y[i, j + 1])]
)


def stiff(fit: float, smooth: float) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return dict(Y=rng.normal(size=(40, 50)), A=rng.normal(size=(40, 50)), fit=fit, smooth=smooth)


@pytest.mark.optimised
@pytest.mark.parametrize("options", TOLERANCES)
@pytest.mark.parametrize(("fit", "smooth"), [(1.0, 1e4), (1e4, 1.0)])
def test_weights_of_1e4_beside_1_in_float32(options: dict[str, Any], fit: float, smooth: float) -> None:
    data = stiff(fit, smooth)
    exact = converged(STIFF, data, np.float64, **options)
    result = converged(STIFF, data, np.float32, **options)
    assert result.cost == pytest.approx(exact.cost, rel=5e-3)


@pytest.mark.optimised
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("smooth", [1e4, 3e4, 1e5, 1e6, 1e7])
def test_where_stiff_residuals_are_all_that_float32_sees(smooth: float, method: str) -> None:
    """Of the mean, which they leave free, the gradient says nothing: the residuals do."""
    data = stiff(1.0, smooth)
    result = op.solve(STIFF, data, device="cpu", dtype=np.float32, method=method, **OFF)
    best = converged(STIFF, data, np.float64).cost
    assert result.success or result.status in (Status.FAILURE, Status.ROUNDING, Status.MIN_RADIUS)
    assert result.cost <= 1.003 * best
    if result.success:  # PRECISION, which says that float64 can go further
        assert result.cost <= 1.002 * best


Weight = op.Array("W", (V,))
NET = op.Energy(f=Weight[v] * (X[v] - 5), o=X[a] - X[b])


def soft_handles(weight: float) -> dict[str, Any]:
    """A net of vertices, twenty of which are drawn to 5, weakly: at the minimum all are there."""
    n = 40
    number = np.arange(n * n).reshape(n, n)
    rows = np.stack([number[:, 1:].ravel(), number[:, :-1].ravel()], axis=1)
    columns = np.stack([number[1:].ravel(), number[:-1].ravel()], axis=1)
    weights = np.where(np.arange(n * n) < 20, weight, 0.0)
    return dict(X=np.zeros(n * n), W=weights, edges=np.concatenate([rows, columns]))


@pytest.mark.optimised
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("preconditioner", ["auto", "block_jacobi", "cholesky", "multigrid"])
@pytest.mark.parametrize("weight", [1e-3, 3e-4])
def test_weak_handles_draw_all_of_a_net_in_float32(method: str, preconditioner: Any, weight: float) -> None:
    data = soft_handles(weight)
    result = op.solve(NET, data, dtype=np.float32, method=method, preconditioner=preconditioner)
    assert not result.success or result.cost <= 0.05 * result.initial_cost, result.report()
    assert result.success or preconditioner != "auto"
    if result.success:
        np.testing.assert_allclose(result.x["X"], 5, rtol=0.25)


S, w = op.Array("S", (V,)), op.params("w")
BOND = op.Energy(fit=X[v] - S[v], bond=w * (X[a] - X[b]))


@pytest.mark.parametrize("preconditioner", ["auto", "block_jacobi", "cholesky", "multigrid"])
def test_two_stiffly_bound_vertices_meet(preconditioner: Any) -> None:
    data = dict(X=[0.0, 0.0], S=[5.0, 6.0], edges=[(0, 1)])
    for weight in (1e4, 1e6, 1e7):
        result = op.solve(BOND, {**data, "w": weight}, dtype=np.float64, method="gn", preconditioner=preconditioner)
        assert result.cost == pytest.approx(0.25, rel=1e-2), result.report()
    result = op.solve(BOND, {**data, "w": 3000.0}, dtype=np.float32, preconditioner=preconditioner)
    assert not result.success or result.cost == pytest.approx(0.25, rel=1e-2), result.report()
