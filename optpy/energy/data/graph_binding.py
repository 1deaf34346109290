"""Graphs of the data: shape, dtype and every index are checked, always, since kernels follow them without asking."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from optpy import ir
from optpy.energy.data.origin import first_true, to_array
from optpy.energy.language.graph import slot_text, slots_text
from optpy.energy.language.index import describe
from optpy.errors import DataError

EdgeArray = Any
"""The slots of every edge: int32 of shape (edges, columns), an array of NumPy or CuPy."""

MOST_POINTS = 2**31 - 1
"""Kernels hold indices in 32 bits: half the memory to read."""


def graph_array(graph: ir.Hypergraph, value: Any, xp: Any) -> Any:
    """A graph's array, of ``xp``, of the right shape and kind.

    Without edges it may be an empty list, or an array of shape (0, columns), which NumPy makes of floats by itself.

    Raises:
        DataError: it is no array of whole numbers of shape (*edges, columns).
    """
    columns, axes = len(graph.given), len(graph.counted)
    if isinstance(value, list | tuple) and not value:
        return xp.empty((*(0,) * axes, columns), np.int64)
    if axes == 1:
        _check_rows(graph, value)
    raw, _ = to_array(graph.name, value, xp)
    if raw.ndim != axes + 1 or raw.shape[-1] != columns:
        raise DataError(
            f"the graph {graph.name!r} must have shape {edges_shape_text(graph)}, one column for each axis of its "
            f"slots {slots_text(graph)}; got {raw.shape if raw.ndim else describe(value)}{_cure(graph, raw)}",
            graph.location,
        )
    if not raw.size and raw.dtype.kind == "f":
        return xp.empty(raw.shape, np.int64)
    if raw.dtype.kind not in "iu":
        raise DataError(
            f"the graph {graph.name!r} has dtype {raw.dtype}, but its entries are indices: whole numbers, "
            "a.astype(np.int64)",
            graph.location,
        )
    return raw


def edges_shape_text(graph: ir.Hypergraph) -> str:
    """The shape of a graph's array: ``(E, 2)``, ``(F, P, 1)``."""
    return f"({', '.join(map(str, graph.counted))}, {len(graph.given)})"


def _cure(graph: ir.Hypergraph, raw: Any) -> str:
    columns, axes = len(graph.given), len(graph.counted)
    if not raw.size and raw.ndim and axes == 1:
        return f"; without edges it is np.empty((0, {columns}), int)"
    if axes == 1 and raw.ndim == 2 and raw.shape[0] == columns:
        return "; the edges come first: a.T"
    if raw.ndim == axes and columns == 1:
        return f"; add the axis of the columns: a[{':, ' * axes}None]"
    return ""


def _check_rows(graph: ir.Hypergraph, value: Any) -> None:
    """That lists of edges have as many entries each: NumPy makes no array of others."""
    if not isinstance(value, list | tuple):
        return
    columns = len(graph.given)
    for n, row in enumerate(value):
        if isinstance(row, list | tuple) and len(row) != columns:
            counted = f"{len(row)} {'entry' if len(row) == 1 else 'entries'}"
            raise DataError(
                f"{graph.name}[{n}] = {describe(row)} has {counted}, but the graph {graph.name!r} has shape "
                f"({graph.edges}, {columns}): one column for each axis of its slots {slots_text(graph)}",
                graph.location,
            )


def checked_edges(graph: ir.Hypergraph, raw: Any, sizes: Mapping[ir.Extent, int], xp: Any) -> EdgeArray:
    """The edges, copied.

    Args:
        graph: their declaration.
        raw: (edges, columns), of any integer dtype.
        sizes: of every dim.
        xp: the module of the array.

    Raises:
        DataError: an index is negative or past the end of what its slot points into.
    """
    for d in (graph.edges, *graph.columns):
        if sizes[d] > MOST_POINTS:
            raise DataError(
                f"{d} is {sizes[d]}, but the graph {graph.name!r} can count to {MOST_POINTS} only", graph.location
            )
    raw = raw.reshape(sizes[graph.edges], raw.shape[-1])[:, : len(graph.given)]  # what is bound has more columns
    own = xp.array(raw, order="C")  # what is checked is what is kept, also if another thread writes to the original
    if len(own):
        limits = [sizes[d] for d in graph.given]
        # Each in its own type: uint64 beside int64 would be compared as floats.
        least, largest = own.min(axis=0).tolist(), own.max(axis=0).tolist()
        if any(a < 0 or b >= n for a, b, n in zip(least, largest, limits, strict=True)):
            raise _bad_index(graph, own, xp.asarray(limits), sizes)
    own = own.astype(np.int32, copy=False)
    return xp.concatenate([own, _own_index(graph, sizes, xp)], axis=1) if graph.grid else own


def _own_index(graph: ir.Hypergraph, sizes: Mapping[ir.Extent, int], xp: Any) -> EdgeArray:
    """(edges, axes): of each edge its index along the dims that count the edges."""
    counts = tuple(sizes[d] for d in graph.grid)
    number = xp.arange(math.prod(counts), dtype=np.int64)
    index = xp.unravel_index(number, counts) if len(number) else [number] * len(counts)
    return xp.stack(index, axis=1).astype(np.int32)


def _bad_index(graph: ir.Hypergraph, raw: Any, limits: Any, sizes: Mapping[ir.Extent, int]) -> DataError:
    bad = (raw < 0) | (raw >= limits.astype(raw.dtype if raw.dtype.itemsize == 8 else np.int64))
    row, column = first_true(bad)
    slot = next(s for s in range(len(graph.slots)) if column in graph.columns_of(s))
    axes = graph.slots[slot]
    dim = graph.given[column]
    edge = np.unravel_index(row, [sizes[d] for d in graph.counted])
    axis = f", axis {column - graph.columns_of(slot).start}" if len(axes) > 1 else ""
    n = int(bad.sum())
    count = "the only such index" if n == 1 else f"the first of {n} such indices"
    from_one = int(raw.min()) == 1 and not bool((bad & (raw != limits)).any())
    cure = ". Do they count from 1? Here they count from 0: subtract 1" if from_one else ""
    return DataError(
        f"{graph.name}[{', '.join(map(str, edge))}, {column}] = {int(raw[row, column])}: slot {slot}{axis} points into "
        f"{slot_text(axes)} with {dim} = {sizes[dim]}, so indices are from 0 to {sizes[dim] - 1}; it is {count}{cure}",
        graph.location,
    )
