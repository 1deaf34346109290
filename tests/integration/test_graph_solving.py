"""Energies over graphs solved end to end: meshes, sessions whose edges change, and the references they must reach."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from scipy.optimize import least_squares

import optpy as op
from optpy.api.plan import build
from optpy.kernels.codegen.tables import TableKey
from optpy.kernels.runtime import executor
from optpy.kernels.runtime.tables import Connectivity
from tests.support.meshes import mesh_arap_data, mesh_arap_energy
from tests.support.schedules import GATHERS, Way, by_hand

pytestmark = pytest.mark.native

V, E = op.dims("V E")
v, e = op.indices(V, E)
X, A, Weight = op.Unknown("X", (V,), 2), op.Array("A", (V,), 2), op.Array("Weight", (E,))
w = op.params("w")
EDGES = op.Graph("edges", E, (V, V))
a, b = EDGES[e]
SMOOTHING = op.Energy(fit=X[v] - A[v], reg=w * Weight[e] * (X[a] - X[b]))


@functools.cache
def smoothing() -> op.Solver:
    """Compiled once."""
    return op.compile(SMOOTHING, "cpu", np.float64)


TIGHT: dict[str, Any] = dict(method="gn", linear_iterations=200, max_iterations=5, eta=1e-14, gradient_tolerance=0.0)


def data(vertices: int, edges: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return dict(
        X=rng.normal(size=(vertices, 2)), A=rng.normal(size=(vertices, 2)), Weight=rng.uniform(0.5, 1, edges), w=1.5,
        edges=rng.integers(0, vertices, (edges, 2)),
    )  # fmt: skip


def expected(d: dict[str, Any]) -> Any:
    """The minimum of a linear energy, by a dense solve."""
    J = SMOOTHING.jacobian(d).toarray()
    F = np.concatenate([r.ravel() for r in SMOOTHING.residuals(d).values()])
    return d["X"] - np.linalg.lstsq(J, F, rcond=None)[0].reshape(d["X"].shape)


# -- meshes ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def arap_reference() -> tuple[dict[str, Any], float]:
    """A mesh, and the least cost of its deformation by SciPy."""
    energy, d = mesh_arap_energy(), mesh_arap_data(3, 4)
    shape = d["X"].shape

    def at(x: Any) -> dict[str, Any]:
        return d | {"X": x[: x.size // 2].reshape(shape), "Angle": x[x.size // 2 :].reshape(shape)}

    found = least_squares(
        lambda x: np.concatenate([r.ravel() for r in energy.residuals(at(x)).values()]),
        np.concatenate([d["X"].ravel(), d["Angle"].ravel()]),
        jac=lambda x: energy.jacobian(at(x)).toarray(),
        xtol=1e-15, ftol=1e-15, gtol=1e-13,
    )  # fmt: skip
    return d, float(found.cost)


@pytest.mark.parametrize("preconditioner", ["jacobi", "block_jacobi"])
@pytest.mark.parametrize("method", ["gn", "lm"])
def test_mesh_deformation_reaches_scipy_s_minimum(
    arap_reference: tuple[dict[str, Any], float], method: str, preconditioner: str
) -> None:
    d, least = arap_reference
    result = op.solve(
        mesh_arap_energy(), d, "cpu", np.float64, method=method, preconditioner=preconditioner, max_iterations=60,
        linear_iterations=200, function_tolerance=1e-13,
    )  # fmt: skip
    assert result.cost == pytest.approx(least, rel=1e-6)
    assert result.cost == pytest.approx(mesh_arap_energy().cost(d | result.x), rel=1e-9)
    assert sum(result.cost_by_term.values()) == pytest.approx(result.cost)


@pytest.mark.parametrize("way", GATHERS)
def test_every_form_solves_alike(way: Way) -> None:
    d = mesh_arap_data(6, 7)
    chosen = op.compile(mesh_arap_energy(), "cpu", np.float64).solve(d, method="lm", max_iterations=8)
    forced = build(mesh_arap_energy(), "float64", by_hand(mesh_arap_energy(), way)).solve(
        d, method="lm", max_iterations=8
    )
    np.testing.assert_allclose([r.cost for r in forced.iterations], [r.cost for r in chosen.iterations], rtol=1e-6)


# -- graphs of every kind --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("vertices", "edges"), [(1, 0), (5, 0), (1, 3), (30, 7), (30, 200), (3000, 9000)])
def test_graphs_without_edges_with_isolated_vertices_and_with_loops(vertices: int, edges: int) -> None:
    d = data(vertices, edges)
    if edges > 2:
        d["edges"][1] = d["edges"][0]
        d["edges"][2, 0] = d["edges"][2, 1]
    result = smoothing().solve(d, **TIGHT)
    if vertices <= 30:
        np.testing.assert_allclose(result.x["X"], expected(d), atol=1e-8)
    alone = np.setdiff1d(np.arange(vertices), d["edges"])
    np.testing.assert_allclose(result.x["X"][alone], d["A"][alone], atol=1e-12)
    assert result.cost == pytest.approx(SMOOTHING.cost(d | result.x))


def test_a_vertex_with_many_edges() -> None:
    d = data(4000, 20000)
    d["edges"][:, 0] = 7
    result = smoothing().solve(d, threads=2, **TIGHT)
    again = smoothing().solve(d, threads=1, **TIGHT)
    np.testing.assert_array_equal(result.x["X"], again.x["X"])
    gradient = SMOOTHING.jacobian(d | result.x).T @ np.concatenate(
        [r.ravel() for r in SMOOTHING.residuals(d | result.x).values()]
    )
    assert np.abs(gradient).max() < 1e-6


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32", "uint64"])
def test_edges_may_be_whole_numbers_of_any_kind(dtype: str) -> None:
    d = data(20, 50)
    got = smoothing().solve(d | {"edges": d["edges"].astype(dtype)}, **TIGHT)
    np.testing.assert_array_equal(got.x["X"], smoothing().solve(d, **TIGHT).x["X"])
    turned = np.asfortranarray(d["edges"].astype(dtype))
    np.testing.assert_array_equal(smoothing().solve(d | {"edges": turned}, **TIGHT).x["X"], got.x["X"])


def test_a_hundred_graphs_without_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    smoothing().solve(data(3, 3), **TIGHT)
    for module in ("kernels.runtime.cpu", "linear.pcg.native", "linear.multigrid.native", "linear.assembled.native"):
        monkeypatch.setattr(f"optpy.{module}.compile_c", None)
    for n in range(100):
        d = data(2 + n % 23, (7 * n) % 41, seed=n)
        np.testing.assert_allclose(op.solve(SMOOTHING, d, "cpu", np.float64, **TIGHT).x["X"], expected(d), atol=1e-8)


@pytest.mark.parametrize("way", GATHERS)
@pytest.mark.parametrize("threads", [1, 3])
def test_the_residual_may_be_computed_afresh_in_every_form(
    way: Way, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A is applied to delta in the place of p: also in the passes that store J p."""
    monkeypatch.setattr(executor, "ACCESSES_PER_THREAD", 1)
    d = data(40, 120)
    found = build(SMOOTHING, "float64", by_hand(SMOOTHING, way)).solve(
        d, residual_reset_period=2, threads=threads, **TIGHT
    )
    np.testing.assert_allclose(found.x["X"], expected(d), atol=1e-10)


