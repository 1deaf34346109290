"""When multigrid is taken, when it is refused, and when it is given up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg

import optpy as op
from optpy.linear.assembled import applicability
from optpy.linear.multigrid.grid import GridMultigrid
from tests.support.multigrid_cases import H, K, W, chain, compiled, poisson, values_of
from tests.support.multigrid_reference import check_take_over

pytestmark = pytest.mark.native


# -- when it is taken --------------------------------------------------------------------------------------------------


def test_an_easy_solve_stays_with_jacobi() -> None:
    energy = chain()
    values = values_of(energy, (500,))
    i = op.indices(W)
    X, A = op.Unknown("X", (W,)), op.Array("A", (W,))
    easy = op.Energy(fit=3 * (X[i] - A[i]), smooth=X[i] - X[i + 1])
    assert op.solve(easy, values).facts["Preconditioners used"] == "jacobi"
    assert op.solve(energy, values).facts["Preconditioners used"] == "jacobi, then multigrid"


def test_without_patience_it_takes_over_in_the_middle_of_a_solve() -> None:
    check_take_over(compiled, np.asarray)


def spline(n: int) -> tuple[op.Energy, dict[str, Any]]:
    """A stiff curve through noisy points."""
    i = op.indices(W)
    X, A, w = op.Unknown("X", (W,)), op.Array("A", (W,)), op.params("w")
    energy = op.Energy(fit=X[i] - A[i], bend=w * (X[i - 1] - 2 * X[i] + X[i + 1]))
    curve = np.sin(np.linspace(0, 12, n)) + 0.1 * np.random.default_rng(0).normal(size=n)
    return energy, dict(X=np.zeros(n), A=curve)


@pytest.mark.parametrize(("n", "w"), [(5_000, 1e4), (5_000, 1e6), (20_000, 1e5)])
def test_auto_comes_back_to_multigrid_where_the_other_has_nothing_to_gain(n: int, w: float) -> None:
    """||r|| stays as it was for long, as if errors were missed: bending is that much stiffer than the fit."""
    energy, data = spline(n)
    found = op.solve(energy, data | dict(w=w), device="cpu", dtype=np.float64)
    bend = w * scipy.sparse.diags([1.0, -2.0, 1.0], [0, 1, 2], shape=(n - 2, n))
    x = scipy.sparse.linalg.spsolve((scipy.sparse.eye(n) + bend.T @ bend).tocsc(), data["A"])
    assert found.success
    np.testing.assert_allclose(
        found.cost, 0.5 * np.sum((x - data["A"]) ** 2) + 0.5 * np.sum((bend @ x) ** 2), rtol=1e-8
    )
    by_name = op.solve(energy, data | dict(w=w), device="cpu", dtype=np.float64, preconditioner="multigrid")
    taken, needed = (sum(r.linear_iterations for r in result.iterations) for result in (found, by_name))
    assert taken < 1.5 * needed + 100


def test_errors_of_short_waves_are_waited_for_before_multigrid_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever leaves more than a fiftieth of ||r|| is under suspicion here, as solves that end early are."""
    monkeypatch.setattr("optpy.linear.multigrid.solve.MISJUDGED", 0.0)
    monkeypatch.setattr("optpy.linear.method.UNREDUCED", 0.02)
    energy, data = poisson(60)
    result = op.solve(energy, data, device="cpu", dtype=np.float64)
    assert result.success
    assert [r.linear_iterations < 10 for r in result.iterations[2:]] == [True] * (len(result.iterations) - 2)


def test_worn_levels_are_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[None] = []
    build = GridMultigrid.build
    monkeypatch.setattr(GridMultigrid, "build", lambda *a: builds.append(build(*a)))
    i = op.indices(W)
    X, A = op.Unknown("X", (W,)), op.Array("A", (W,))
    s = op.params("s")
    energy = op.Energy(fit=0.01 * (X[i] - A[i]), smooth=s * (X[i] - X[i + 1]))
    session = op.compile(energy, dtype=np.float64).start(
        dict(X=np.zeros(400), A=np.arange(400.0) % 7, s=1.0), preconditioner="multigrid", max_iterations=3
    )
    session.run()
    assert len(builds) == 1  # J is the same in all iterations
    session.update(s=50.0)
    session.run()
    assert len(builds) == 2


def two_grids() -> op.Energy:
    i, j = op.indices(H, W)
    X, Y = op.Unknown("X", (H, W)), op.Unknown("Y", (W,))
    return op.Energy(smooth=X[i, j] - X[i, j + 1] - 1, fit=X[i, j] - Y[j])


def no_grid() -> op.Energy:
    i = op.indices(W)
    s, A = op.Unknown("s", ()), op.Array("A", (W,))
    return op.Energy(fit=s[()] - A[i])


