"""The sparse Cholesky factorisation against dense solves."""

from __future__ import annotations

import ctypes
import functools
import shutil
from ctypes import byref, c_int, c_int32, c_int64, c_void_p

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray

from optpy.kernels.runtime.cpu import precision_source
from optpy.kernels.toolchain.compiler import compile_c
from optpy.kernels.toolchain.headers import native_header
from optpy.linear.cholesky import factorisation as cholesky
from optpy.linear.cholesky.factorisation import Factorisation, cholesky_source
from optpy.linear.cholesky.structures import FactorState
from optpy.linear.safe_work import safe_work_source
from tests.kernels.c.test_team import COMPILERS
from tests.support.deep import but_deep
from tests.support.patterns import PATTERNS, Pattern, csr, grid

pytestmark = [pytest.mark.native, pytest.mark.optimised]

Real = NDArray[np.float64]

WRAPPERS = r"""
typedef struct { Cholesky *f; const double *in; double *out; int corrected[8]; } Call;

static void build_body(void *argument, Team *team, int thread) {
    Call *call = (Call *)argument;
    for (int n = 0; n < 2; n++) call->corrected[thread] = chol_build(call->f, call->in, team, thread);
}

static void solve_body(void *argument, Team *team, int thread) {
    Call *call = (Call *)argument;
    chol_solve(call->f, call->in, call->out, team, thread);
}

OPTPY_EXPORT int build(Cholesky *f, const double *matrix, int threads, int *corrected) {
    Call call = {.f = f, .in = matrix};
    const int ran = team_run(threads, build_body, &call);
    memcpy(corrected, call.corrected, sizeof call.corrected);
    return ran;
}

OPTPY_EXPORT void solve(Cholesky *f, const double *b, double *x, int threads) {
    Call call = {f, b, x, {0}};
    team_run(threads, solve_body, &call);
}

OPTPY_EXPORT int64_t state_size(void) { return sizeof(Cholesky); }
"""


@functools.cache
def native(block: int) -> ctypes.CDLL:
    headers = [
        native_header("kernels/c/prelude.h"),
        native_header("kernels/c/team.h"),
        precision_source("float64"),
    ]
    parts = [*headers, safe_work_source(), cholesky_source(block), WRAPPERS]
    library = compile_c("\n".join(parts), name="cholesky_test", werror=True).library
    library.state_size.restype = c_int64
    assert library.state_size() == ctypes.sizeof(FactorState)
    return library


class Factored:
    """A, (n m, n m) dense with the blocks of a pattern, factored by native code."""

    def __init__(self, A: Real, pattern: Pattern, block: int, threads: int = 1) -> None:
        rows, columns = csr(pattern)
        n, m = len(pattern), block
        self.threads, self.size, self.library = threads, n * m, native(block)
        self.symbolic = Factorisation(rows, columns, block)
        assert self.symbolic.nbytes < self.symbolic.needed
        self.symbolic.allocate()
        assert self.symbolic.nbytes == self.symbolic.needed
        tiles = A.reshape(n, m, n, m).transpose(0, 2, 1, 3)
        self.blocks = np.ascontiguousarray(tiles[pattern])
        self.build()

    def build(self) -> None:
        corrected = (c_int * 8)()
        address = self.blocks.ctypes.data_as(c_void_p)
        ran = self.library.build(byref(self.symbolic.state), address, self.threads, corrected)
        assert ran == self.threads
        assert len(set(corrected[:ran])) == 1  # all threads are told the same
        self.corrected = corrected[0]

    def solve(self, b: Real) -> Real:
        given, x = np.ascontiguousarray(b, np.float64), np.full(self.size, np.nan)
        addresses = [a.ctypes.data_as(c_void_p) for a in (given, x)]
        self.library.solve(byref(self.symbolic.state), *addresses, self.threads)
        return x

    def inverse(self) -> Real:
        return np.array([self.solve(e) for e in np.eye(self.size)])


# -- matrices ----------------------------------------------------------------------------------------------------------


