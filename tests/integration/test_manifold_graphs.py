"""Unknowns on manifolds read through graphs: pose graphs and bundles, every form against the dense Jacobian."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api.plan import build
from optpy.energy.gradients import check_gradients
from tests.support.manifold_data import Real, plane_poses, pose_matrices, poses, unit_vectors
from tests.support.operator_checks import check_everything
from tests.support.schedules import GATHERS, Way, by_hand

pytestmark = pytest.mark.native

V, P, E, N = op.dims("V P E N")
e, n = op.indices(E, N)

SIZES = [dict(V=1, P=1, E=1, N=1), dict(V=7, P=5, E=9, N=20), dict(V=4, P=3, E=0, N=6)]


@functools.cache
def mixed() -> op.Energy:
    """Poses between which edges measure, landmarks seen from them, a direction and a bias on every edge."""
    T3, T2 = op.Unknown("T3", (V,), op.SE3), op.Unknown("T2", (V,), op.SE2)
    X, bias = op.Unknown("X", (P,), 3), op.Unknown("bias", (E,), op.SO3)
    d = op.Unknown("d", (E,), op.UnitVector(3))
    Z, seen = op.Array("Z", (E,), op.SE3), op.Array("seen", (N,), 2)
    a, b = op.Graph("edges", E, (V, V))[e]
    v, p = op.Graph("obs", N, (V, P))[n]
    q = T3[v] @ X[p]
    k = op.indices(V)
    return op.Energy(
        fixed={T3: op.value(k) == 0},
        between=(Z[e].inverse() @ T3[a].inverse() @ T3[b]).log(),
        plane=(T2[a].inverse() @ T2[b]).log(),
        bias=bias[e] @ T3[a].translation - T3[b].translation,
        direction=op.cross(d[e], T3[b].translation - T3[a].translation),
        seen=q[:2] / (4 + q[2] ** 2) - seen[n],
    )


def data(V: int, P: int, E: int, N: int) -> dict[str, Any]:
    rng = np.random.default_rng(V)
    return dict(
        T3=poses(rng, V), T2=plane_poses(rng, V), X=rng.normal(size=(P, 3)), bias=unit_vectors(rng, E, 4),
        d=unit_vectors(rng, E, 3), Z=poses(rng, E), seen=rng.normal(size=(N, 2)),
        edges=rng.integers(0, V, (E, 2)),
        obs=np.stack([rng.integers(0, V, N), rng.integers(0, P, N)], axis=1),
    )  # fmt: skip


@pytest.mark.parametrize("way", [None, *GATHERS])
def test_every_routine_agrees_with_the_dense_jacobian(way: Way) -> None:
    solver = build(mixed(), "float64", by_hand(mixed(), way))
    for sizes in SIZES:
        check_everything(mixed(), data(**sizes), epsilon=1e-10, solver=solver)


def test_the_jacobian_agrees_with_differences() -> None:
    for sizes in SIZES:
        assert check_gradients(mixed(), data(**sizes), 1e-5)


# -- pose graphs -----------------------------------------------------------------------------------------------------


@functools.cache
def pose_graph() -> op.Energy:
    T, Z = op.Unknown("T", (V,), op.SE3), op.Array("Z", (E,), op.SE3)
    a, b = op.Graph("edges", E, (V, V))[e]
    k = op.indices(V)
    return op.Energy(between=(Z[e].inverse() @ T[a].inverse() @ T[b]).log(), fixed={T: op.value(k) == 0})


def loop(vertices: int, seed: int = 0) -> tuple[Real, dict[str, Any]]:
    """The true poses as matrices, and data that measures them without noise, from a rough start."""
    rng = np.random.default_rng(seed)
    truth = pose_matrices(poses(rng, vertices))
    edges = np.stack([np.arange(vertices), (np.arange(vertices) + 1) % vertices], axis=1)
    between = np.linalg.inv(truth[edges[:, 0]]) @ truth[edges[:, 1]]
    error = np.concatenate([0.05 * rng.normal(size=(vertices, 3)), np.ones((vertices, 1))], axis=1)
    rough = np.concatenate([error / np.linalg.norm(error, axis=1, keepdims=True), 0 * error[:, :3]], axis=1)
    start = pose_matrices(rough) @ truth
    start[0] = truth[0]
    return truth, dict(T=start, Z=between, edges=edges)


@pytest.mark.parametrize("method", ["gn", "lm"])
@pytest.mark.parametrize("preconditioner", ["jacobi", "block_jacobi"])
def test_a_pose_graph_without_noise_finds_the_truth(method: Any, preconditioner: Any) -> None:
    truth, d = loop(12)
    result = op.solve(
        pose_graph(), d, method=method, preconditioner=preconditioner, dtype=np.float64, eta=1e-6, max_iterations=60
    )
    assert result.cost < 1e-16
    np.testing.assert_allclose(result.x["T"], truth, atol=1e-6)


def test_a_session_takes_graphs_of_other_sizes_and_poses_in_either_form() -> None:
    solver = op.compile(pose_graph(), dtype=np.float64)
    _, d = loop(12)
    session = solver.start(d, eta=1e-6)
    session.run()
    larger, other = loop(15, seed=1)
    session.update(**other)
    session.run()
    np.testing.assert_allclose(session["T"], larger, atol=1e-6)
    session.update(T=poses(np.random.default_rng(2), 15))
    assert session["T"].shape == (15, 7)


def test_measurements_of_no_edges_may_be_matrices() -> None:
    _, d = loop(3)
    d |= dict(Z=d["Z"][:0], edges=d["edges"][:0])
    assert pose_graph().cost(d) == 0
    assert op.solve(pose_graph(), d).x["T"].shape == (3, 4, 4)