def stretched() -> op.Energy:
    i = op.indices(W)
    X = op.Unknown("X", (W,))
    return op.Energy(fit=X[i] - 1, stretch=[op.where(op.in_bounds(2 * i, of=X), X[i] - X[2 * i] - 1, 0)])


def rows() -> op.Energy:
    i, j = op.indices(H, W)
    X = op.Unknown("X", (H, W))
    return op.Energy(smooth=X[i, j] - X[i, j + 1] - 1)


def mesh() -> op.Energy:
    i, k = op.indices(W), op.indices(K)
    X = op.Unknown("X", (W,))
    a, b = op.Graph("edges", K, (W, W))[k]
    return op.Energy(fit=X[i] - 1, smooth=X[a] - X[b])


def pins() -> op.Energy:
    """A term that reads a point of the grid and the end of an edge."""
    (i, j), k = op.indices(H, W), op.indices(K)
    X = op.Unknown("X", (H, W))
    (a,) = op.Graph("pins", K, ((H, W),))[k]
    return op.Energy(smooth=[X[i, j] - X[i, j + 1], X[i, j] - X[i + 1, j]], pin=X[a] - X[0, 0] - 1)


def far() -> op.Energy:
    i, j = op.indices(H, W)
    X = op.Unknown("X", (H, W), 4)
    return op.Energy(smooth=[X[i, j].sum() - X[i + 9, j].sum(), X[i, j].sum() - X[i, j + 7].sum()])