def positive_definite(pattern: Pattern, block: int) -> Real:
    rng = np.random.default_rng(1)
    n = len(pattern) * block
    A = rng.normal(size=(n, n)) * np.kron(pattern, np.ones((block, block)))
    A += A.T
    return np.asarray(A + np.diag(0.1 + np.abs(A).sum(axis=1)))


def laplacian(pattern: Pattern, block: int) -> Real:
    """Nothing fixes the constants of a connected part."""
    graph = -(pattern & ~np.eye(len(pattern), dtype=bool)).astype(float)
    np.fill_diagonal(graph, -graph.sum(axis=1))
    coupling = np.eye(block) + 0.3 * np.ones((block, block))
    return np.asarray(np.kron(graph, coupling))


# -- solutions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", but_deep([1, 2, 3, 4, 5, 6, 7, 12], (1, 2, 3, 6, 12)))
@pytest.mark.parametrize("name", PATTERNS)
def test_solutions_are_those_of_a_dense_solve(name: str, block: int) -> None:
    pattern = PATTERNS[name]()
    A = positive_definite(pattern, block)
    b = np.random.default_rng(2).normal(size=len(A))
    factored = Factored(A, pattern, block)
    assert factored.corrected == 0
    np.testing.assert_allclose(factored.solve(b), np.linalg.solve(A, b), rtol=0, atol=1e-10)


def test_new_values_are_factored_in_the_same_memory() -> None:
    pattern = grid(6, 7)
    A = positive_definite(pattern, 2)
    factored = Factored(A, pattern, 2)
    factored.blocks *= 4
    factored.build()
    b = np.ones(84)
    np.testing.assert_allclose(factored.solve(b), np.linalg.solve(4 * A, b), atol=1e-12)


def test_b_may_be_where_x_goes() -> None:
    pattern = grid(6, 7)
    factored = Factored(positive_definite(pattern, 2), pattern, 2)
    b = np.random.default_rng(2).normal(size=84)
    x = b.copy()
    address = x.ctypes.data_as(c_void_p)
    factored.library.solve(byref(factored.symbolic.state), address, address, 1)
    np.testing.assert_array_equal(x, factored.solve(b))


@pytest.mark.parametrize("compiler", but_deep(COMPILERS, ("clang", "gcc")))  # zig's compiles all others
def test_every_compiler_agrees(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which(COMPILERS[compiler].split()[0]) is None:
        pytest.skip(f"no {compiler} on this machine")
    pattern = grid(9, 8)
    A = positive_definite(pattern, 3)
    monkeypatch.setenv("OPTPY_CC", COMPILERS[compiler])
    for cached in (native, cholesky.ordering_library):
        cached.cache_clear()
    try:
        inverse = Factored(A, pattern, 3).inverse()
    finally:
        for cached in (native, cholesky.ordering_library):
            cached.cache_clear()
    np.testing.assert_allclose(inverse, np.linalg.inv(A), atol=1e-12)


# -- threads -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def everything_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHARED_PANEL", "SHARED_BUILD", "SHARED_SOLVE"):
        monkeypatch.setattr(cholesky, name, 0)


@pytest.mark.usefixtures("everything_shared")
@pytest.mark.parametrize("block", [1, 3, 6])
@pytest.mark.parametrize("name", ["nothing", "one", "star", "full", "grid", "dense", "three grids"])
def test_threads_do_not_change_a_bit(name: str, block: int) -> None:
    pattern = PATTERNS[name]()
    A = positive_definite(pattern, block)
    b = np.random.default_rng(2).normal(size=len(A))
    one, *others = (Factored(A, pattern, block, threads) for threads in (1, 2, 3))
    for other in others:
        for _ in range(3):
            other.build()
            np.testing.assert_array_equal(other.solve(b), one.solve(b))
            np.testing.assert_array_equal(other.solve(2 * b), 2 * one.solve(b))


def pairs_at(address: int, count: int) -> NDArray[np.int32]:
    return np.ctypeslib.as_array((c_int32 * 2 * count).from_address(address))


def test_tasks_and_what_is_above_them_are_all_panels() -> None:
    rows, columns = csr(grid(20, 20))
    symbolic = Factorisation(rows, columns, 2)
    state = symbolic.state
    tasks, top = (pairs_at(*found) for found in ((state.task, state.tasks), (state.top, state.tops)))
    done = [p for first, last in tasks for p in range(first, last)]
    assert sorted([*done, *top[:, 0]]) == list(range(symbolic.state.pattern.panels))
    assert len(tasks) > 5


# -- singular matrices -------------------------------------------------------------------------------------------------


def conjugate_gradients(A: Real, factored: Factored, b: Real, iterations: int) -> Real:
    x, r = np.zeros_like(b), b.copy()
    z = factored.solve(r)
    p, rho = z, r @ z
    for _ in range(iterations):
        if rho <= 0:
            break
        alpha = rho / (p @ A @ p)
        x, r = x + alpha * p, r - alpha * (A @ p)
        z = factored.solve(r)
        rho, before = r @ z, rho
        p = z + rho / before * p
    return x


def assert_is_preconditioner(A: Real, factored: Factored) -> None:
    inverse = factored.inverse()
    assert np.isfinite(inverse).all()
    scale = np.abs(inverse).max(initial=1)
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-11 * scale)
    assert np.linalg.eigvalsh(inverse).min() > -1e-11 * scale
    b = A @ np.random.default_rng(4).normal(size=len(A))
    x = conjugate_gradients(A, factored, b, 3)
    np.testing.assert_allclose(A @ x, b, atol=1e-9 * np.abs(b).max())


