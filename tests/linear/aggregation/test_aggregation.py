"""Smoothed aggregation against the same V-cycle in NumPy on the assembled matrix, and what it does to solves."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from optpy.errors import InternalError
from optpy.linear.aggregation import aggregation
from optpy.linear.aggregation.aggregation import Aggregation
from tests.support.aggregation_reference import Native, Real, ReferenceCycle, array_at, inverse_of_blocks
from tests.support.deep import but_deep

pytestmark = pytest.mark.native


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems have many chunks and several levels, and threads share them all."""
    monkeypatch.setattr(aggregation, "CHUNK", 32)
    monkeypatch.setattr(aggregation, "ALONE", 0)
    monkeypatch.setattr(aggregation, "COARSEST", 20)


# -- matrices ----------------------------------------------------------------------------------------------------------


def laplacian(edges: NDArray[np.int64], n: int, m: int, rng: np.random.Generator) -> Real:
    """J^T J, of one rule with m random residuals for each edge; nothing else."""
    A, channels = np.zeros((n, m, n, m)), np.arange(m)
    for i, j in edges:
        left, right = rng.normal(size=(2, m, m)) * 0.2 + np.eye(m)
        J = np.concatenate([left, -right], axis=1)
        ends = np.array([i, j])
        A[np.ix_(ends, channels, ends, channels)] += (J.T @ J).reshape(2, m, 2, m)
    return A.reshape(n * m, n * m)