@pytest.mark.parametrize("way", GATHERS)
@pytest.mark.parametrize("rank", [1, 2])
def test_multigrid_preconditions_grids_that_graphs_point_into(way: Way, rank: int) -> None:
    """Observations at scattered points of a signal, or of an image, that is smooth."""
    H, W = op.dims("H W")
    i, j = op.indices(H, W)
    grid, here = ((V,), (v,)) if rank == 1 else ((H, W), (i, j))
    Z, Seen = op.Unknown("Z", grid, 2), op.Array("Seen", (E,), 2)
    (at,) = op.Graph("where", E, [grid])[e]
    steps = [tuple(k + int(k is axis) for k in here) for axis in here]
    energy = op.Energy(smooth=[Z[here] - Z[s] for s in steps], fit=op.sin(Z[at]) - Seen[e])
    shape = (400,) if rank == 1 else (12, 40)
    rng = np.random.default_rng(3)
    d = dict(
        Z=np.zeros((*shape, 2)), Seen=rng.uniform(-0.5, 0.5, (30, 2)),
        where=np.stack([rng.integers(0, n, 30) for n in shape], axis=1),
    )  # fmt: skip
    options: dict[str, Any] = dict(eta=1e-12, gradient_tolerance=1e-12, method="gn")
    solver = build(energy, "float64", by_hand(energy, way))
    jacobi = solver.solve(d, preconditioner="jacobi", **options)
    multigrid = solver.solve(d, preconditioner="multigrid", **options)
    np.testing.assert_allclose(multigrid.x["Z"], jacobi.x["Z"], atol=1e-7)
    assert sum(n.linear_iterations for n in multigrid.iterations) < sum(n.linear_iterations for n in jacobi.iterations)


