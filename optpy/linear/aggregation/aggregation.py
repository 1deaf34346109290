"""The algebraic multigrid preconditioner on the CPU: what aggregation.h is compiled with, and its memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.errors import InternalError
from optpy.kernels.codegen.dialect import Dialect
from optpy.kernels.toolchain.headers import native_header
from optpy.linear.aggregation.structures import AGGREGATION, LEVEL, AggregationLevel, AggregationState
from optpy.linear.safe_work import SafeWork

COARSEST = 200
"""Unknowns that are solved for directly."""
_HUB = (100, 8)
"""Nodes of more neighbours than this, and than this many times the mean, are hubs: see _aggregates."""
_DENSE = 16
"""Block products that A P may take, for each block of A."""
_VISITS = 3
"""Cycles on a level in one of the finer level, where they take half as long together."""
CHUNK = 256
"""Rows of one Gauss-Seidel sweep, and of one partial sum."""
ALONE = 1 << 16
"""Numbers in a matrix below which one thread is faster than a barrier."""


# -- source --------------------------------------------------------------------------------------------------------


def aggregation_source(block: int, dialect: Dialect) -> str:
    """The code for blocks of one size; goes after prelude.h, team.h and ``precision_source``."""
    definitions = {
        "AMG_BLOCK": block,
        "AMG_LANES": _lanes(block),
        **_compact(dialect),
        "AMG_CHUNK": CHUNK,
        "AMG_ALONE": ALONE,
    }
    lines = [f"#define {name} {value}" for name, value in definitions.items()]
    return "\n".join(
        [
            *lines,
            "",
            "typedef AMG_COMPACT AmgCompact;",
            LEVEL.text,
            AGGREGATION.text,
            "",
            native_header("linear/aggregation/aggregation.h"),
            native_header("linear/aggregation/aggregation_build.h"),
        ]
    )


def _compact(dialect: Dialect) -> dict[str, str]:
    """The types of the cycle's copies of A and P: numbers from -1 to 1, as multiples of a unit."""
    if dialect.real == "float":
        return {"AMG_COMPACT": "int16_t", "AMG_UNIT": "(1.0 / 32767)", "AMG_ROUND": "rintf"}
    return {"AMG_COMPACT": "double", "AMG_UNIT": "1.0", "AMG_ROUND": ""}


def _lanes(block: int) -> int:
    """Numbers of the vector register that holds one row of a block."""
    return 1 << (block - 1).bit_length()


# -- patterns ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Coarsening:
    """The step from one level to the next, in any numbering of their nodes.

    Attributes:
        A: pattern of the level.
        aggregate: of each node; -1: none.
        plain: of each node: whether P is T there, not smoothed.
        P, AP: patterns of the prolongator, and of its product.
    """

    A: Any
    aggregate: NDArray[np.int64]
    plain: NDArray[np.bool_]
    P: Any
    AP: Any

    def renumbered(self, order: NDArray[np.int64], rank: NDArray[np.int64]) -> _Coarsening:
        """With the level's nodes in an order, and the aggregates by their rank."""
        own = _inverse(order)
        aggregate = np.append(rank, -1)[self.aggregate[order]]
        A, P, AP = (_renumbered(M, order, r) for M, r in ((self.A, own), (self.P, rank), (self.AP, rank)))
        return _Coarsening(A, aggregate, self.plain[order], P, AP)


def _csr(entries: Any, shape: Any, copy: bool = False) -> Any:
    """A SciPy matrix. SciPy takes a while to import, and most solves need none of it."""
    from scipy.sparse import csr_matrix

    return csr_matrix(entries, shape, copy=copy)


def _inverse(order: NDArray[np.int64]) -> NDArray[np.int64]:
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank


def _renumbered(pattern: Any, order: NDArray[np.int64], rank: NDArray[np.int64]) -> Any:
    """Rows in an order, columns by their rank and sorted."""
    rows = pattern[order]
    columns = rank.astype(rows.indices.dtype)[rows.indices]
    return _csr((rows.data, columns, rows.indptr), rows.shape).tocsc().tocsr()  # twice transposed: sorted


