"""Preconditioners that work on the assembled J^T J: solves against the dense matrix, on graphs of every shape."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import trimesh

import optpy as op
from optpy.api.problem import CompiledProblem
from optpy.ir import VectorKind
from optpy.kernels.runtime import executor
from optpy.linear.aggregation.levels import AlgebraicMultigrid
from optpy.linear.aggregation.record import AGGREGATION
from optpy.linear.assembled import applicability
from optpy.linear.assembled.assembly import Assembly
from optpy.linear.cholesky import factorisation as cholesky
from optpy.linear.cholesky import solve as cholesky_solve
from optpy.linear.driver import LinearSolver
from optpy.linear.multigrid.solve import MultigridSolve
from optpy.solver.protocol import Damping, LinearLimits, LinearStatus
from problems import mesh_deformation, pose_graph
from tests.support.bound_problem import bound_problem

pytestmark = pytest.mark.applications

V, E, H, W = op.dims("V E H W")
v, e = op.indices(V, E)
DAMPED = Damping(10.0, 1e-6, 1e32, jacobi_scaling=True)
KINDS = ["multigrid", "cholesky"]


@pytest.fixture(scope="module", autouse=True)
def _threads_for_small_work() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "ACCESSES_PER_THREAD", 1)
        patch.setattr(cholesky, "SHARED_BUILD", 0)
        patch.setattr(cholesky, "SHARED_SOLVE", 0)
        yield


@functools.cache
def uneven() -> op.Energy:
    """Unknowns of one, two and three channels on vertices, read by edges of three ends, some fixed."""
    X, Y, Q = op.Unknown("X", (V,), 3), op.Unknown("Y", (V,)), op.Unknown("Q", (V,), op.SO2)
    A = op.Array("A", (V,), 3)
    held = op.Array("held", (V,), dtype=bool)
    a, b, c = op.Graph("edges", E, (V, V, V))[e]
    turned = Q[a] @ (X[b][:2] - X[c][:2])
    return op.Energy(
        fit=0.3 * (X[v] - A[v]),
        height=0.2 * Y[v] - A[v][2],
        bend=X[a] - 2 * X[b] + X[c],
        wave=op.sin(Y[a]) - Y[b] * X[c][0],
        turn=turned - (A[b][:2] - A[c][:2]),
        fixed={X: held[v]},
    )


def uneven_data(vertices: int, edges: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    angle = rng.uniform(-3, 3, vertices)
    return dict(
        X=rng.normal(size=(vertices, 3)), Y=rng.normal(size=vertices), Q=np.stack([np.cos(angle), np.sin(angle)], 1),
        A=rng.normal(size=(vertices, 3)), held=rng.random(vertices) < 0.2,
        edges=rng.integers(0, vertices, (edges, 3)),
    )  # fmt: skip


@functools.cache
def strided() -> op.Energy:
    """A grid whose points are coupled at distances that grow."""
    i = op.indices(W)
    X, A = op.Unknown("X", (W,)), op.Array("A", (W,))
    return op.Energy(fit=0.1 * (X[i] - A[i]), far=X[i] - X[2 * i + 1] - 0.1)


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "uneven": (uneven, uneven_data(60, 150)),
    "isolated vertices": (uneven, uneven_data(90, 12)),
    "no edges": (uneven, uneven_data(7, 0)),
    "one vertex": (uneven, uneven_data(1, 2)),
    "strided": (strided, dict(X=np.zeros(40), A=np.sin(np.arange(40.0)))),
}


def prepared(energy: op.Energy, data: dict[str, Any], kind: Any, threads: int = 1) -> CompiledProblem:
    """A problem that is ready for its first linear solve."""
    problem = bound_problem(op.compile(energy, dtype=np.float64), data, threads=threads)
    problem.set_preconditioner(kind)
    problem.linearise()
    problem.damp(DAMPED)
    return problem


def step(problem: CompiledProblem) -> np.ndarray:
    return np.concatenate([problem.read_vector(VectorKind.DELTA, u).ravel() for u in problem.unknowns])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_a_linear_solve_gives_the_step_of_the_dense_matrix(name: str, kind: str) -> None:
    make, data = CASES[name]
    energy = make()
    problem = prepared(energy, data, kind, threads=2)
    summary = problem.solve_linear(LinearLimits(200, r_tolerance=1e-13))
    J = energy.jacobian(data).toarray()
    F = np.concatenate([r.ravel() for r in energy.residuals(data, linearised=True).values()])
    c = (J**2).sum(axis=0)
    solved = c > 0
    A = (J.T @ J + np.diag(DAMPED.diagonal(c)))[np.ix_(solved, solved)]
    expected = np.zeros(len(c))
    expected[solved] = np.linalg.solve(A, -(J.T @ F)[solved])
    np.testing.assert_allclose(step(problem), expected, atol=1e-9 * (1 + np.abs(expected).max()))
    assert summary.status in (LinearStatus.CONVERGED, LinearStatus.BREAKDOWN)
    assert summary.iterations <= (3 if kind == "cholesky" else 60)


@pytest.mark.parametrize("kind", KINDS)
def test_the_step_does_not_depend_on_the_number_of_threads(kind: str) -> None:
    data = uneven_data(300, 750)
    steps = []
    for threads in (1, 2, 3):
        problem = prepared(uneven(), data, kind, threads)
        problem.solve_linear(LinearLimits(5))
        steps.append(step(problem))
    assert np.array_equal(steps[0], steps[1])
    assert np.array_equal(steps[0], steps[2])


PRECISE: dict[str, Any] = dict(function_tolerance=1e-9, max_iterations=300)


@functools.cache
def waves() -> tuple[op.Energy, dict[str, Any], float]:
    """A membrane that waves, weakly tied to where its vertices were; and its least cost, by block Jacobi."""
    X, A, held = op.Unknown("X", (V,), 3), op.Array("A", (V,), 3), op.Array("held", (V,), dtype=bool)
    a, b = op.Graph("springs", E, (V, V))[e]
    wave = 0.1 * op.sin(3 * (X[a] + X[b]))
    energy = op.Energy(tie=0.03 * (X[v] - A[v]), spring=X[a] - X[b] - wave, fixed={X: held[v]})
    mesh = trimesh.creation.box().subdivide().subdivide().subdivide()
    x = np.asarray(mesh.vertices)
    data = dict(X=x, A=x + 0.3 * np.sin(5 * x[:, ::-1]), held=x[:, 2] > 0.49, springs=mesh.edges_unique)
    found = op.solve(energy, data, dtype="float64", preconditioner="block_jacobi", eta=1e-8, **PRECISE)
    return energy, data, found.cost


@pytest.mark.optimised  # its solves take longer than the compiler
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["auto", *KINDS])
def test_solves_end_where_those_with_block_jacobi_end(kind: str, dtype: str) -> None:
    energy, data, expected = waves()
    found = op.solve(energy, data, dtype=dtype, preconditioner=kind, **PRECISE)
    assert found.success
    np.testing.assert_allclose(found.cost, expected, rtol=1e-4)


@pytest.mark.parametrize("kind", ["auto", *KINDS])
def test_a_session_takes_other_edges_and_other_sizes(kind: str) -> None:
    """The same steps as those of a solve that begins with these edges."""
    energy = uneven()
    options: dict[str, Any] = dict(preconditioner=kind, max_iterations=30)
    session = op.compile(energy, dtype="float64").start(uneven_data(60, 150), **options)
    session.run()
    for data in (uneven_data(60, 105, seed=1), uneven_data(40, 120, seed=2)):
        session.update(**data)
        session.run()
        fresh = op.solve(energy, data, dtype="float64", **options)
        assert session.result().nit == fresh.nit
        np.testing.assert_allclose(session.result().cost, fresh.cost, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_free_gauge_is_no_obstacle(kind: str) -> None:
    X, D = op.Unknown("X", (V,)), op.Array("D", (E,))
    a, b = op.Graph("edges", E, (V, V))[e]
    n = 400
    edges = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    data = dict(X=np.zeros(n), D=np.cos(np.arange(n - 1.0)), edges=edges)
    for method in ("gn", "lm"):
        result = op.solve(op.Energy(d=X[b] - X[a] - D[e]), data, dtype="float64", preconditioner=kind, method=method)
        assert result.cost < 1e-12
        assert result.success


def torus(size: int) -> dict[str, Any]:
    ring = trimesh.creation.torus(major_radius=1.0, minor_radius=0.4, major_sections=size, minor_sections=size)
    return mesh_deformation.deformation(ring).data("euler")


@pytest.mark.optimised  # its solves take longer than the compiler
def test_multigrid_knows_rigid_motions() -> None:
    """As-rigid-as-possible meshes take about as many iterations at any size; without rotations they take many more."""
    iterations = {}
    for size in (24, 48):
        problem = prepared(mesh_deformation.euler, torus(size), "multigrid")
        problem.damp(Damping(1e6, 1e-6, 1e32, jacobi_scaling=True))
        iterations[size] = problem.solve_linear(LinearLimits(200, r_tolerance=1e-6)).iterations
        assert isinstance(problem.linear_solver, LinearSolver)
        multigrid = problem.linear_solver.method(AGGREGATION)
        assert isinstance(multigrid, MultigridSolve)
        assert isinstance(multigrid.levels, AlgebraicMultigrid)
        assert multigrid.levels.turning == range(3)
    assert iterations[48] <= iterations[24] + 6
    assert iterations[48] <= 40


@pytest.mark.optimised  # its solves take longer than the compiler
@pytest.mark.parametrize("method", ["gn", "lm"])
def test_a_factorisation_is_as_good_in_float32(method: str) -> None:
    """The weakest direction of so long a walk is as weak as the rounding of its matrix to float32."""
    data = pose_graph.synthetic_walk(2, rounds=2, steps=10_000).graph.data
    options: dict[str, Any] = dict(preconditioner="cholesky", method=method, max_iterations=30)
    exact, found = (op.solve(pose_graph.plane, data, dtype=d, **options) for d in ("float64", "float32"))
    assert found.success
    assert all(r.linear_iterations <= 3 for r in found.iterations)
    np.testing.assert_allclose(found.cost, exact.cost, rtol=1e-5)


@pytest.mark.optimised  # its solves take longer than the compiler
def test_auto_factorises_what_is_cheap_and_builds_levels_for_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    data = torus(24)
    result = op.solve(mesh_deformation.euler, data, max_iterations=4)
    assert result.facts["Preconditioners used"] == "block_jacobi, then cholesky"
    monkeypatch.setattr(cholesky_solve, "CHEAP", 0)
    result = op.solve(mesh_deformation.euler, data, max_iterations=4)
    assert result.facts["Preconditioners used"] == "block_jacobi, then multigrid"


def test_an_easy_solve_assembles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Assembly, "__init__", lambda *_: pytest.fail("assembled"))
    X, A = op.Unknown("X", (V,)), op.Array("A", (V,))
    a, b = op.Graph("edges", E, (V, V))[e]
    energy = op.Energy(fit=5 * (X[v] - A[v]), smooth=X[a] - X[b])
    edges = np.stack([np.arange(99), np.arange(1, 100)], axis=1)
    result = op.solve(energy, dict(X=np.zeros(100), A=np.arange(100.0) % 7, edges=edges))
    assert result.success
    assert result.facts["Preconditioners used"] in ("jacobi", "block_jacobi")


def test_levels_of_quite_another_linearisation_are_built_again() -> None:
    X, A = op.Unknown("X", (V,), 2), op.Array("A", (V,), 2)
    s = op.params("s")
    a, b = op.Graph("edges", E, (V, V))[e]
    energy = op.Energy(
        fit=0.1 * (X[v] - A[v]), smooth=op.where(X[v][0] >= -1e30, 1, 0) * s * A[v], far=s * (X[a] - X[b])
    )
    rng = np.random.default_rng(0)
    data = dict(X=np.zeros((500, 2)), A=rng.normal(size=(500, 2)), edges=rng.integers(0, 500, (1500, 2)), s=1.0)
    session = op.compile(energy, dtype="float64").start(data, preconditioner="multigrid")
    session.run()
    session.update(s=1e4, X=rng.normal(size=(500, 2)))
    session.run()
    fresh = op.solve(energy, {**data, "s": 1e4}, dtype="float64", preconditioner="jacobi", eta=1e-10)
    np.testing.assert_allclose(session.result().cost, fresh.cost, rtol=1e-7)


def test_cholesky_is_refused_where_nothing_is_assembled() -> None:
    X, Y = op.Unknown("X", (V,)), op.Unknown("Y", (E,))
    a, b = op.Graph("edges", E, (V, V))[e]
    energy = op.Energy(d=X[a] - X[b] - Y[e], y=Y[e] - 1, x=X[v])
    data = dict(X=np.zeros(3), Y=np.zeros(2), edges=[[0, 1], [1, 2]])
    with pytest.raises(op.OptionError, match="'X' and 'Y' stand on different grids"):
        op.solve(energy, data, preconditioner="cholesky")
    with pytest.raises(op.OptionError, match="on different grids"):
        op.solve(energy, data, preconditioner="multigrid")
    assert math.isclose(op.solve(energy, data).cost, op.solve(energy, data, preconditioner=None).cost, rel_tol=1e-5)


def test_a_matrix_that_would_be_too_large_is_not_assembled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applicability, "MOST_BLOCKS", 100)
    data = uneven_data(60, 150)
    with pytest.raises(op.OptionError, match="too many to assemble"):
        op.solve(uneven(), data, preconditioner="cholesky")
    assert "cholesky" not in op.solve(uneven(), data).facts["Preconditioners used"]
