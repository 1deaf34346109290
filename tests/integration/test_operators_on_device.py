"""Generated routines on GPUs against the dense Jacobian: random energies, graphs in every form, manifolds."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import optpy as op
from optpy.api.device_choice import DeviceChoice
from optpy.api.plan import Solver, build
from optpy.ir import ResidualSchedule, VectorKind
from optpy.kernels.runtime.cuda import executor as cuda_executor
from optpy.kernels.runtime.cuda.device import Device
from optpy.kernels.runtime.cuda.executor import CudaExecutor
from tests.integration.test_graph_operators import SIZES as GRAPH_SIZES
from tests.integration.test_graph_operators import data_of_mesh, mesh_energy, possible
from tests.integration.test_graph_rows import ENERGIES, check_all_sizes
from tests.integration.test_manifolds import EVERYTHING, data_of_everything
from tests.integration.test_operators import (
    KEPT,
    SIZES,
    check_exact_functions,
    data_of_every_function,
    every_function,
    exact_functions,
)
from tests.support.operator_checks import Operators, check_everything, outcomes
from tests.support.random_energies import RandomEnergy, random_energies
from tests.support.random_graphs import RandomGraphEnergy, random_graph_energies
from tests.support.schedules import GATHERS, SCATTERS, Way, by_hand, stencils_by_hand
from tests.support.schedules import STENCILS as KEPT_AT_EDGES

# Not shrunk where they fail: each try compiles for seconds.
EXAMPLES = settings(
    deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)
EVERY_FUNCTION = every_function()
MESH = mesh_energy()

N, H, W, K, L = op.dims("N H W K L")
n, i, j, k, m = op.indices(N, H, W, K, L)


WAYS: tuple[Way, ...] = (None, *GATHERS, KEPT_AT_EDGES[0], "scatter", *SCATTERS)
"""Of residuals over graphs."""


def solver_on(gpu: Device, energy: op.Energy, dtype: str, way: Way = None, deterministic: bool = False) -> Solver:
    """One of its own, by a certain schedule."""
    return build(energy, dtype, by_hand(energy, way), DeviceChoice(gpu, "as asked", deterministic))


def executor(ops: Operators) -> CudaExecutor:
    return cast(CudaExecutor, ops.problem.executor)


# -- grids -----------------------------------------------------------------------------------------------------------


def check_in_float64(gpu: Device, random: RandomEnergy) -> None:
    solver = solver_on(gpu, random.energy, "float64")
    for cycle in SIZES:
        check_everything(random.energy, random.data(random.sizes(*cycle)), solver=solver)
    check_everything(random.energy, random.data(random.long_sizes()), solver=solver)


def check_in_float32(gpu: Device, random: RandomEnergy) -> None:
    solver = solver_on(gpu, random.energy, "float32")
    for cycle in SIZES:
        check_everything(random.energy, random.data(random.sizes(*cycle)), np.float32, 3e-5, solver)


@settings(EXAMPLES, max_examples=4)
@given(random_energies())
def test_every_routine_agrees_with_the_dense_jacobian(gpu: Device, random: RandomEnergy) -> None:
    check_in_float64(gpu, random)


@settings(EXAMPLES, max_examples=3)
@given(random_energies(), st.sampled_from(KEPT), st.sampled_from(["merged", "separate"]))
def test_what_stencils_store_agrees_with_the_dense_jacobian(
    gpu: Device, random: RandomEnergy, way: ResidualSchedule, terms: str
) -> None:
    by_hand = op.Schedule(residuals=stencils_by_hand(random.energy, way), terms={"*": terms})
    solver = build(random.energy, "float64", by_hand, DeviceChoice(gpu, "as asked", False))
    for cycle in SIZES:
        check_everything(random.energy, random.data(random.sizes(*cycle)), solver=solver)


@settings(EXAMPLES, max_examples=2)
@given(random_energies())
def test_float32_is_as_close_as_its_precision(gpu: Device, random: RandomEnergy) -> None:
    check_in_float32(gpu, random)


@pytest.mark.deep
@settings(EXAMPLES, max_examples=100)
@given(random_energies())
def test_every_routine_of_many_energies(gpu: Device, random: RandomEnergy) -> None:
    check_in_float64(gpu, random)
    check_in_float32(gpu, random)


@pytest.mark.whole_blocks
def test_every_function_of_the_language(gpu: Device) -> None:
    solver = solver_on(gpu, EVERY_FUNCTION, "float64")
    for sizes in ((1, 1, 1), (1, 5, 2), (4, 1, 3), (5, 33, 2), (9, 6, 1)):
        check_everything(EVERY_FUNCTION, data_of_every_function(*sizes), solver=solver)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_are_exact_where_their_formulas_are_not(gpu: Device, dtype: Any) -> None:
    check_exact_functions(dtype, solver_on(gpu, exact_functions(), np.dtype(dtype).name))


def stencils() -> op.Energy:
    """On grids of each rank, also along a single row, and a single number that all read."""
    A1, A2, A3 = op.Array("A1", (N,)), op.Array("A2", (H, W), 3), op.Array("A3", (K, H, W))
    X1, X2, X3 = op.Unknown("X1", (N,)), op.Unknown("X2", (H, W), 3), op.Unknown("X3", (K, H, W))
    M, s = op.Array("M", (H, W), dtype=bool), op.Unknown("s", (), 2)
    return op.Energy(
        fit=[X1[n] - A1[n], X2[i, j] - A2[i, j], s[()][0] * X3[k, i, j] - A3[k, i, j]],
        near=[X1[n + 2] - X1[n - 1], X2[i, j] - X2[i + 1, j + 1], X3[k, i, j] - X3[k - 1, i, j + 2]],
        single=s[()][0] * s[()][1] - 1,
        fixed={X2: M[i, j], X1: A1[n] > 0.9},
    )


def data_of_stencils(length: int, height: int, width: int, depth: int) -> dict[str, Any]:
    rng = np.random.default_rng(length + width)
    shapes: dict[str, tuple[int, ...]] = {
        "X1": (length,), "A1": (length,), "X2": (height, width, 3), "A2": (height, width, 3),
        "X3": (depth, height, width), "A3": (depth, height, width),
    }  # fmt: skip
    made: dict[str, Any] = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    return made | dict(M=rng.random((height, width)) < 0.3, s=np.array([0.5, -2]))


STENCILS = stencils()
STENCIL_SIZES = [(1, 1, 1, 1), (31, 1, 32, 2), (32, 9, 1, 1), (33, 8, 33, 1), (600, 17, 65, 1), (5, 3, 4, 5)]


@pytest.mark.parametrize(("dtype", "epsilon"), [("float64", 1e-11), ("float32", 3e-5)])
def test_grids_of_every_rank_within_a_tile_and_beyond(gpu: Device, dtype: str, epsilon: float) -> None:
    solver = solver_on(gpu, STENCILS, dtype)
    for sizes in STENCIL_SIZES if dtype == "float64" else STENCIL_SIZES[3:4]:
        check_products_of(solver, STENCILS, data_of_stencils(*sizes), dtype, epsilon)


def check_products_of(solver: Solver, energy: op.Energy, data: dict[str, Any], dtype: str, epsilon: float) -> None:
    """As ``check_everything``; with a sparse Jacobian where that would be too large."""
    if sum(v.size for v in data.values()) < 4000:
        check_everything(energy, data, np.dtype(dtype), epsilon, solver)
        return
    ops, J = Operators(energy, data, np.dtype(dtype), 1, solver), energy.jacobian(data)
    F = np.concatenate([r.ravel() for r in energy.residuals(data).values()])
    assert ops.problem.evaluate().total == pytest.approx(0.5 * F @ F, rel=epsilon)
    for preconditioner in ("jacobi", "block_jacobi"):
        assert ops.linearise(preconditioner) == pytest.approx(np.abs(J.T @ F).max(), rel=100 * epsilon)
        np.testing.assert_allclose(ops.get(VectorKind.G), J.T @ F, atol=100 * epsilon)
    p = np.random.default_rng(0).standard_normal(J.shape[1]) * ops.solved()
    Ap, pAp = ops.apply(p)
    np.testing.assert_allclose(Ap, J.T @ (J @ p), atol=100 * epsilon)
    assert pAp == pytest.approx(np.sum((J @ p) ** 2), rel=epsilon)
    ops.check_poison()


@pytest.mark.parametrize("size", [1, 2, 3, 70])
def test_what_reads_one_point_beside_its_own_has_a_border(gpu: Device, size: int) -> None:
    """J^T J is diagonal there, but 0 at the points that no residual reads."""
    X = op.Unknown("X", (N,))
    energy = op.Energy(r=2 * X[n + 2])
    data = dict(X=np.random.default_rng(0).normal(size=size))
    check_everything(energy, data, solver=solver_on(gpu, energy, "float64"))


def test_unknowns_of_no_dims_alone(gpu: Device) -> None:
    s, t = op.Unknown("s", (), 3), op.Unknown("t", ())
    energy = op.Energy(a=op.sin(s[()]) * t[()] - 1, b=t[()] ** 2 - 2)
    check_everything(energy, dict(s=np.array([0.5, 2, -1]), t=np.array(0.7)), solver=solver_on(gpu, energy, "float64"))


@pytest.mark.parametrize("deterministic", [False, True])
def test_indices_of_64_bits(gpu: Device, deterministic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_executor, "SHORT_INDICES", 0)
    for energy, data in (
        (STENCILS, data_of_stencils(33, 3, 40, 2)),
        (TIES, data_of_ties(20, 50)),
    ):
        solver = solver_on(gpu, energy, "float64", deterministic=deterministic)
        assert executor(Operators(energy, data, np.float64, 1, solver)).index == "long long"
        check_everything(energy, data, solver=solver)


def ties() -> op.Energy:
    """Edges and triangles between the same points, whose numbers stand side by side; one is held."""
    X, T, A, w = op.Unknown("X", (N,), 3), op.Unknown("T", (N,)), op.Array("A", (N,), 3), op.Array("w", (L,))
    F = op.Dim("F")
    f = op.indices(F)
    a, b = op.Graph("edges", L, (N, N))[m]
    p, q, r = op.Graph("triangles", F, (N, N, N))[f]
    return op.Energy(
        fit=X[n] - A[n],
        tie=w[m] * (X[a] - X[b] - op.sin(T[a]) * (A[a] - A[b])),
        bend=op.dot(X[p] - X[q], X[p] - X[r]) * T[p],
        fixed={X: op.value(n) == 2},
    )


def data_of_ties(points: int, edges: int) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return dict(
        X=rng.normal(size=(points, 3)), T=rng.normal(size=points), A=rng.normal(size=(points, 3)),
        w=rng.uniform(1, 2, edges), edges=rng.integers(0, points, (edges, 2)),
        triangles=rng.integers(0, points, (2 * edges, 3)),
    )  # fmt: skip


TIES = ties()

# -- local sums ------------------------------------------------------------------------------------------------------


def window() -> op.Energy:
    """Every number of Y is read by a whole image, every row of it by all its pixels."""
    X, Y, G = op.Unknown("X", (H, W), 2), op.Unknown("Y", (K,)), op.Array("G", (K,))
    R, s = op.Unknown("R", (H,), 2), op.Unknown("s", ())
    return op.Energy(
        window=G[k] * X[i, j + k][0] * op.sin(Y[k]) - X[i, j][1],
        row=R[i] * X[i, j] - s[()],
        tie=Y[k] - s[()] * G[k],
        fixed={R: op.value(i) == 1},
    )


WINDOW = window()
LANES = {1: (10**9, 10**9), 32: (1, 10**9), 256: (1, 1)}
"""The lengths of loops from which a warp and a block work on a point, for so many lanes everywhere."""


def lanes_of(ops: Operators) -> set[int]:
    """Threads to a point, of all kernels."""
    return {1 << int(bits) for bits in executor(ops).context.lane_bits}


def everywhere(lanes: int, patch: pytest.MonkeyPatch) -> None:
    short, long = LANES[lanes]
    patch.setattr(cuda_executor, "WARP_LENGTH", short)
    patch.setattr(cuda_executor, "BLOCK_LENGTH", long)


@pytest.mark.whole_blocks
@pytest.mark.parametrize("lanes", LANES)
def test_local_sums_by_threads_warps_and_blocks(gpu: Device, lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere(lanes, monkeypatch)
    solver = solver_on(gpu, WINDOW, "float64")
    rng = np.random.default_rng(3)
    for height, width, reach in ((1, 1, 1), (3, 35, 4), (11, 3, 2)):
        data = dict(
            X=rng.normal(size=(height, width, 2)), Y=rng.normal(size=reach), G=rng.normal(size=reach),
            R=rng.normal(size=(height, 2)), s=np.array(0.4),
        )  # fmt: skip
        ops = Operators(WINDOW, data, np.float64, 1, solver)
        assert lanes in lanes_of(ops) <= {1, lanes}
        check_everything(WINDOW, data, solver=solver)


@pytest.mark.parametrize("lanes", LANES)
def test_edges_around_a_point_by_threads_warps_and_blocks(
    gpu: Device, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere(lanes, monkeypatch)
    solver = solver_on(gpu, TIES, "float64", deterministic=True)
    for sizes in ((3, 1), (12, 90)):
        check_everything(TIES, data_of_ties(*sizes), solver=solver)


@pytest.mark.whole_blocks
def test_long_sums_are_shared_among_more_threads(gpu: Device) -> None:
    solver = solver_on(gpu, WINDOW, "float64")
    rng = np.random.default_rng(3)
    found = set()
    for width in (3, 40, 3000):
        data = dict(
            X=rng.normal(size=(1, width, 2)), Y=rng.normal(size=2), G=rng.normal(size=2),
            R=rng.normal(size=(1, 2)), s=np.array(0.4),
        )  # fmt: skip
        found |= lanes_of(Operators(WINDOW, data, np.float64, 1, solver))
    assert found == {1, 32, 256}


# -- graphs ----------------------------------------------------------------------------------------------------------


def check_graph(gpu: Device, random: RandomGraphEnergy, way: Way, deterministic: bool) -> None:
    deterministic &= way not in ("scatter", *SCATTERS)  # which needs atomic additions
    solver = solver_on(gpu, random.energy, "float64", way, deterministic)
    for sizes in GRAPH_SIZES:
        if possible(random.energy, sizes):
            check_everything(random.energy, random.data(**sizes), solver=solver)


@settings(EXAMPLES, max_examples=5)
@given(random_graph_energies(), st.sampled_from(WAYS), st.booleans())
def test_every_form_of_random_graphs_agrees_with_the_dense_jacobian(
    gpu: Device, random: RandomGraphEnergy, way: Way, deterministic: bool
) -> None:
    check_graph(gpu, random, way, deterministic)


@pytest.mark.deep
@settings(EXAMPLES, max_examples=200)
@given(random_graph_energies(), st.sampled_from(WAYS), st.booleans())
def test_every_form_of_many_graphs(gpu: Device, random: RandomGraphEnergy, way: Way, deterministic: bool) -> None:
    check_graph(gpu, random, way, deterministic)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_form_of_edges(gpu: Device, way: Way) -> None:
    solver = solver_on(gpu, TIES, "float64", way)
    for sizes in ((3, 1), (20, 50)):
        check_everything(TIES, data_of_ties(*sizes), solver=solver)


@pytest.mark.parametrize("way", [GATHERS[0], "scatter"], ids=str)
def test_edges_triangles_wedges_and_pixels(gpu: Device, way: Way) -> None:
    solver = solver_on(gpu, MESH, "float64", way)
    for sizes in ((3, 1), (20, 50)):
        check_everything(MESH, data_of_mesh(*sizes), solver=solver)


@pytest.mark.parametrize("way", [GATHERS[0], "scatter"], ids=str)
def test_float32_over_edges_is_as_close_as_its_precision(gpu: Device, way: Way) -> None:
    solver = solver_on(gpu, TIES, "float32", way)
    check_everything(TIES, data_of_ties(20, 50), np.float32, 3e-5, solver)


def test_edges_that_loop_and_repeat_add_up(gpu: Device) -> None:
    X = op.Unknown("X", (N,))
    a, b, c = op.Graph("g", L, (N, N, N))[m]
    energy = op.Energy(r=X[a] * X[b] - 2 * X[c])
    edges = np.array([[1, 1, 1], [0, 1, 1], [0, 1, 1], [2, 0, 2]])
    for way in (GATHERS[0], "scatter"):
        solver = solver_on(gpu, energy, "float64", way)
        check_everything(energy, dict(X=np.array([0.5, -1.5, 2.0, 7.0]), g=edges), solver=solver)


def test_without_edges_nothing_is_added(gpu: Device) -> None:
    X = op.Unknown("X", (N,))
    a, b = op.Graph("g", L, (N, N))[m]
    energy = op.Energy(r=X[a] - X[b], fit=0.5 * X[n] - 1)
    for way in (GATHERS[0], "scatter"):
        solver = solver_on(gpu, energy, "float64", way)
        check_everything(energy, dict(X=np.array([0.5, -1.5]), g=np.zeros((0, 2), int)), solver=solver)


# -- manifolds -------------------------------------------------------------------------------------------------------


def test_manifolds(gpu: Device) -> None:
    solver = solver_on(gpu, EVERYTHING, "float64")
    for size in ((1, 1), (3, 2), (2, 35)):
        check_everything(EVERYTHING, data_of_everything(*size), epsilon=1e-10, solver=solver)


# -- the same bits ---------------------------------------------------------------------------------------------------


def test_without_atomics_the_same_bits_come_out_every_time(gpu: Device) -> None:
    for energy, data in (
        (TIES, data_of_ties(30, 3000)),
        (STENCILS, data_of_stencils(600, 17, 65, 1)),
    ):
        solver = solver_on(gpu, energy, "float32", deterministic=True)
        first, second = (outcomes(Operators(energy, data, np.float32, 1, solver)) for _ in range(2))
        assert first == second


@pytest.mark.parametrize("way", [GATHERS[0], "scatter"], ids=str)
@pytest.mark.parametrize("name", ["vertices by edges", "both graphs", "far outside"])
def test_edges_may_read_what_stands_on_other_edges(gpu: Device, name: str, way: Way) -> None:
    check_all_sizes(ENERGIES[name], solver_on(gpu, ENERGIES[name], "float64", way))
