"""A sparse Cholesky factorisation on the CPU: its symbolic part, and what cholesky.h is compiled with."""

from __future__ import annotations

import ctypes
import functools
import heapq
from ctypes import byref, c_int, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.errors import InternalError
from optpy.kernels.toolchain.compiler import compile_c
from optpy.kernels.toolchain.headers import native_header
from optpy.linear.cholesky.structures import CHOLESKY, PANELS, FactorState, Panels
from optpy.linear.safe_work import SafeWork, safe_work_source

_PANEL_WIDTH = 96
"""Scalar columns of a panel at most: a strip of its rows stays in the first cache."""
_TASKS = 24
"""A subtree that one thread does is at most this part of the work."""
SHARED_PANEL = 1 << 18
"""Multiply-adds from which threads do a panel together, ..."""
SHARED_BUILD = 1 << 21
"""... and a factorisation; ..."""
SHARED_SOLVE = 1 << 20
"""... and scalars of L from which they do a solve together. Less is done sooner than threads have met."""
_PADDING = 16
"""Scalars after the last of L: vectors are read beyond the rows of a panel."""
MAX_BLOCK = 12

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


def cholesky_source(block: int) -> str:
    """The code for blocks of one size; goes after prelude.h, team.h and ``precision_source``."""
    headers = (native_header(f"linear/cholesky/{name}") for name in ("cholesky.h", "cholesky_solve.h"))
    return "\n".join([f"#define CHOL_BLOCK {block}\n", PANELS.text, CHOLESKY.text, "", *headers])


@functools.cache
def ordering_library() -> ctypes.CDLL:
    """The native code that orders and analyses patterns: compiled once for a machine, and loaded once."""
    source = "\n".join(
        [
            native_header("kernels/c/prelude.h"),
            safe_work_source(),
            native_header("linear/cholesky/ordering.h"),
            PANELS.text,
            native_header("linear/cholesky/symbolic.h"),
        ]
    )
    library = compile_c(source, name="ordering").library
    library.optpy_order.restype = c_int
    library.optpy_supernodes.restype = c_int32
    library.optpy_panel_updates.restype = c_int64
    return library


def _addresses(*arrays: NDArray[Any]) -> list[Any]:
    """For a call of the library; each keeps its array."""
    return [array.ctypes.data_as(c_void_p) for array in arrays]


def _minimum_degree(rows: Int64s, columns: Int32s, safe_work: SafeWork) -> Int32s:
    """order[k] = the node to eliminate as k-th, for little fill: approximate minimum degree.

    Args:
        rows: (n + 1,) and columns: (nnz,), CSR of a symmetric pattern.

    Raises:
        OutOfTime: it was not finished in time.
        MemoryError: there is not enough.

    Reference: Amestoy, Davis, Duff, An approximate minimum degree ordering algorithm, 1996.
    """
    n = len(rows) - 1
    order = np.empty(n, np.int32)
    done: list[int] = []

    def work(safe: int) -> None:
        done.append(ordering_library().optpy_order(c_int32(n), *_addresses(rows, columns, order), c_void_p(safe)))

    safe_work.finish(work)
    if not done[0]:
        raise MemoryError(f"no memory for an order of elimination of {n} nodes")
    return order


@final
@dataclass(frozen=True, slots=True)
class _Ordered:
    """A's pattern in CSR, and its order of elimination.

    Attributes:
        order: order[k] = the node to eliminate as k-th.
        inverse_order: inverse_order[node] = when it is eliminated.
    """

    rows: Int64s
    columns: Int32s
    order: Int32s
    inverse_order: Int32s

    @property
    def addresses(self) -> list[Any]:
        return _addresses(self.rows, self.columns, self.order, self.inverse_order)


@final
@dataclass(frozen=True, slots=True)
class _Supernodes:
    """Columns of L in a row whose patterns are about the same.

    Attributes:
        first: where each begins, and one more.
        start, row: the rows below it, row[start[s]] to row[start[s + 1]].
        above: the parent of each in the tree of supernodes, or -1.
    """

    first: Int32s
    start: Int64s
    row: Int32s
    above: Int32s


