"""Sums over whole dims: seen from an unknown, residuals over further dims are many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.ir import VectorKind
from optpy.kernels.codegen.passes import sum_in_strips
from tests.kernels.codegen.test_loops_of_energies import check_loops
from tests.support.operator_checks import Operators, check_everything, near, outcomes, stacked

pytestmark = pytest.mark.native

N, K, L, E = op.dims("N K L E")
n, k, l, e = op.indices(N, K, L, E)  # noqa: E741


def dense_sums() -> op.Energy:
    """Sums over one and two dims: of rows and of columns, in windows, strided, mirrored, over edges of a table; of what
    is the same at all points; several of them for one unknown, with conditions of the point and of its row."""
    X, Y, Z, s = op.Unknown("X", (N,)), op.Unknown("Y", (K,)), op.Unknown("Z", (K, N), 2), op.Unknown("s", ())
    A, B, G = op.Array("A", (K, N)), op.Array("B", (N, L)), op.Array("G", (K, L))
    M = op.Array("M", (N,), dtype=bool)
    edges = op.Graph("edges", E, (N,))
    (a,) = edges[e]
    z = Z[k, n]
    return op.Energy(
        columns=A[k, n] * X[n] - Y[k],
        rows=op.sin(B[n, l] * X[n]),
        window=X[n + k - l] * G[k, l] - B[n, l],
        mirrored=op.where(M[n], X[N - 1 - n - k] * Y[k], 0),
        strided=X[2 * n] * G[k, l] + 0.25 * B[n, l],
        shared=z[0] * G[k, l] - z[1] * B[n, l],
        of_rows=op.where(op.in_bounds(k + 1), Z[2 * k + 1, n][0] * B[n, l], 0),
        whole=s[()] * A[k, n] - Y[k],
        table=X[n] * Y[k] * B[a, 0],
        fixed={X: M[n]},
    )


def data_of(sizes: tuple[int, int, int, int], dtype: Any = np.float64) -> dict[str, Any]:
    n_, k_, l_, e_ = sizes
    rng = np.random.default_rng(7)
    shapes = dict(X=(n_,), Y=(k_,), Z=(k_, n_, 2), A=(k_, n_), B=(n_, l_), G=(k_, l_))
    arrays = {name: rng.uniform(-1, 1, shape).astype(np.float32).astype(dtype) for name, shape in shapes.items()}
    masked = rng.random(n_) < 0.3
    return arrays | dict(s=np.asarray(0.5, dtype), M=masked, edges=rng.integers(0, n_, (e_, 1)))


@pytest.mark.parametrize(("longest", "cuda"), [(3, False), (1024, False), (1024, True)])  # a GPU has no strips
def test_loops_in_strips(cuda: bool, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sum_in_strips, "LONGEST", longest)
    monkeypatch.setattr(sum_in_strips, "VECTOR", min(longest, 16))
    for sizes in ((1, 1, 1, 1), (9, 2, 3, 2)):
        check_loops(dense_sums(), data_of(sizes), cuda)


@pytest.mark.parametrize(("dtype", "epsilon"), [(np.float64, 1e-14), (np.float32, 3e-5)])
def test_every_routine_agrees_with_the_dense_jacobian(dtype: Any, epsilon: float) -> None:
    for sizes in ((1, 1, 1, 1), (1, 4, 2, 3), (40, 3, 2, 2), (5, 1, 7, 4)):
        check_everything(dense_sums(), data_of(sizes), dtype, epsilon)


@pytest.mark.optimised
@pytest.mark.parametrize(
    ("dtype", "epsilon"), [pytest.param(np.float64, 1e-14, marks=pytest.mark.deep), (np.float32, 1e-6)]
)
def test_rows_longer_than_a_strip(dtype: Any, epsilon: float) -> None:
    energy, data = dense_sums(), data_of((2500, 3, 2, 2))
    F, J = stacked(energy, data), energy.jacobian(data)
    rng = np.random.default_rng(3)
    p = rng.standard_normal(J.shape[1])
    found = []
    for threads in (1, 2, 3):
        ops = Operators(energy, data, dtype, threads)
        near(ops.linearise(), np.abs(J.T @ F).max(initial=0), 1e4, epsilon)
        near(ops.get(VectorKind.G), J.T @ F, 1e4, epsilon)
        near(ops.get(VectorKind.C), J.multiply(J).sum(axis=0), 1e4, epsilon)
        Ap, pAp = ops.apply(p * ops.solved())
        near(Ap, J.T @ (J @ (p * ops.solved())), 1e4, epsilon)
        near(pAp, np.square(J @ (p * ops.solved())).sum(), p @ p, epsilon)
        ops.check_poison()
        found.append(outcomes(ops))
    assert found[0] == found[1] == found[2]
