"""The assembled J^T J + D on the CPU: the code that adds up its blocks, its sparsity, and its memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import c_int
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.ir import Extent, Field, NormalMatrix, NormalTerm, VectorKind
from optpy.kernels.codegen.normal_rows import NORMAL_VISITS, normal_rows_header, point_step
from optpy.kernels.codegen.structures import Structure
from optpy.kernels.codegen.symbol_table import SymbolTable
from optpy.kernels.runtime.buffers import Buffers
from optpy.kernels.toolchain.headers import native_header
from optpy.linear.aggregation.structures import AggregationState
from optpy.linear.safe_work import SafeWork

if TYPE_CHECKING:  # SciPy takes a while to import, and most solves need no matrix
    from scipy.sparse import bsr_matrix, csr_matrix

_CHUNK = 512
"""Rows whose part of a dot product is added up at a time."""

Reads = NDArray[np.int64]
"""For each point of a term's domain and each of its reads, the node that it reads, or -1: (points, reads)."""


# -- source --------------------------------------------------------------------------------------------------------


def assembly_source(block: int) -> str:
    """The code for blocks of one size; goes after prelude.h, team.h, kernel.h and ``precision_source``."""
    lines = [f"#define NORMAL_CHANNELS {block}", f"#define NORMAL_CHUNK {_CHUNK}"]
    return "\n".join(
        [*lines, "", normal_rows_header(), NORMAL_MATRIX.text, "", native_header("linear/assembled/assembly.h")]
    )


def element_addresses(elements: Sequence[tuple[Field, int]], symbols: SymbolTable) -> Any:
    """The address of each channel of a row in a solver's vector: (field, channel, step), as native code reads it."""
    flat = [number for f, c in elements for number in (symbols.fields[f], c, point_step(f, symbols))]
    return (c_int * len(flat))(*flat)


# -- sparsity ------------------------------------------------------------------------------------------------------


def sparsity(reads: Sequence[Reads], nodes: int, safe_work: SafeWork) -> csr_matrix:
    """The pattern of coupled nodes: symmetric, with the whole diagonal.

    Args:
        reads: of each term.
        nodes: of the grid.
        safe_work: has safe points between the terms' pairs of reads.

    Raises:
        OutOfTime: it was not finished in time.
    """
    from scipy.sparse import coo_matrix

    every = np.arange(nodes, dtype=np.int64)
    rows, columns = [every], [every]
    for nodes_read in reads:
        k = nodes_read.shape[1]
        for s, t in ((s, t) for s in range(k) for t in range(k) if s != t):
            safe_work.check()
            inside = (nodes_read[:, s] >= 0) & (nodes_read[:, t] >= 0)
            rows.append(nodes_read[inside, s])
            columns.append(nodes_read[inside, t])
    safe_work.check()
    row, column = np.concatenate(rows), np.concatenate(columns)
    return coo_matrix((np.ones(len(row), np.int8), (row, column)), shape=(nodes, nodes)).astype(bool).tocsr()


# -- memory --------------------------------------------------------------------------------------------------------


class _Visits(ctypes.Structure):
    """The residuals of one term whose read number s is the node of a row."""

    _fields_ = NORMAL_VISITS.fields


NORMAL_MATRIX = Structure(
    "NormalMatrix",
    """
    int64_t nodes;
    const int64_t *row;       /* [row]: its blocks; one more than rows */
    const int64_t *diagonal;  /* [row] */
    const int64_t *place;     /* [row]: where its node stands in its grid */
    const NormalVisits *visits;
    double *matrix;           /* [block][channel][channel], in double whatever r and z are in */
    OPTPY_REAL *b, *x;        /* [row][channel]: r and z in the order of the rows, for what solves with the matrix */
    double *partial;          /* [chunk of rows] */
    NormalRow add_row;
    /* Of each channel of a row, in the solver's vectors: the field, its channel, and the step from place to place. */
    const int (*r)[3], (*z)[3], (*D)[3];
""",
    {"NormalVisits": _Visits},
)


class AssembledState(ctypes.Structure):
    """The matrix, for native code."""

    _fields_ = NORMAL_MATRIX.fields


ASSEMBLED_SOLVE = Structure(
    "AssembledSolve",
    """
    NormalMatrix *matrix;
    Aggregation *aggregation; /* whose finest level has the matrix's own b and x */
""",
    {"NormalMatrix": AssembledState, "Aggregation": AggregationState},
)


