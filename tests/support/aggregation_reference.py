"""The native cycle of smoothed aggregation on a matrix, and the same V-cycle in NumPy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optpy.kernels.codegen.dialect import c_dialect
from optpy.kernels.runtime.cpu import precision_source
from optpy.kernels.toolchain.compiler import compile_c
from optpy.kernels.toolchain.headers import native_header
from optpy.linear.aggregation import aggregation
from optpy.linear.aggregation.aggregation import Aggregation, aggregation_source
from optpy.linear.aggregation.structures import AggregationLevel
from optpy.linear.safe_work import safe_work_source

Real = NDArray[np.float64]

RUN = r"""
static void build_body(void *g, Team *team, int thread) { amg_build((Aggregation *)g, team, thread); }
static void cycle_body(void *g, Team *team, int thread) { amg_cycle((Aggregation *)g, team, thread); }
void build(Aggregation *g, int threads) { team_run(threads, build_body, g); }
void cycle(Aggregation *g, int threads) { team_run(threads, cycle_body, g); }
"""


def native(block: int, dtype: str) -> ctypes.CDLL:
    dialect = c_dialect(dtype)
    shared = [native_header("kernels/c/prelude.h"), native_header("kernels/c/team.h"), safe_work_source()]
    source = "\n\n".join([*shared, precision_source(dtype), aggregation_source(block, dialect), RUN])
    return compile_c(source, name="aggregation", werror=True).library


def array_at(address: int | None, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """A view of the memory of a level."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not size:
        return np.zeros(shape, dtype)
    assert address is not None
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)


class Native:
    """The preconditioner of a matrix, in the caller's order.

    Args:
        A: (n m, n m).
        candidates: (n, m, m), or those that are there.
    """

    def __init__(self, A: Any, m: int, dtype: str = "float64", candidates: Any = None, threads: int = 2) -> None:
        blocks = sp.bsr_matrix(A, blocksize=(m, m))
        n = blocks.shape[0] // m
        where = sp.csr_matrix((np.arange(1.0, len(blocks.indices) + 1), blocks.indices, blocks.indptr), (n, n))
        pattern = (where + sp.identity(n)).tocsr()
        self.g = g = Aggregation(pattern, m, dtype)
        rows = np.repeat(g.order, np.diff(g.rows))
        entry = np.asarray(where[rows, g.order[g.columns]], int).ravel() if len(rows) else rows
        g.matrix[:] = np.concatenate([np.zeros((1, m, m)), blocks.data.reshape(-1, m, m)])[entry]
        if candidates is not None:
            g.candidates[:] = candidates[g.order]
        self.n, self.m, self.dtype, self.threads = n, m, dtype, threads
        self.library = native(m, dtype)
        self.build()

    def build(self) -> None:
        self.library.build(ctypes.byref(self.g.state), self.threads)

    def level(self, k: int) -> AggregationLevel:
        level = self.g.state.level[k]
        assert isinstance(level, AggregationLevel)
        return level

    def vector(self, name: str) -> NDArray[Any]:
        return array_at(getattr(self.level(0), name), (self.n, self.m), self.dtype)

    def __call__(self, r: NDArray[Any]) -> NDArray[Any]:
        self.vector("b")[:] = r.reshape(self.n, self.m)[self.g.order]
        self.library.cycle(ctypes.byref(self.g.state), self.threads)
        x = np.empty((self.n, self.m), self.dtype)
        x[self.g.order] = self.vector("x")
        return x.ravel()

    def aggregate(self, k: int) -> NDArray[np.int32]:
        """Of each row of a level, in its own order."""
        return array_at(self.level(k).aggregate, (self.g.sizes[k],), np.int32)

    def plain(self, k: int) -> NDArray[np.bool_]:
        """Of each unknown of a level: whether its row of P is not smoothed."""
        return np.repeat(array_at(self.level(k).plain, (self.g.sizes[k],), np.bool_), self.m)


# -- the reference -----------------------------------------------------------------------------------------------------