@final
class Factorisation:
    """The pattern of L in P A P^T = L L^T, and the memory for its values.

    A has blocks of block x block scalars. The order is of approximate minimum degree. Numeric work is done by
    cholesky.h in double precision, on `state`, once `allocate` has been called.

    Args:
        rows: (n + 1,) and columns: (nnz,), CSR of A over its nodes: symmetric, all of the diagonal, columns ascending.
        block: 1 to MAX_BLOCK.
        safe_work: of the analysis; None: only Ctrl-C cuts it short.

    Attributes:
        operations: multiply-adds of one factorisation.
        blocks: of L, the diagonal counted, without the zeros that are stored with them.
        needed: bytes of L and all else, whether it is allocated yet or not.
        state: for the native code.

    Raises:
        OutOfTime: the analysis was not finished in time.
        InternalError: the pattern is not as described.
        MemoryError: there is not enough.
    """

    def __init__(self, rows: Int64s, columns: Int32s, block: int, safe_work: SafeWork | None = None) -> None:
        rows = np.ascontiguousarray(rows, np.int64)
        columns = np.ascontiguousarray(columns, np.int32)
        _check(rows, columns, block)
        self.block = block
        self.nodes = len(rows) - 1
        self._memory: list[NDArray[Any]] = []
        self._allocated = False
        self.state = FactorState()
        self._safe_work = safe_work or SafeWork()
        self._analyse(rows, columns)

    def _keep(self, state: ctypes.Structure, **arrays: NDArray[Any]) -> None:
        """Gives the native code some arrays; they stay alive."""
        for name, array in arrays.items():
            self._memory.append(array)
            setattr(state, name, array.ctypes.data)

    @property
    def nbytes(self) -> int:
        """Of what is allocated."""
        return sum(a.nbytes for a in self._memory)

    # -- pattern -------------------------------------------------------------------------------------------------------

    def _analyse(self, rows: Int64s, columns: Int32s) -> None:
        n, library = self.nodes, ordering_library()
        order = _minimum_degree(rows, columns, self._safe_work)
        inverse_order, parent, count = (np.empty(n, np.int32) for _ in range(3))
        A = _Ordered(rows, columns, order, inverse_order)
        scratch = np.empty(5 * (n + 1), np.int32)
        library.optpy_elimination_tree(c_int32(n), *A.addresses, *_addresses(parent, count, scratch))
        first = np.empty(n + 1, np.int32)
        self._safe_work.check()
        supernodes = library.optpy_supernodes(
            c_int32(n), *_addresses(parent, count), c_int32(self.block), *_addresses(first, np.empty(n, np.int64))
        )
        first = first[: supernodes + 1].copy()
        last = first[1:] - 1
        supernode = np.repeat(np.arange(supernodes, dtype=np.int32), np.diff(first))
        above = np.where(parent[last] >= 0, supernode[parent[last]], -1).astype(np.int32)
        start = _starts(count[last] - 1)
        row = np.empty(start[-1], np.int32)
        scratch64 = np.empty(supernodes, np.int64)
        library.optpy_supernode_rows(
            c_int32(n),
            *A.addresses,
            c_int32(supernodes),
            *_addresses(above, supernode, start, row, scratch, scratch64),
        )
        self._safe_work.check()
        self.order = order
        self._keep(self.state, order=order)
        self.blocks = int(count.sum(dtype=np.int64))
        self._cut(A, _Supernodes(first, start, row, above))

    def _cut(self, A: _Ordered, supernodes: _Supernodes) -> None:
        """Cuts supernodes into panels, and lists what updates each one and where A's blocks go."""
        library, n = ordering_library(), self.nodes
        widths = np.diff(supernodes.first).astype(np.int64)
        parts = -(-widths // max(1, _PANEL_WIDTH // self.block))
        owner = np.repeat(np.arange(len(widths), dtype=np.int32), parts)
        ordinal = np.arange(len(owner)) - np.repeat(_starts(parts)[:-1], parts)
        first = np.append(supernodes.first[owner] + widths[owner] * ordinal // parts[owner], n).astype(np.int32)
        panels = len(owner)
        below = supernodes.first[owner + 1] - first[1:] + np.diff(supernodes.start)[owner]
        start = _starts(below)
        row = np.empty(start[-1], np.int32)
        tallest = int((np.diff(first) + below).max(initial=0))
        self.state.pattern = Panels(n, panels, self.block, tallest)
        self._keep(self.state.pattern, first=first, start=start, row=row)
        library.optpy_panel_rows(
            byref(self.state.pattern), *_addresses(owner, supernodes.first, supernodes.start, supernodes.row)
        )
        self._list_updates(A, np.repeat(np.arange(panels, dtype=np.int32), np.diff(first)))
        head = _starts(parts)[:-1]
        parent = np.arange(1, panels + 1)  # the next part, or what is above the last
        parent[head + parts - 1] = np.where(supernodes.above >= 0, head[supernodes.above], panels)
        self._measure(first, start, parent)

    def _list_updates(self, A: _Ordered, panel: Int32s) -> None:
        """Lists the updates of each panel, and the targets of A's blocks; `panel` is that of each column."""
        library, pattern = ordering_library(), self.state.pattern
        update, entry = (np.zeros(pattern.panels + 1, np.int64) for _ in range(2))
        self._keep(pattern, update=update, entry=entry)
        self._safe_work.check()
        library.optpy_panel_counts(byref(pattern), *_addresses(panel, A.rows, A.columns, A.inverse_order))
        np.cumsum(update, out=update)
        np.cumsum(entry, out=entry)
        updates, entries = int(update[-1]), int(entry[-1])
        self._keep(pattern, **{name: np.empty(updates, np.int32) for name in ("source", "begin", "end")})
        self._keep(pattern, offset=np.empty(updates, np.int64))
        self._keep(pattern, **{name: np.empty(entries, np.int64) for name in ("block_of", "target")})
        used = library.optpy_panel_updates(byref(pattern), *_addresses(panel, np.empty(pattern.panels, np.int64)))
        self._keep(pattern, position=np.empty(used, np.int32))
        self._safe_work.check()
        library.optpy_panel_positions(byref(pattern), *A.addresses, *_addresses(np.empty(self.nodes, np.int32)))

    # -- work ----------------------------------------------------------------------------------------------------------

    def _measure(self, first: Int32s, start: Int64s, parent: NDArray[np.int64]) -> None:
        """The work of each panel, and its division among threads."""
        width = np.diff(first).astype(np.int64) * self.block
        height = width + np.diff(start) * self.block
        value_at = _starts(width * height)
        # A column of h rows is multiplied with itself, h (h + 1) / 2 products: summed over the columns of a panel.
        low, high = (height - width).astype(float), height.astype(float)
        work = (high * (high + 1) * (high + 2) - low * (low + 1) * (low + 2)) / 6
        self.operations = float(work.sum())
        tasks, top = _divide(work, parent)
        self._scalars = {
            "value": int(value_at[-1]) + _PADDING,
            "inverse": self.nodes * self.block,
            "front": int(height.sum()),
            "y": self.nodes * self.block,
            "corrected": len(width),
        }
        shared = np.stack([top, work[top] >= SHARED_PANEL], 1).astype(np.int32)
        self._keep(self.state, value_at=value_at, task=tasks, top=shared)
        state = self.state
        state.tasks, state.tops = len(tasks), len(top)
        state.build_shared = self.operations >= SHARED_BUILD
        state.solve_shared = int(value_at[-1]) >= SHARED_SOLVE
        self.needed = self.nbytes + 8 * sum(self._scalars.values())

    def allocate(self) -> None:
        """Gives `state` the memory for its numbers, if it has none yet.

        Raises:
            MemoryError: there is not enough.
        """
        if not self._allocated:
            dtypes = {name: np.int64 if name == "corrected" else np.float64 for name in self._scalars}
            self._keep(self.state, **{name: np.zeros(size, dtypes[name]) for name, size in self._scalars.items()})
            self._allocated = True


def _check(rows: Int64s, columns: Int32s, block: int) -> None:
    n = len(rows) - 1
    if not 1 <= block <= MAX_BLOCK:
        raise InternalError(f"a block of {block} x {block} cannot be factored: 1 to {MAX_BLOCK}")
    if n < 0 or rows[0] != 0 or rows[-1] != len(columns) or (np.diff(rows) < 0).any():
        raise InternalError("the pattern's row starts do not fit its columns")
    if len(columns) and (columns.min() < 0 or columns.max() >= n):
        raise InternalError(f"the pattern has columns that are not among its {n} nodes")
    of_row = np.repeat(np.arange(n), np.diff(rows))
    position, transposed = of_row * n + columns, columns.astype(np.int64) * n + of_row
    ascending = (np.diff(position) > 0).all()
    if not ascending or np.count_nonzero(of_row == columns) != n or not np.array_equal(np.sort(transposed), position):
        raise InternalError("the pattern is not symmetric, sorted, and with all of its diagonal")


def _starts(counts: NDArray[Any]) -> Int64s:
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def _divide(work: NDArray[np.float64], parent: NDArray[np.int64]) -> tuple[Int32s, Int32s]:
    """Ranges of panels that are subtrees of at most a share of the work, and the panels above them all.

    Args:
        work: (panels,).
        parent: (panels,) of each panel, beyond the last where it is a root; panels are in postorder.

    Returns:
        (tasks, 2) first and last + 1, and (panels above,): both ascending.
    """
    panels = len(work)
    subtree, leftmost = work.tolist(), list(range(panels))
    children: dict[int, list[int]] = {}
    for p, up in enumerate(parent.tolist()):
        children.setdefault(up, []).append(p)
        if up < panels:
            subtree[up] += subtree[p]
            leftmost[up] = min(leftmost[up], leftmost[p])
    limit = sum(work) / _TASKS
    heap = [(-subtree[p], p) for p in children.get(panels, [])]
    heapq.heapify(heap)
    top: list[int] = []
    while heap and -heap[0][0] > limit:
        _, p = heapq.heappop(heap)
        top.append(p)
        for c in children.get(p, []):
            heapq.heappush(heap, (-subtree[c], c))
    tasks: list[list[int]] = []
    load = 0.0
    for first, last, size in sorted((leftmost[p], p + 1, -negative) for negative, p in heap):
        if tasks and tasks[-1][1] == first and load + size <= limit:
            tasks[-1][1] = last
            load += size
        else:
            tasks.append([first, last])
            load = size
    return np.array(tasks, np.int32).reshape(-1, 2), np.array(sorted(top), np.int32)
