"""Generated routines over hyper-edges against the dense Jacobian, in every form, on random energies and by hand."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import optpy as op
from optpy.api.pipeline import derive
from optpy.api.plan import build
from optpy.energy.gradients import check_gradients
from optpy.ir import Group
from optpy.kernels.runtime import executor
from optpy.kernels.toolchain.compiler import compile_c
from tests.integration.test_operators import COMPILERS
from tests.support.deep import but_deep
from tests.support.kernel_flags import Flags, checked, compiled_with, flags_behind, quick
from tests.support.operator_checks import Operators, check_everything, outcomes
from tests.support.random_graphs import RandomGraphEnergy, random_graph_energies
from tests.support.schedules import GATHERS, STENCILS, Way, by_hand, routines_of

pytestmark = pytest.mark.native

WAYS = [*GATHERS, *STENCILS]
"""With nothing stored, J, J p, both; with J^T J, and with J beside it."""

EXAMPLES = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
SIZES = [dict(V=1, H=1, W=1, E=1, F=1), dict(V=5, H=2, W=3, E=7, F=4), dict(V=4, H=3, W=1, E=0, F=6)]

V, H, W, E, N, C = op.dims("V H W E N C")
v, e, o = op.indices(V, E, N)
i, j = op.indices(H, W)


@pytest.fixture(scope="module", autouse=True)
def _threads_for_small_work() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "ACCESSES_PER_THREAD", 1)
        yield


def possible(energy: op.Energy, sizes: dict[str, int]) -> bool:
    """Whether slots that point into edges have edges to point at."""
    return all(sizes[d.name] or not sizes[g.edges.name] for g in energy.graphs for d in g.columns)


def check_form(random: RandomGraphEnergy, way: Way) -> None:
    """At all sizes that are possible."""
    solver = build(random.energy, "float64", by_hand(random.energy, way))
    for sizes in SIZES:
        if possible(random.energy, sizes):
            check_everything(random.energy, random.data(**sizes), solver=solver)


@settings(EXAMPLES, max_examples=8)
@given(random_graph_energies(), st.sampled_from(WAYS))
def test_every_form_of_random_energies_agrees_with_the_dense_jacobian(random: RandomGraphEnergy, way: Way) -> None:
    check_form(random, way)


@pytest.mark.deep
@pytest.mark.parametrize("flags", [tuple, checked], ids=["as for users", "undefined behaviour ends it"])
@settings(EXAMPLES, max_examples=200)
@given(random=random_graph_energies(), way=st.sampled_from(WAYS))
def test_every_form_of_many_energies(flags: Flags, random: RandomGraphEnergy, way: Way) -> None:
    with compiled_with(flags):
        check_form(random, way)


@settings(EXAMPLES, max_examples=20)
@given(random_graph_energies())
def test_the_jacobian_agrees_with_differences(random: RandomGraphEnergy) -> None:
    for sizes in SIZES:
        if possible(random.energy, sizes):
            assert check_gradients(random.energy, random.data(**sizes), 1e-5)


# -- single energies -------------------------------------------------------------------------------------------------


@functools.cache
def bundle_adjustment() -> op.Energy:
    """Cameras of 7 and points of 3, one edge for each observation."""
    P = op.Dim("P")
    cameras, points = op.Unknown("Camera", (C,), 7), op.Unknown("Point", (P,), 3)
    seen = op.Array("Seen", (N,), 2)
    c, p = op.Graph("obs", N, (C, P))[o]
    camera = cameras[c]
    q = op.rotate_axis_angle(camera[:3], points[p]) + camera[3:6]
    return op.Energy(reprojection=camera[6] * q[:2] / q[2] - seen[o])


def data_of_bundle_adjustment(cameras: int, points: int, observations: int) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return dict(
        Camera=np.concatenate([rng.normal(0, 0.1, (cameras, 3)), rng.normal(0, 0.1, (cameras, 2)),
                               rng.uniform(4, 5, (cameras, 1)), rng.uniform(1, 2, (cameras, 1))], axis=1),
        Point=rng.uniform(-1, 1, (points, 3)),
        Seen=rng.normal(size=(observations, 2)),
        obs=np.stack([rng.integers(0, cameras, observations), rng.integers(0, points, observations)], axis=1),
    )  # fmt: skip


@pytest.mark.parametrize("way", [None, *WAYS])
def test_bundle_adjustment(way: Way) -> None:
    energy = bundle_adjustment()
    solver = build(energy, "float64", by_hand(energy, way))
    for sizes in ((1, 1, 1), (3, 10, 40)):
        check_everything(energy, data_of_bundle_adjustment(*sizes), solver=solver)


def test_what_is_dear_is_stored_and_what_is_cheap_is_not() -> None:
    energy = bundle_adjustment()
    routines = routines_of(energy).groups
    assert "J.reprojection" in {a.field.name for r in routines[Group.PRODUCT] for a in r.accesses()}
    X, A = op.Unknown("X", (V,), 3), op.Array("A", (V,), 3)
    a, b = op.Graph("edges", E, (V, V))[e]
    smoothing = op.Energy(fit=X[v] - A[v], reg=X[a] - X[b])
    routines = routines_of(smoothing).groups
    assert Group.JACOBIAN not in routines
    assert len(routines[Group.PRODUCT]) == 1


@functools.cache
def mesh_energy() -> op.Energy:
    """Edges, triangles and wedges of four on one mesh, and a graph into an image."""
    X, Angle = op.Unknown("X", (V,), 3), op.Unknown("Angle", (V,), 3)
    Image, A = op.Unknown("Image", (H, W)), op.Array("A", (V,), 3)
    weight, F_, Q = op.Array("weight", (E,)), op.Dim("F"), op.Dim("Q")
    f, q = op.indices(F_, Q)
    a, b = op.Graph("edges", E, (V, V))[e]
    t = op.Graph("triangles", F_, (V, V, V))[f]
    s = op.Graph("wedges", Q, (V, V, V, V))[q]
    pixel, vertex = op.Graph("match", N, ((H, W), V))[o]
    row, column = pixel
    return op.Energy(
        fit=X[v] - A[v],
        arap=weight[e] * ((X[a] - X[b]) - op.rotate3d(Angle[a], A[a] - A[b])),
        area=op.norm(op.cross(X[t[1]] - X[t[0]], X[t[2]] - X[t[0]])) - 1,
        bend=op.dot(X[s[0]] - X[s[1]], X[s[2]] - X[s[3]]),
        match=op.vector(Image[pixel] - X[vertex][2], Image[row, column + 1] - op.value(row)),
        smooth=0.5 * (Image[i, j] - Image[i + 1, j]),
        fixed={X: op.value(v) == 2},
    )


def data_of_mesh(vertices: int, edges: int) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    h, w = 4, 40
    return dict(
        X=rng.normal(size=(vertices, 3)), Angle=rng.normal(size=(vertices, 3)), A=rng.normal(size=(vertices, 3)),
        Image=rng.normal(size=(h, w)), weight=rng.uniform(1, 2, edges),
        edges=rng.integers(0, vertices, (edges, 2)),
        triangles=np.array([rng.permutation(vertices)[:3] for _ in range(edges)], np.uint32),
        wedges=rng.integers(0, vertices, (edges, 4)).astype(np.int32),
        match=np.stack([rng.integers(0, h, edges), rng.integers(0, w, edges), rng.integers(0, vertices, edges)], 1),
    )  # fmt: skip


@pytest.mark.parametrize("way", [None, *WAYS])
def test_edges_triangles_wedges_and_pixels(way: Way) -> None:
    energy = mesh_energy()
    solver = build(energy, "float64", by_hand(energy, way))
    for sizes in ((3, 1), (20, 50)):
        check_everything(energy, data_of_mesh(*sizes), solver=solver)


def test_float32_is_as_close_as_its_precision() -> None:
    check_everything(mesh_energy(), data_of_mesh(20, 50), np.float32, epsilon=3e-5)


def test_edges_that_loop_and_repeat_add_up() -> None:
    X = op.Unknown("X", (V,))
    a, b, c = op.Graph("g", E, (V, V, V))[e]
    energy = op.Energy(r=X[a] * X[b] - 2 * X[c])
    edges = np.array([[1, 1, 1], [0, 1, 1], [0, 1, 1], [2, 0, 2]])
    data = dict(X=np.array([0.5, -1.5, 2.0, 7.0]), g=edges)
    for way in WAYS:
        check_everything(energy, data, solver=build(energy, "float64", by_hand(energy, way)))
    # At the loop d/dx (x^2 - 2x) = 2x - 2.
    J = energy.jacobian(data).toarray()
    np.testing.assert_allclose(J[0], [0, 2 * -1.5 - 2, 0, 0])
    assert not J[:, 3].any()


def test_two_graphs_may_share_their_edges() -> None:
    X, Y = op.Unknown("X", (V,)), op.Unknown("Y", (C,))
    a, b = op.Graph("g", E, (V, V))[e]
    c, d = op.Graph("h", E, (C, V))[e]
    energy = op.Energy(r=X[a] * Y[c] - op.sin(X[b]) + X[d])
    rng = np.random.default_rng(0)
    data = dict(X=rng.normal(size=5), Y=rng.normal(size=3), g=rng.integers(0, 5, (9, 2)),
                h=np.stack([rng.integers(0, 3, 9), rng.integers(0, 5, 9)], axis=1))  # fmt: skip
    for way in WAYS:
        check_everything(energy, data, solver=build(energy, "float64", by_hand(energy, way)))


def test_a_term_may_have_other_indices_beside_the_edge() -> None:
    X, Y = op.Unknown("X", (V,)), op.Unknown("Y", (C,), 2)
    k = op.indices(C)
    a, b = op.Graph("g", E, (V, V))[e]
    energy = op.Energy(r=X[a] * Y[k][0] - X[b] * Y[k][1], s=X[v] - 1)
    rng = np.random.default_rng(1)
    data = dict(X=rng.normal(size=5), Y=rng.normal(size=(3, 2)), g=rng.integers(0, 5, (9, 2)))
    for way in WAYS:
        check_everything(energy, data, solver=build(energy, "float64", by_hand(energy, way)))


@pytest.mark.parametrize("way", WAYS)
def test_edges_may_be_robust(way: Way) -> None:
    X, A, s = op.Unknown("X", (V,), 2), op.Array("A", (E,), 2), op.params("s")
    a, b = op.Graph("g", E, (V, V))[e]
    energy = op.Energy(huber=op.robust(X[a] - X[b] - A[e], "huber", scale=s),
                       cauchy=op.robust(op.sin(X[a][0]) * X[b][1], "cauchy"))  # fmt: skip
    rng = np.random.default_rng(2)
    data = dict(X=rng.normal(size=(6, 2)), A=rng.normal(size=(15, 2)), g=rng.integers(0, 6, (15, 2)), s=0.7)
    check_everything(energy, data, solver=build(energy, "float64", by_hand(energy, way)))


@pytest.mark.parametrize("way", WAYS)
def test_poses_may_be_joined_by_edges(way: Way) -> None:
    Pose, Measured = op.Unknown("Pose", (V,), op.SE2), op.Array("Measured", (E,), op.SE2)
    a, b = op.Graph("g", E, (V, V))[e]
    energy = op.Energy(odometry=(Measured[e].inverse() @ (Pose[a].inverse() @ Pose[b])).log())
    rng = np.random.default_rng(2)
    data = dict(Pose=se2(rng, 6), Measured=se2(rng, 15), g=rng.integers(0, 6, (15, 2)))
    check_everything(energy, data, solver=build(energy, "float64", by_hand(energy, way)))


def se2(rng: np.random.Generator, n: int) -> Any:
    """Random poses, as matrices."""
    angle, place = rng.uniform(-1, 1, n), rng.normal(size=(n, 2))
    poses = np.zeros((n, 3, 3))
    poses[:, 0, 0] = poses[:, 1, 1] = np.cos(angle)
    poses[:, 1, 0], poses[:, 0, 1] = np.sin(angle), -np.sin(angle)
    poses[:, :2, 2], poses[:, 2, 2] = place, 1
    return poses


def test_what_is_fixed_may_depend_on_edges() -> None:
    U, X, M = op.Unknown("U", (E,)), op.Unknown("X", (V,)), op.Array("M", (V,), dtype=bool)
    a, b = op.Graph("g", E, (V, V))[e]
    energy = op.Energy(r=U[e] * (X[a] - X[b]) - 1, fixed={U: M[a], X: M[v]})
    rng = np.random.default_rng(1)
    data = dict(U=rng.normal(size=300), X=rng.normal(size=9), M=np.arange(9) < 7, g=rng.integers(0, 9, (300, 2)))
    for way in WAYS:
        check_everything(energy, data, solver=build(energy, "float64", by_hand(energy, way)))


@pytest.mark.parametrize("way", WAYS)
def test_results_do_not_depend_on_the_number_of_threads(way: Way) -> None:
    energy = mesh_energy()
    data = data_of_mesh(30, 9000)
    solver = build(energy, "float32", by_hand(energy, way))
    one, two, three = (outcomes(Operators(energy, data, np.float32, n, solver)) for n in (1, 2, 3))
    assert one == two == three


@pytest.mark.parametrize("way", but_deep(WAYS, [GATHERS[-1], STENCILS[0]]))
@pytest.mark.parametrize("compiler", COMPILERS)
def test_generated_code_has_no_warnings(compiler: str, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which(COMPILERS[compiler].split()[0]) is None:
        pytest.skip(f"no {compiler} on this machine")
    X, U, A = op.Unknown("X", (V,), 2), op.Unknown("U", (E,)), op.Array("A", (E,))
    a, b = op.Graph("edges", E, (V, V))[e]
    pixel, p = op.Graph("match", N, ((H, W), V))[o]
    Image = op.Unknown("Image", (H, W))
    energy = op.Energy(
        reg=A[e] * op.sin(X[a]) - U[e] * X[b], match=Image[pixel] * X[p][0] - Image[pixel[0] + 1, pixel[1]]
    )
    source = derive(energy.problem, "float32", by_hand(energy, way)).listing.source
    monkeypatch.setenv("OPTPY_CC", COMPILERS[compiler])
    with flags_behind(*("-O1",) if compiler == "gcc" else quick()):  # as for users it takes long
        assert compile_c(source, name="energy", werror=True).path.exists()


@pytest.mark.parametrize("way", [None, *WAYS])
def test_slots_point_into_volumes(way: Way) -> None:
    """Points of a volume held together by edges, and pulled by single ones, next to its grid."""
    D = op.dims("D")
    k = op.indices(D)
    Z, A = op.Unknown("Z", (D, H, W), 2), op.Array("A", (E,))
    a, b = op.Graph("ties", E, ((D, H, W), (D, H, W)))[e]
    (c,) = op.Graph("pins", N, ((D, H, W),))[o]
    energy = op.Energy(
        tie=A[e] * (op.sin(Z[a]) - Z[b]), pin=Z[c][0] * Z[c][1] - 1, smooth=0.3 * (Z[k, i, j] - Z[k + 1, i, j])
    )
    rng = np.random.default_rng(0)
    corners = rng.integers(0, (3, 4, 5), (9, 2, 3)).reshape(9, 6)
    data = dict(
        Z=rng.normal(size=(3, 4, 5, 2)), A=rng.normal(size=9), ties=corners, pins=rng.integers(0, (3, 4, 5), (6, 3))
    )
    check_everything(energy, data, solver=build(energy, "float64", by_hand(energy, way)))