class AssembledSolve(ctypes.Structure):
    """The function that makes z of r with an assembled matrix."""

    _fields_ = ASSEMBLED_SOLVE.fields


@final
class AssembledMatrix:
    """The matrix of one problem: where each residual adds to it, and its blocks.

    Args:
        matrix: its terms.
        reads: of each term, the nodes that it reads.
        buffers: of the problem.
        order: the node of each row.
        rows: where the blocks of each row begin, and one more.
        columns: the row (of the same order) that each block's columns belong to, ascending within a row.
        values: the blocks: (blocks, channels, channels), in float64.
    """

    def __init__(
        self,
        matrix: NormalMatrix,
        reads: Sequence[Reads],
        buffers: Buffers,
        order: NDArray[np.int64],
        rows: NDArray[np.int64],
        columns: NDArray[np.int32],
        values: NDArray[Any],
    ) -> None:
        from scipy.sparse import csr_matrix

        self._memory: list[NDArray[Any]] = []
        self._buffers = buffers
        self.order, self.rows, self.columns, self.values = order, rows, columns, values
        n, channels = len(order), len(matrix.elements)
        real = buffers.memory[matrix.vectors[VectorKind.R][0][0]].dtype
        self._row_of = np.empty(n, np.int64)
        self._row_of[order] = np.arange(n)
        blocks = csr_matrix((np.arange(len(columns), dtype=np.int32), columns, rows), shape=(n, n))
        visits = [v for term, nodes in zip(matrix.terms, reads, strict=True) for v in self._visits(term, nodes, blocks)]
        self.diagonal = _at(blocks, np.arange(n), np.arange(n))
        self._visit_table = (_Visits * max(len(visits), 1))(*visits)
        self.state = AssembledState(
            nodes=n,
            row=self._kept(rows, np.int64),
            diagonal=self._kept(self.diagonal, np.int64),
            place=self._kept(self._places(matrix.dims, order), np.int64),
            visits=self._visit_table,
            matrix=self._kept(values, np.float64),
            b=self._kept(np.zeros(n * channels), real),
            x=self._kept(np.zeros(n * channels), real),
            partial=self._kept(np.zeros(-(-n // _CHUNK) + 1), np.float64),
        )

    def _kept(self, array: NDArray[Any], dtype: Any) -> int:
        """The address of an array in the given dtype, which stays alive."""
        array = np.ascontiguousarray(array, dtype)
        self._memory.append(array)
        return array.ctypes.data

    def _places(self, dims: tuple[Extent, ...], points: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions of points of a grid, counted in C order, in its rows one after the other."""
        length = self._buffers.shape(dims)[1]
        return points // length * self._buffers.pitch[dims] + points % length

    def _visits(self, term: NormalTerm, nodes: Reads, blocks: csr_matrix) -> Iterator[_Visits]:
        rows = np.where(nodes >= 0, self._row_of[nodes], -1)
        for read in range(len(term.reads)):
            points = np.flatnonzero(rows[:, read] >= 0)
            points = points[np.argsort(rows[points, read], kind="stable")]
            own = rows[points]
            block = np.full(own.shape, -1, np.int32)
            for other in range(len(term.reads)):
                inside = own[:, other] >= 0
                block[inside, other] = _at(blocks, own[inside, read], own[inside, other])
            counts = np.bincount(own[:, read], minlength=len(self.order))
            place = points if term.stored is None else self._places(term.stored.dims, points)
            yield _Visits(
                first=self._kept(np.concatenate([[0], np.cumsum(counts)]), np.int64),
                place=self._kept(place, np.int64),
                block=self._kept(block, np.int32),
            )

    def as_scipy(self) -> bsr_matrix:
        """The matrix in the order of its rows; it shares the memory of the blocks."""
        from scipy.sparse import bsr_matrix

        size = len(self.order) * self.values.shape[1]
        return bsr_matrix((self.values, self.columns, self.rows), shape=(size, size))

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self._memory)


def _at(blocks: csr_matrix, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of the blocks at (row, column), all of which there are."""
    if not len(rows):
        return np.zeros(0, np.int64)
    return np.asarray(blocks[rows, columns], np.int64).ravel()