def _hubs(A: Any) -> NDArray[np.bool_]:
    degree = np.diff(A.indptr) - 1
    return np.asarray(degree > max(_HUB[0], _HUB[1] * degree.mean()))


def _aggregates(A: Any, hubs: NDArray[np.bool_], safe_work: SafeWork) -> NDArray[np.int64]:
    """The aggregate of each node; -1: none, it has no neighbour and the smoother solves it alone.

    Vanek, Mandel and Brezina 1996, algorithm 5.1: node by node, a root whose neighbours are all free takes them all;
    then each node that is left joins an aggregate beside it. A hub belongs to no neighbourhood, for it would be in all
    of them: it makes an aggregate of its own, with those that have hubs for neighbours only. Every other aggregate has
    two nodes at least, so the next level is always smaller.
    """
    near = _without(A, hubs) if hubs.any() else A
    aggregate = _roots(near, safe_work)
    _join(aggregate, near)
    made = aggregate.max(initial=-1) + 1
    aggregate[hubs] = made + np.arange(np.count_nonzero(hubs))
    if hubs.any():
        _join(aggregate, A)
    return aggregate


def _without(A: Any, hubs: NDArray[np.bool_]) -> Any:
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    keep = ~(hubs[rows] | hubs[A.indices])
    indptr = np.concatenate([[0], np.cumsum(keep)])[A.indptr]
    return _csr((A.data[keep], A.indices[keep], indptr), A.shape)


def _roots(A: Any, safe_work: SafeWork) -> NDArray[np.int64]:
    """The neighbourhoods of nodes that have a neighbour, as many as fit without meeting."""
    start, columns = A.indptr.tolist(), A.indices.tolist()
    aggregate = np.full(A.shape[0], -1)
    taken = bytearray((np.diff(A.indptr) <= 1).tobytes())  # in a neighbourhood or beside one: no root
    members: list[int] = []
    sizes: list[int] = []
    root = taken.find(0)
    while root >= 0:
        safe_work.check()
        around = columns[start[root] : start[root + 1]]
        taken[root] = 1
        for node in around:
            for beside in columns[start[node] : start[node + 1]]:
                taken[beside] = 1
        members += around
        sizes.append(len(around))
        root = taken.find(0, root)
    aggregate[members] = np.repeat(np.arange(len(sizes)), sizes)
    return aggregate


def _join(aggregate: NDArray[np.int64], A: Any) -> None:
    """Nodes of no aggregate join the first one beside them."""
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    beside = aggregate[A.indices]
    here = np.flatnonzero((aggregate[rows] < 0) & (beside >= 0))
    first = here[np.diff(rows[here], prepend=-1) > 0]
    aggregate[rows[first]] = beside[first]


def _coarsening(A: Any, safe_work: SafeWork) -> tuple[_Coarsening, Any]:
    """One step, and the pattern of the next level: P smoothed, unless that would fill the next level."""
    hubs = _hubs(A)
    aggregate = _aggregates(A, hubs, safe_work)
    inside = np.flatnonzero(aggregate >= 0)
    T = _csr(
        (np.ones(len(inside), bool), aggregate[inside], np.append(0, np.cumsum(aggregate >= 0))),
        (A.shape[0], int(aggregate.max(initial=-1)) + 1),
    )
    for plain in (hubs, np.ones_like(hubs)):
        safe_work.check()
        P = _smoothed(A, T, plain)
        if not plain.all() and np.diff(P.indptr)[A.indices].sum() > _DENSE * A.nnz:
            continue
        AP = A @ P
        coarse = P.T.tocsr() @ AP
        if coarse.nnz <= A.nnz:
            break
    return _Coarsening(A, aggregate, plain, P, AP), coarse


def _smoothed(A: Any, T: Any, plain: NDArray[np.bool_]) -> Any:
    """The pattern of P."""
    if plain.all():
        return T
    if not plain.any():
        return A @ T
    return _csr((~plain, (np.arange(len(plain)),) * 2), (len(plain),) * 2) @ A @ T + T