# -- what is kept between solves -------------------------------------------------------------------------------------


def test_incidence_is_built_once_for_the_same_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    built = 0
    build_table = Connectivity.build_table

    def counted(self: Connectivity, key: TableKey) -> Any:
        nonlocal built
        built += 1
        return build_table(self, key)

    monkeypatch.setattr(Connectivity, "build_table", counted)
    solver = build(SMOOTHING, "float64")
    d = data(20, 50)
    solver.solve(d, **TIGHT)
    first = built
    assert first > 0
    solver.solve(d | {"edges": d["edges"].copy(), "X": d["A"]}, **TIGHT)
    assert built == first
    d["edges"][3] = d["edges"][4]  # in place
    np.testing.assert_allclose(solver.solve(d, **TIGHT).x["X"], expected(d), atol=1e-8)
    assert built == 2 * first
    more = data(21, 50) | {"edges": d["edges"]}  # the same edges, one vertex more
    np.testing.assert_allclose(solver.solve(more, **TIGHT).x["X"], expected(more), atol=1e-8)


def test_the_user_s_edges_may_change_after_the_start() -> None:
    d = data(20, 50)
    d["edges"] = d["edges"].astype(np.int32)
    session, twin = smoothing().start(d, **TIGHT), smoothing().start(data(20, 50), **TIGHT)
    d["edges"][...] = 2**30
    for s in (session, twin):
        s.run()
    np.testing.assert_array_equal(session["X"], twin["X"])


# -- sessions --------------------------------------------------------------------------------------------------------


def test_edges_of_a_session_may_change() -> None:
    d = data(20, 50)
    session = smoothing().start(d, **TIGHT)
    session.step()
    edges = data(20, 50, seed=5)["edges"]
    session.update(edges=edges)
    session.run()
    np.testing.assert_allclose(session["X"], expected(d | {"edges": edges}), atol=1e-8)


def test_the_number_of_edges_of_a_session_may_change() -> None:
    d = data(20, 50)
    session = smoothing().start(d, **TIGHT)
    session.run()
    for edges in (60, 0, 8):
        new = data(20, edges, seed=edges)
        change = {name: new[name] for name in ("edges", "Weight")}
        x = session["X"]
        session.update(**change)
        np.testing.assert_array_equal(session["X"], x)
        session.run()
        np.testing.assert_allclose(session["X"], expected(d | change), atol=1e-8)
    assert session.result().cost == pytest.approx(SMOOTHING.cost(d | change | session.x()))


def test_the_number_of_vertices_of_a_session_may_change() -> None:
    session = smoothing().start(data(20, 50), **TIGHT)
    session.run()
    larger = data(33, 50, seed=3)
    session.update(**{name: larger[name] for name in ("X", "A")}, w=larger["w"])
    session.run()
    assert session["X"].shape == (33, 2)
    old = data(20, 50)
    np.testing.assert_allclose(
        session["X"], expected(larger | {name: old[name] for name in ("edges", "Weight")}), atol=1e-8
    )


def test_an_update_that_is_refused_changes_nothing() -> None:
    session, twin = smoothing().start(data(20, 50), **TIGHT), smoothing().start(data(20, 50), **TIGHT)
    wrong = data(20, 50)["edges"]
    wrong[17, 1] = 20
    refused: list[tuple[dict[str, Any], str]] = [
        (dict(edges=wrong), r"edges\[17, 1\] = 20"),
        (dict(edges=data(20, 51)["edges"]), "51 edges.*E is 50 from 'Weight'"),
        (dict(Weight=np.ones(51)), "E is 51"),
        (dict(X=np.zeros((21, 2))), "V is 20 from 'A'"),
        (dict(X=np.zeros((19, 2)), A=np.zeros((19, 2))), r"edges\[\d+, \d\] = 19"),
    ]
    for changes, message in refused:
        with pytest.raises(op.DataError, match=message):
            session.update(**changes)
    for s in (session, twin):
        s.run()
    np.testing.assert_array_equal(session["X"], twin["X"])