class ReferenceCycle:
    """The V-cycle for a dense A, with the aggregates and the omega that the native code has found."""

    def __init__(self, M: Native, A: Real, candidates: Real, tolerance: float = 1e-11) -> None:
        m, self.M = M.m, M
        unknowns = (M.g.order[:, None] * m + np.arange(m)).ravel()
        self.unknowns = unknowns
        A, B = A[np.ix_(unknowns, unknowns)], candidates[M.g.order].reshape(-1, m)
        self.A, self.P, self.sweep = [A], [], []
        for k in range(len(M.g.sizes) - 1):
            inverse, pivots = inverse_of_blocks(A, m, tolerance)
            self.sweep.append(gauss_seidel(A, m, tolerance))
            T, B = tentative(M.aggregate(k), np.where(pivots[:, None], B, 0), m)
            P = T - np.where(M.plain(k)[:, None], 0, M.level(k).omega * (inverse @ A @ T))
            A = P.T @ A @ P
            self.P.append(P)
            self.A.append(A)

    def __call__(self, b: Real) -> Real:
        x = np.empty_like(b)
        x[self.unknowns] = self._cycle(0, b[self.unknowns])
        return x

    def _cycle(self, level: int, b: Real) -> Real:
        A = self.A[level]
        if level == len(self.A) - 1:
            return np.asarray(np.linalg.pinv(A, rcond=1e-10, hermitian=True) @ b)
        S, P = self.sweep[level], self.P[level]
        x = np.zeros_like(b)
        for _ in range(self.M.level(level).visits):
            x = x + S @ (b - A @ x)
            x = x + P @ self._cycle(level + 1, P.T @ (b - A @ x))
            x = x + S.T @ (b - A @ x)
        return x


def inverse_of_blocks(D: Real, m: int, tolerance: float) -> tuple[Real, NDArray[np.bool_]]:
    """Of the diagonal blocks, without the unknowns that have no pivot; and which have one."""
    inverse, pivots = np.zeros_like(D), np.zeros(len(D), bool)
    for at in range(0, len(D), m):
        kept: list[int] = []
        for c in range(at, at + m):
            rest = D[c, c] - D[c, kept] @ np.linalg.solve(D[np.ix_(kept, kept)], D[kept, c])
            if rest > tolerance * D[c, c]:
                kept.append(c)
        inverse[np.ix_(kept, kept)] = np.linalg.inv(D[np.ix_(kept, kept)])
        pivots[kept] = True
    return inverse, pivots


def gauss_seidel(A: Real, m: int, tolerance: float) -> Real:
    """The matrix of a forward sweep from 0."""
    chunk = np.arange(len(A)) // (aggregation.CHUNK * m)
    same = chunk[:, None] == chunk
    block = np.arange(len(A)) // m
    inverse, _ = inverse_of_blocks(A, m, tolerance)
    values, vectors = np.linalg.eigh(inverse)
    root = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    between = root @ np.where(same, 0, A) @ root
    n = len(A) // m
    coupling = np.linalg.norm(between.reshape(n, m, n, m), axis=(1, 3)).sum(axis=1)
    inverse = inverse / np.repeat(1 + np.maximum(0.5 * (coupling - 0.9), 0), m)[:, None]
    lower = np.where(same & (block[:, None] > block), A, 0)
    return np.asarray(np.linalg.solve(np.eye(len(A)) + inverse @ lower, inverse))


def tentative(aggregate: NDArray[np.int32], B: Real, m: int) -> tuple[Real, Real]:
    """T and the candidates of the next level, by Gram and Schmidt."""
    count = int(aggregate.max(initial=-1)) + 1
    T, R = np.zeros((len(B), count * m)), np.zeros((count * m, m))
    for a in range(count):
        rows = np.flatnonzero(np.repeat(aggregate == a, m))
        Q = B[rows].copy()
        for k in range(m):
            for j in range(k):
                R[a * m + j, k] = Q[:, j] @ Q[:, k]
                Q[:, k] -= R[a * m + j, k] * Q[:, j]
            length = np.linalg.norm(Q[:, k])
            R[a * m + k, k] = length if length > 1e-7 * np.linalg.norm(B[rows, k]) else 0
            Q[:, k] = Q[:, k] / length if R[a * m + k, k] else 0
        T[rows, a * m : (a + 1) * m] = Q
    return T, R
