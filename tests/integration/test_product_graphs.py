"""Routines of energies over graphs whose edges are counted by several dims, against the dense Jacobian."""

from __future__ import annotations

import numpy as np
import pytest

import optpy as op
from tests.kernels.codegen.test_loops_of_energies import check_loops
from tests.support.emulator.emulated_device import EmulatedDevice
from tests.support.operator_checks import check_everything
from tests.support.product_graphs import ENERGIES

pytestmark = pytest.mark.native


@pytest.mark.parametrize("name", ENERGIES)
def test_every_routine_agrees_with_the_dense_jacobian(name: str) -> None:
    energy, data = ENERGIES[name]()
    solver = op.compile(energy, "cpu", np.float64)
    for n in (2, 5):
        check_everything(energy, data(np.random.default_rng(n), n), solver=solver)


def test_it_is_a_plain_graph_of_as_many_edges() -> None:
    """Whose data stand at the edges one by one."""
    energy, make = ENERGIES["nearest"]()
    data = make(np.random.default_rng(0), 5)
    V, E = op.dims("V E")
    e = op.indices(E)
    X, share, rank = op.Unknown("X", (V,), 2), op.Array("share", (E,)), op.Array("rank", (E,))
    v, n = op.Graph("near", E, (V, V))[e]
    F = op.dims("F")
    f = op.indices(F)
    Y = op.Unknown("Y", (F, V))
    plain = op.Energy(pull=share[e] * (X[v] - op.sin(X[n])), beside=rank[e] * Y[f, n] * X[v][0] - share[e])
    own, rank_ = (k.ravel() for k in np.indices((5, 3)))
    flat = dict(share=data["share"].ravel(), rank=rank_, near=np.stack([own, data["near"].ravel()], axis=1))
    ours, theirs = energy.residuals(data), plain.residuals(data | flat)
    np.testing.assert_array_equal(ours["pull"].reshape(15, 2), theirs["pull"])
    np.testing.assert_array_equal(ours["beside"].reshape(15, 2), theirs["beside"])


@pytest.mark.parametrize("preconditioner", ["block_jacobi", "cholesky", "multigrid"])
def test_it_is_preconditioned_as_plain_graphs_are(preconditioner: str) -> None:
    V, K = op.dims("V K")
    v, k = op.indices(V, K)
    X, A = op.Unknown("X", (V,), 3), op.Array("A", (V,), 3)
    (n,) = op.Graph("near", (V, K), (V,))[v, k]
    energy = op.Energy(reg=X[v] - X[n], fit=0.1 * (X[v] - A[v]))
    rng = np.random.default_rng(0)
    near = (np.arange(40)[:, None, None] + [[1], [2], [7]]) % 40
    data = dict(X=np.zeros((40, 3)), A=rng.normal(size=(40, 3)), near=near)
    result = op.solve(energy, data, "cpu", method="gn", preconditioner=preconditioner, eta=1e-12, max_iterations=3)
    J, F = energy.jacobian(data).toarray(), energy.residuals(data)
    flat = np.concatenate([value.ravel() for value in F.values()])
    expected = -np.linalg.lstsq(J, flat, rcond=None)[0]
    np.testing.assert_allclose(result.x["X"].ravel(), expected, atol=1e-9)


def test_edges_and_their_number_may_change() -> None:
    energy, make = ENERGIES["labels"]()
    data = make(np.random.default_rng(0), 4)
    session = op.compile(energy, "cpu", np.float64).start(data, method="gn")
    session.step()
    for n, seed in ((4, 1), (3, 2)):
        new = make(np.random.default_rng(seed), n)
        changes = new if n != 4 else {"label": new["label"]}
        data |= changes
        session.update(**changes, **({} if n != 4 else {k: data[k] for k in ("Colour", "Image")}))
        session.step()
        direct = op.compile(energy, "cpu", np.float64).start(data, method="gn")
        direct.step()
        np.testing.assert_array_equal(session["Image"], direct["Image"])


def test_wrong_edges_are_named() -> None:
    energy, make = ENERGIES["cells"]()
    data = make(np.random.default_rng(0), 3)
    wrong = data["cells"].copy()
    wrong[1, 2, 0, 1] = 4
    refused = [
        (wrong, r"cells\[1, 2, 0, 1\] = 4: slot 1 points into V with V = 4"),
        (data["cells"][..., 0], r"'cells' must have shape \(F, H, W, 2\), .*got \(2, 3, 3\)"),
        (data["cells"][:, :2], "'cells' has 2 edges along H, but H is 3 from 'D'"),
        (data["cells"] + 0.0, "dtype float64"),
        ([], "'cells' has 0 edges along F, but F is 2"),
    ]
    for cells, text in refused:
        with pytest.raises(op.DataError, match=text):
            energy.cost(data | dict(cells=cells))
    energy, make = ENERGIES["nearest"]()
    data = make(np.random.default_rng(0), 5)
    with pytest.raises(op.DataError, match=r"'near' must have .*got \(5, 3\); add the axis .* a\[:, :, None"):
        energy.cost(data | dict(near=data["near"][..., 0]))


@pytest.mark.parametrize("scatter", [False, True])
def test_a_gpu_follows_them(emulated: EmulatedDevice, scatter: bool) -> None:
    energy, data = ENERGIES["nearest"]()
    schedule = op.Schedule(residuals={"pull": "scatter"} if scatter else {})
    solver = op.compile(energy, "cuda", np.float64, schedule=schedule)
    check_everything(energy, data(np.random.default_rng(1), 5), solver=solver)


@pytest.mark.parametrize("cuda", [False, True])
@pytest.mark.parametrize("name", ENERGIES)
def test_loops_compute_what_routines_say(name: str, cuda: bool) -> None:
    energy, data = ENERGIES[name]()
    check_loops(energy, data(np.random.default_rng(2), 2), cuda)