def random_edges(n: int, degree: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Between nodes near each other on a line, so that there is something to coarsen."""
    i = rng.integers(0, n, int(n * degree / 2))
    j = i + rng.integers(1, 6, len(i))
    return np.stack([i, j], 1)[j < n]


def graphs(n: int) -> dict[str, NDArray[np.int64]]:
    rng = np.random.default_rng(5)
    near, star = random_edges(n, 6, rng), np.stack([np.zeros(n - 1, int), np.arange(1, n)], 1)
    half = n // 2
    return {
        "random": near,
        "isolated": near[(near % 7 != 3).all(axis=1)],
        "star": star,
        "hub": np.concatenate([near, star[:: 2 if n > 250 else 1]]),
        "two": near[(near < half).all(axis=1) | (near >= half).all(axis=1)],
        "none": near[:0],
    }


SIZES = {1: 350, 2: 220, 3: 160, 6: 120}


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", graphs(9))
@pytest.mark.parametrize("m", but_deep(SIZES, (1, 3, 6)))
def test_the_cycle_is_that_of_the_reference(m: int, name: str) -> None:
    rng = np.random.default_rng(m)
    n = SIZES[m]
    A = laplacian(graphs(n)[name], n, m, rng) + 0.01 * np.eye(n * m)
    candidates = rng.normal(size=(n, m, m)) * 0.1 + np.eye(m)
    M = Native(A, m, candidates=candidates)
    reference = ReferenceCycle(M, A, candidates)
    b = rng.normal(size=n * m)
    expected = reference(b)
    np.testing.assert_allclose(M(b), expected, atol=1e-10 * np.abs(expected).max())
    assert name in ("none", "star") or len(M.g.sizes) > 2
    assert name != "random" or M.level(1).visits > 1
    for k in range(len(M.g.sizes) - 1):
        inverse, _ = inverse_of_blocks(reference.A[k], m, 1e-11)
        L = np.linalg.cholesky(reference.A[k])
        largest = np.linalg.eigvalsh(L.T @ inverse @ L)[-1]  # the eigenvalues of inverse A, which is not symmetric
        assert 4 / 3 <= M.level(k).omega * largest < 1.2 * 4 / 3


def dense(M: Native) -> Real:
    return np.stack([M(e) for e in np.eye(M.n * M.m)], axis=1)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", graphs(9))
@pytest.mark.parametrize("m", [1, 3])
def test_it_is_symmetric_and_its_error_operator_shrinks(m: int, name: str) -> None:
    """0 < M <= A^-1: so both the smoother and the correction shrink the error in the norm of A."""
    rng = np.random.default_rng(m)
    n = 360 // m
    A = laplacian(graphs(n)[name], n, m, rng) + 0.01 * np.eye(n * m)
    M = dense(Native(A, m))
    np.testing.assert_allclose(M, M.T, atol=1e-12 * np.abs(M).max())
    L = np.linalg.cholesky(A)
    spectrum = np.linalg.eigvalsh(L.T @ (M + M.T) / 2 @ L)
    assert spectrum.min() > 0.01
    assert spectrum.max() < 1 + 1e-10


@pytest.mark.optimised
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", ["random", "hub"])
@pytest.mark.parametrize("m", but_deep([1, 3, 6], (1, 6)))
def test_single_precision_is_symmetric_and_definite_in_any_units(m: int, name: str) -> None:
    """Its copy of the matrix has 16 bits."""
    rng = np.random.default_rng(m)
    n = 360 // m
    A = laplacian(graphs(n)[name], n, m, rng) + 0.01 * np.eye(n * m)
    units = 10 ** rng.uniform(-3, 3, n * m)
    M = units[:, None] * dense(Native(units[:, None] * A * units, m, "float32")) * units
    np.testing.assert_allclose(M, M.T, atol=1e-5 * np.abs(M).max())
    L = np.linalg.cholesky(A)
    spectrum = np.linalg.eigvalsh(L.T @ (M + M.T) / 2 @ L)
    assert spectrum.min() > 0.01
    assert spectrum.max() < 1 + 1e-3


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_the_smoother_converges_where_chunks_are_coupled_more_strongly_than_rows(scale: float) -> None:
    """Every unknown with every other one; and in whatever units they are."""
    m, n = 2, 150
    rng = np.random.default_rng(0)
    J = rng.normal(size=(3, n * m)) * 0.1 + 1
    A = J.T @ J + 1e-3 * np.eye(n * m)
    units = np.tile([1, scale], n)
    A = units[:, None] * A * units
    M = dense(Native(A, m))
    L = np.linalg.cholesky(A)
    spectrum = np.linalg.eigvalsh(L.T @ (M + M.T) / 2 @ L)
    assert 0 < spectrum.min() < spectrum.max() < 1 + 1e-8


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m", [1, 3, 6])
def test_threads_do_not_change_a_bit(m: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    n = 400
    A = laplacian(graphs(n)["hub"], n, m, rng) + 0.01 * np.eye(n * m)
    b = rng.normal(size=n * m)
    one, two, three = (Native(A, m, dtype, threads=threads)(b) for threads in (1, 2, 3))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, three)
    exact = Native(A, m)(b)
    np.testing.assert_allclose(one, exact, atol=1e-4 * np.abs(exact).max())


# -- the levels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", graphs(9))
def test_aggregates_are_runs_of_neighbours(name: str) -> None:
    n = 3000
    edges = graphs(n)[name]
    A = sp.coo_matrix((np.ones(len(edges)), edges.T), (n, n)).tocsr()
    pattern = (A + A.T + sp.identity(n)).tocsr()
    g = Aggregation(pattern, 3, "float32")
    assert sorted(g.order) == list(range(n))
    same = pattern[g.order][:, g.order].tocsr()
    same.sort_indices()
    np.testing.assert_array_equal(g.rows, same.indptr)
    np.testing.assert_array_equal(g.columns, same.indices)
    np.testing.assert_array_equal(g.candidates, np.broadcast_to(np.eye(3), (n, 3, 3)))
    alone = np.diff(g.rows) == 1
    if name == "none":
        assert g.sizes == [n]
        return
    aggregate = array_at(g.state.level[0].aggregate, (n,), np.int32)
    np.testing.assert_array_equal(aggregate < 0, alone)
    count = np.count_nonzero(~alone)
    assert not alone[:count].any()  # the others stand at the end
    assert (np.diff(aggregate[:count]) >= 0).all()
    rows = np.repeat(np.arange(n), np.diff(g.rows))
    here = aggregate[rows] == aggregate[g.columns]
    together = sp.csr_matrix((here, g.columns, g.rows), (n, n))
    together.eliminate_zeros()
    assert connected_components(together[:count, :count])[0] == aggregate.max() + 1 == g.sizes[1]
    assert all(b < a for a, b in pairwise(g.sizes))
    assert g.sizes[-1] * 3 <= 200
    assert g.nbytes > g.matrix.nbytes


def test_a_graph_without_locality_does_not_fill_the_levels() -> None:
    n, rng = 4000, np.random.default_rng(0)
    ends = rng.integers(0, n, (2, 6 * n))
    A = sp.coo_matrix((np.ones(6 * n), ends), (n, n)).tocsr()
    g = Aggregation(A + A.T + sp.identity(n), 3, "float64")
    entries = [array_at(g.state.level[k].rows, (size + 1,), np.int64)[-1] for k, size in enumerate(g.sizes)]
    assert all(b <= a for a, b in pairwise(entries))
    assert g.sizes[-1] * 3 <= 200


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_few_nodes_are_solved_for_directly(n: int) -> None:
    rng = np.random.default_rng(0)
    J = rng.normal(size=(3 * n, 3 * n))
    A, b = J.T @ J, rng.normal(size=3 * n)
    M = Native(A, 3) if n else Native(sp.bsr_matrix((0, 0)), 3)
    assert M.g.sizes == [n]
    np.testing.assert_allclose(M(b), np.linalg.solve(A, b), rtol=1e-8)


def test_nodes_without_neighbours_are_solved_for_exactly() -> None:
    rng = np.random.default_rng(0)
    J = rng.normal(size=(2000, 3, 3))
    blocks = J.transpose(0, 2, 1) @ J + 0.1 * np.eye(3)
    A, b = sp.block_diag(blocks, format="bsr"), rng.normal(size=6000)
    np.testing.assert_allclose(A @ Native(A, 3)(b), b, atol=1e-8)


def test_a_pattern_without_its_diagonal_is_refused() -> None:
    with pytest.raises(InternalError, match="diagonal"):
        Aggregation(sp.csr_matrix(np.eye(3, k=1) + np.eye(3, k=-1)), 1, "float64")


# -- what it is for ----------------------------------------------------------------------------------------------------


def iterations(A: Any, M: Native, tolerance: float = 1e-8) -> int:
    """Of conjugate gradients, from a random residual."""
    A = A.tocsr()
    r = A @ np.random.default_rng(1).normal(size=A.shape[0])
    z = M(r)
    p, rz = z, r @ z
    first = rz
    for k in range(1, 400):
        Ap = A @ p
        alpha = rz / (p @ Ap)
        r = r - alpha * Ap
        z = M(r)
        beta, rz = (r @ z) / rz, r @ z
        if rz < tolerance**2 * first:
            return k
        p = z + beta * p
    return 400


def grid(n: int) -> tuple[NDArray[np.int64], Real]:
    """Edges and places of n x n points."""
    points = np.arange(n * n).reshape(n, n)
    across, down = (points[:, :-1], points[:, 1:]), (points[:-1], points[1:])
    edges = np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in (across, down)])
    places = np.stack([points.ravel() % n, points.ravel() // n], 1) - (n - 1) / 2
    return edges.astype(np.int64), places.astype(np.float64)


def incidence(edges: NDArray[np.int64], n: int) -> Any:
    rows = np.arange(len(edges))
    return sp.coo_matrix(
        (np.tile([1.0, -1.0], (len(edges), 1)).ravel(), (np.repeat(rows, 2), edges.ravel())), (len(edges), n)
    )


@pytest.mark.optimised
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_iterations_do_not_grow_with_a_grid(dtype: str) -> None:
    counts = []
    for n in (64, 128, 256):
        edges, _ = grid(n)
        D = incidence(edges, n * n)
        A = (D.T @ D + 1e-6 * sp.identity(n * n)).tobsr((1, 1))
        counts.append(iterations(A, Native(A, 1, dtype)))
    assert max(counts) <= min(counts) + 3 <= 15


def rigid(n: int) -> tuple[Any, Real]:
    """As rigid as possible at rest: u_i - u_j - theta_i (x_i - x_j) turned by 90 degrees; and the rigid motions."""
    edges, x = grid(n)
    both = np.concatenate([edges, edges[:, ::-1]])
    D, rows = incidence(both, n * n), np.arange(len(both))
    turned = (x[both[:, 0]] - x[both[:, 1]])[:, ::-1] * [-1, 1]
    angle = [sp.coo_matrix((-turned[:, c], (rows, both[:, 0])), D.shape) for c in range(2)]
    J = sp.bmat([[D, None, angle[0]], [None, D, angle[1]]]).tocsr()
    J = J[:, np.arange(3 * n * n).reshape(3, n * n).T.ravel()]
    motions = np.tile(np.eye(3), (n * n, 1, 1))
    motions[:, :2, 2] = x[:, ::-1] * [-1, 1]
    np.testing.assert_allclose(J @ motions.reshape(-1, 3), 0, atol=1e-12)
    return (J.T @ J + 1e-6 * sp.identity(3 * n * n)).tobsr((3, 3)), motions


@pytest.mark.optimised
def test_rigid_motions_as_candidates_keep_the_iterations_of_an_elastic_grid_few() -> None:
    counts, without = [], 0
    for n in (24, 48, 96):
        A, motions = rigid(n)
        counts.append(iterations(A, Native(A, 3, candidates=motions)))
        without = iterations(A, Native(A, 3))
    assert max(counts) <= min(counts) + 3 <= 16
    assert without > 1.5 * counts[-1]


# -- singular matrices -------------------------------------------------------------------------------------------------


@pytest.mark.optimised
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_unknowns_without_a_row_stay_zero(dtype: str) -> None:
    """Fixed nodes, unused channels, and channels that only occur together: still symmetric, still a few iterations."""
    n, m = 900, 3
    edges, _ = grid(30)
    J = sp.kron(incidence(edges, n), [[1.0, 0, 1]])
    A = (J.T @ J).tobsr((m, m))
    fixed = np.arange(n) % 37 == 0
    A.data[fixed[A.indices]] = 0  # they stay in the pattern
    A.data[np.repeat(fixed, np.diff(A.indptr))] = 0
    M = Native(A, m, dtype)
    b = A @ np.random.default_rng(0).normal(size=n * m)
    x = M(b).reshape(n, m)
    assert np.isfinite(x).all()
    assert not x[::37].any()
    assert not x[:, 1].any()
    assert iterations(A, M, 1e-4) <= 20


@pytest.mark.optimised
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nothing_but_differences_is_enough(dtype: str) -> None:
    """A semi-definite A: the candidates are its null space."""
    A, motions = rigid(40)
    A = A - 1e-6 * sp.identity(A.shape[0])
    assert iterations(A, Native(A, 3, dtype, candidates=motions), 1e-4) <= 30


@pytest.mark.optimised
@pytest.mark.parametrize("candidates", [np.zeros((3, 3)), np.ones((3, 3)), np.diag([1.0, 0, 1])])
def test_dependent_candidates_are_left_out(candidates: Real) -> None:
    A, _ = rigid(20)
    M = Native(A, 3, candidates=np.broadcast_to(candidates, (400, 3, 3)))
    b = np.random.default_rng(0).normal(size=1200)
    x = M(b)
    assert np.isfinite(x).all()
    assert x @ b > 0


@pytest.mark.optimised
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, 1e30])
def test_numbers_that_make_no_sense_do_no_harm(value: float, dtype: str) -> None:
    """The next build, of good numbers, is as if they had not been."""
    A, motions = rigid(20)
    M = Native(A, 3, dtype, candidates=motions)
    b = np.random.default_rng(0).normal(size=1200)
    before, good = M(b), M.g.matrix.copy()
    for where in (slice(None), slice(7, 8)):
        M.g.matrix[where] = value
        M.build()
        M(b)
    M.g.matrix[:] = good
    M.build()
    np.testing.assert_array_equal(M(b), before)