REFUSED = {
    "two grids": (
        two_grids,
        r"the unknowns must all stand on one grid, but they are 'X' on \(H, W\), 'Y' on \(W,\); and J\^T J is not "
        r"assembled: 'X' and 'Y' stand on different grids;",
    ),
    "no grid": (
        no_grid,
        r"the unknowns must all stand on one grid, but they are 's' on no grid; and J\^T J is not assem",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_says_why_and_auto_does_without(case: str) -> None:
    build, why = REFUSED[case]
    energy = build()
    data = values_of(energy, (12, 11)[2 - len(energy.problem.unknowns[0].dims) :])
    with pytest.raises(op.OptionError, match=f"preconditioner='multigrid' does not apply: {why}.*use 'auto'"):
        op.solve(energy, data, preconditioner="multigrid")
    assert op.solve(energy, data).facts["Preconditioners used"] in ("jacobi", "block_jacobi")


UNCOUPLED = {
    "strides": (stretched, r"the distance between X\[i\] and X\[2\*i\] in the term 'stretch\[0\]' is not the same"),
    "rows": (rows, r"no term couples neighbours on the grid \(H, W\) along H"),
    "mesh": (mesh, r"no term couples neighbours on the grid \(W,\) along W"),
    "pins": (pins, r"the distance between X\[.*pins.*\] and X\[0, 0\] in the term 'pin' is not the same everywhere"),
    "far": (
        far,
        r"the stencils are too large: unknowns are coupled up to 9 along H, 7 along W, so that coarse matrices",
    ),
}


@pytest.mark.parametrize("case", UNCOUPLED)
def test_without_the_multigrid_of_a_grid_the_matrix_is_assembled(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, why = UNCOUPLED[case]
    energy = build()
    data = values_of(energy, (12, 11)[2 - len(energy.problem.unknowns[0].dims) :])
    result = op.solve(energy, data, dtype="float64", preconditioner="multigrid")
    assert result.facts["Preconditioners used"] == "multigrid"
    assert result.cost == pytest.approx(op.solve(energy, data, dtype="float64", preconditioner="jacobi").cost, abs=1e-9)
    monkeypatch.setattr(applicability, "MOST_BLOCKS", 1)
    with pytest.raises(op.OptionError, match=rf"{why}.*; and J\^T J has up to [\d,]+ blocks, too many to assemble"):
        op.solve(energy, data, preconditioner="multigrid")


# -- graphs over the grid ----------------------------------------------------------------------------------------------


def scattered(n: int, points: int = 200) -> tuple[op.Energy, dict[str, Any]]:
    """A smooth surface through points between the pixels, of which each lies between four."""
    (i, j), k = op.indices(H, W), op.indices(K)
    X, A, Share = op.Unknown("X", (H, W)), op.Array("A", (K,)), op.Array("Share", (K,), 4)
    corners = op.Graph("quad", K, ((H, W),) * 4)[k]
    at = sum(Share[k][n] * X[corner] for n, corner in enumerate(corners))
    energy = op.Energy(fit=30 * (at - A[k]), smooth=[X[i, j] - X[i + 1, j], X[i, j] - X[i, j + 1]])
    rng = np.random.default_rng(1)
    low = rng.integers(0, n - 1, (points, 2))
    quad = np.concatenate([low + step for step in ((0, 0), (0, 1), (1, 0), (1, 1))], axis=1)
    share = rng.dirichlet(np.ones(4), points)
    return energy, dict(X=np.zeros((n, n)), A=rng.normal(size=points), Share=share, quad=quad)


def test_short_edges_over_the_grid_are_preconditioned_with_it() -> None:
    energy, data = scattered(96)
    options: dict[str, Any] = dict(method="gn", dtype=np.float64, eta=0, r_tolerance=1e-6, max_iterations=2)
    slow = op.solve(energy, data, preconditioner="jacobi", **options)
    found = op.solve(energy, data, preconditioner="multigrid", **options)
    np.testing.assert_allclose(found.x["X"], slow.x["X"], atol=1e-5)
    assert found.iterations[1].linear_iterations < 40 < slow.iterations[1].linear_iterations / 2
    assert op.solve(energy, data).facts["Preconditioners used"] == "jacobi, then multigrid"


def test_edges_that_are_too_long_are_named_or_served_by_auto() -> None:
    energy, data = scattered(20)
    data["quad"][7] = (1, 2, 1, 3, 2, 2, 5, 3)
    why = (
        r"edge 7 of the graph 'quad' points at \(2, 2\) in slot 2 and \(5, 3\) in slot 3, so that the term 'fit' "
        r"couples points 3 apart along H; by its terms on the grid the stencils reach as far as 1"
    )
    with pytest.raises(op.OptionError, match=why):
        op.solve(energy, data, preconditioner="multigrid")
    assert op.solve(energy, data).facts["Preconditioners used"] == "jacobi"


def test_a_graph_may_become_longer_and_shorter_in_a_session() -> None:
    energy, data = scattered(40)
    long = data["quad"].copy()
    long[7] = (1, 2, 1, 3, 2, 2, 5, 3)
    options: dict[str, Any] = dict(method="gn", eta=1e-10, function_tolerance=1e-12)
    solver = op.compile(energy, dtype=np.float64)
    session = solver.start(data, preconditioner="auto", **options)
    used = []
    for quad in (data["quad"], long, data["quad"]):
        session.update(quad=quad)
        session.run()
        used.append(session.result().facts["Preconditioners used"])
        expected = solver.solve(data | dict(quad=quad), preconditioner="jacobi", **options)
        np.testing.assert_allclose(session["X"], expected.x["X"], atol=1e-4)
    assert used == ["jacobi, then multigrid", "jacobi", "jacobi, then multigrid"]


def test_a_session_with_multigrid_refuses_long_edges_and_stays_as_it_was() -> None:
    energy, data = scattered(40)
    long = data["quad"].copy()
    long[7] = (1, 2, 1, 3, 2, 2, 5, 3)
    session = op.compile(energy, dtype=np.float64).start(data, method="gn", preconditioner="multigrid")
    session.run()
    before = session.result()
    with pytest.raises(op.OptionError, match="edge 7 of the graph 'quad'"):
        session.update(quad=long, A=np.zeros_like(data["A"]))
    session.update()
    session.run()
    assert session.result().cost == pytest.approx(before.cost, rel=1e-6)


def test_a_session_with_multigrid_refuses_long_edges_of_any_number_and_stays_as_it_was() -> None:
    energy, data = scattered(20)
    more: dict[str, Any] = scattered(20, 240)[1]
    del more["X"]
    long = more["quad"].copy()
    long[7] = (1, 2, 1, 3, 2, 2, 5, 3)
    solver = op.compile(energy, device="cpu", dtype=np.float64)
    session, twin = (solver.start(data, method="gn", preconditioner="multigrid") for _ in range(2))
    session.step()
    twin.step()
    with pytest.raises(op.OptionError, match="edge 7 of the graph 'quad'"):
        session.update(**(more | dict(quad=long)))
    assert session.status is op.Status.RUNNING
    assert session.step().cost == twin.step().cost
    for each in (session, twin):
        each.update(**more)
    assert session.step().cost == twin.step().cost


def test_a_session_refuses_sizes_that_are_too_large_for_the_matrix_and_stays_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    energy = pins()
    small, large = (values_of(energy, size) for size in ((12, 11), (24, 22)))
    session = op.compile(energy, device="cpu", dtype=np.float64).start(small, preconditioner="cholesky")
    cost = session.step().cost
    monkeypatch.setattr(applicability, "MOST_BLOCKS", 2000)
    with pytest.raises(op.OptionError, match=r"preconditioner='cholesky'.*blocks, too many to assemble"):
        session.update(**large)
    assert session.result().cost == cost
    assert session["X"].shape == (12, 11)
    session.update()
    session.step()