def _levels(A: Any, block: int, safe_work: SafeWork) -> tuple[list[_Coarsening], Any, NDArray[np.int64]]:
    """All steps, the pattern of the coarsest level, and the order of the finest."""
    steps: list[_Coarsening] = []
    while A.shape[0] * block > COARSEST and A.nnz > A.shape[0]:
        step, A = _coarsening(A, safe_work)
        steps.append(step)
    order = np.arange(A.shape[0])
    A = _renumbered(A, order, order)
    for level in reversed(range(len(steps))):
        rank = _inverse(order)
        aggregate = steps[level].aggregate
        order = np.argsort(np.append(rank, len(rank))[aggregate], kind="stable")  # those of none at the end
        steps[level] = steps[level].renumbered(order, rank)
    return steps, A, order


# -- memory --------------------------------------------------------------------------------------------------------


@final
class Aggregation:
    """The levels of smoothed aggregation for one symmetric A of n x n blocks, each m x m.

    Args:
        pattern: (n, n), symmetric, with the whole diagonal; its values do not matter.
        block: m.
        dtype: of the numbers, "float32" or "float64".
        safe_work: of the analysis; None: only Ctrl-C cuts it short.

    Attributes:
        order: (n,) the node of the caller that stands at each row of the finest level.
        rows, columns: (n + 1,), (nnz,) the pattern in that order, the columns of each row sorted.
        matrix: (nnz, m, m) A in that order: to be filled in before the levels are built.
        candidates: (n, m, m) in that order: [i, a, k] is channel a of the k-th vector that A makes almost 0; the
            unit vectors of the channels, unless they are filled in.
        state: for C.

    Raises:
        OutOfTime: the analysis was not finished in time.
        InternalError: the diagonal is not in the pattern.
    """

    def __init__(self, pattern: Any, block: int, dtype: str, safe_work: SafeWork | None = None) -> None:
        self._block, self._dtype = block, np.dtype(dtype)
        self._compact = np.dtype(np.int16 if dtype == "float32" else np.float64)
        self._memory: list[NDArray[Any]] = []
        A = _csr((np.ones(len(pattern.indices), bool), pattern.indices, pattern.indptr), pattern.shape, copy=True)
        A.sum_duplicates()
        n = A.shape[0]
        if A.shape != (n, n) or not A.diagonal().all():
            raise InternalError(f"a pattern of {A.shape} has to be square, with its whole diagonal")
        steps, coarsest, self.order = _levels(A, block, safe_work or SafeWork())
        patterns = [*(step.A for step in steps), coarsest]
        arrays = [self._level(p) for p in patterns]
        self.sizes = [int(p.shape[0]) for p in patterns]
        self.rows, self.columns = arrays[0]["rows"], arrays[0]["columns"]
        self.matrix, self.candidates = arrays[0]["matrix"], arrays[0]["candidates"]
        self.candidates[:] = np.eye(block)
        for own, step in zip(arrays, steps, strict=False):
            own.update(self._transfer(step))
        entries = [int(p.nnz) for p in patterns]
        levels = [
            AggregationLevel(
                nodes=nodes,
                visits=min(max(finer // (2 * max(nnz, 1)), 1), _VISITS),
                aggregates=coarser,
                **{name: array.ctypes.data for name, array in own.items()},
            )
            for nodes, coarser, nnz, finer, own in zip(
                self.sizes, [*self.sizes[1:], 0], entries, [0, *entries[:-1]], arrays, strict=True
            )
        ]
        self._levels = (AggregationLevel * len(levels))(*levels)
        self.state = self._state(steps)

    def _level(self, A: Any) -> dict[str, NDArray[Any]]:
        n = A.shape[0]
        rows = np.repeat(np.arange(n), np.diff(A.indptr))
        arrays = {
            "rows": self._keep(A.indptr, np.int64),
            "columns": self._keep(A.indices, np.int32),
            "diagonal": self._keep(np.flatnonzero(A.indices == rows), np.int64),
            "matrix": self._blocks(A.nnz, self._dtype),
            "candidates": self._blocks(n, self._dtype),
            "root": self._blocks(n, self._dtype),
            "inverse": self._blocks(n, self._dtype),
            "weight": self._keep(np.zeros(n), self._dtype),
        }
        for name, width in (("b", self._block), ("x", self._block), *((name, _lanes(self._block)) for name in "fut")):
            arrays[name] = self._keep(np.zeros(n * width), self._dtype)
        return arrays | self._copy(A, rows)

    def _copy(self, A: Any, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """The copy of the matrix that the cycle reads: its near and its far entries, each in order."""
        columns = A.indices
        near = (columns < rows) & (columns >= rows // CHUNK * CHUNK)
        far = ~near & (columns != rows)
        position = np.cumsum(far) - 1
        transposed = _csr((np.arange(A.nnz), columns, A.indptr), A.shape).T.tocsr().data
        return {
            "near_rows": self._keep(np.append(0, np.cumsum(near))[A.indptr], np.int64),
            "near_columns": self._keep(columns[near], np.int32),
            "near": self._blocks(int(near.sum()), self._compact),
            "far_columns": self._keep(columns[far], np.int32),
            "far": self._blocks(int(far.sum()), self._compact),
            "twin": self._keep(position[transposed], np.int32),
        }

    def _transfer(self, step: _Coarsening) -> dict[str, NDArray[Any]]:
        """The arrays that lead from a level to the next."""
        P, AP = step.P, step.AP
        transposed = _csr((np.arange(P.nnz), P.indices, P.indptr), P.shape).tocsc()
        inside = np.sort(step.aggregate[step.aggregate >= 0])
        members = np.searchsorted(inside, np.arange(P.shape[1] + 1))
        return {
            "members": self._keep(members, np.int64),
            "aggregate": self._keep(step.aggregate, np.int32),
            "plain": self._keep(step.plain, np.uint8),
            "p_rows": self._keep(P.indptr, np.int64),
            "p_columns": self._keep(P.indices, np.int32),
            "p": self._blocks(P.nnz, self._dtype),
            "q": self._blocks(P.nnz, self._compact),
            "qt": self._blocks(P.nnz, self._compact),
            "q_scale": self._keep(np.zeros(P.shape[1]), self._dtype),
            "pt_rows": self._keep(transposed.indptr, np.int64),
            "pt_nodes": self._keep(transposed.indices, np.int32),
            "pt_entries": self._keep(transposed.data, np.int64),
            "ap_rows": self._keep(AP.indptr, np.int64),
            "ap_columns": self._keep(AP.indices, np.int32),
        }

    def _state(self, steps: list[_Coarsening]) -> AggregationState:
        unknowns = self.sizes[-1] * self._block
        dense = unknowns <= COARSEST
        arrays = {
            "work": self._keep(np.zeros(unknowns if dense else 0), np.float64),
            "partial": self._keep(np.zeros(-(-self.sizes[0] // CHUNK)), np.float64),
            "tentative": self._blocks(self.sizes[0], self._dtype),
            "product": self._blocks(max((step.AP.nnz for step in steps), default=0), self._dtype),
        }
        if dense:
            arrays["factor"] = self._keep(np.zeros(unknowns**2), np.float64)
        addresses = {name: array.ctypes.data for name, array in arrays.items()}
        return AggregationState(levels=len(self._levels), level=self._levels, **addresses)

    def _keep(self, values: NDArray[Any], dtype: Any) -> NDArray[Any]:
        array = np.ascontiguousarray(values, dtype)
        self._memory.append(array)
        return array

    def _blocks(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """(count, m, m), and the numbers beyond it that C may read."""
        size = count * self._block**2
        whole = np.zeros(size + _lanes(self._block), dtype)
        self._memory.append(whole)
        return whole[:size].reshape(count, self._block, self._block)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self._memory)