@pytest.mark.parametrize("block", [1, 3, 6])
@pytest.mark.parametrize("name", ["one", "unconnected", "chain", "ring", "star", "full", "grid", "three grids"])
def test_a_free_gauge(name: str, block: int) -> None:
    pattern = PATTERNS[name]()
    A = laplacian(pattern, block)
    factored = Factored(A, pattern, block)
    parts, _ = scipy.sparse.csgraph.connected_components(scipy.sparse.csr_array(pattern))
    assert factored.corrected == parts * block
    assert_is_preconditioner(A, factored)


@pytest.mark.parametrize("block", [1, 3, 6])
def test_fixed_nodes_and_channels_are_zero(block: int) -> None:
    pattern = grid(8, 9)
    A = positive_definite(pattern, block)
    fixed = np.random.default_rng(5).random(len(A)) < 0.2
    fixed[3 * block : 4 * block] = True
    A[fixed], A[:, fixed] = 0, 0
    factored = Factored(A, pattern, block)
    assert factored.corrected == fixed.sum()
    x = factored.solve(np.ones(len(A)))
    assert (x[fixed] == 0).all()
    free = np.ix_(~fixed, ~fixed)
    np.testing.assert_allclose(x[~fixed], np.linalg.solve(A[free], np.ones(len(A[free]))), atol=1e-10)
    assert_is_preconditioner(A, factored)


def test_an_indefinite_matrix_gives_something_positive() -> None:
    pattern = grid(6, 6)
    A = positive_definite(pattern, 2) - 4 * np.eye(72)
    assert np.linalg.eigvalsh(A).min() < -0.1
    factored = Factored(A, pattern, 2)
    assert factored.corrected > 0
    inverse = factored.inverse()
    assert np.isfinite(inverse).all()
    assert np.linalg.eigvalsh((inverse + inverse.T) / 2).min() > -1e-10 * np.abs(inverse).max()


@pytest.mark.usefixtures("everything_shared")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_not_a_number_comes_to_an_end(value: float, threads: int) -> None:
    pattern = grid(6, 6)
    for at in [(0, 0), (40, 40), (13, 14)]:
        A = positive_definite(pattern, 3)
        A[at] = A[at[::-1]] = value
        factored = Factored(A, pattern, 3, threads)
        assert factored.solve(np.ones(len(A))).shape == (108,)
    factored.blocks[:] = positive_definite(pattern, 3).reshape(36, 3, 36, 3).transpose(0, 2, 1, 3)[pattern]
    factored.build()  # nothing of it stays
    assert np.isfinite(factored.solve(np.ones(len(A)))).all()
