"""The points of a grid that are visited, cut into segments of rows that threads share evenly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optpy.kernels.runtime.context import Segment

_SEGMENT = 2048
"""Points of a segment at most: enough to hide its overhead, few enough to share evenly among threads."""
_SHORTEST = 128
"""Points of a segment at least, where there are enough, for points that add up whole dims: a row of what they add is
then read in runs of several cache lines."""
_SHARES = 16
"""Segments of a grid at least whose points add up whole dims, where that leaves them ``_SHORTEST`` points: enough for
the threads that memory can keep busy, as no measurement on many cores has shown yet."""
_CHUNK = 64
"""Runs of this many points are skipped where nothing is solved for."""

_SLAB = 8
"""Rows of a slab of a volume. On one thread of a busy machine a product of volumetric_deformation takes, in CPU time,
26.6 ns a point with slabs of 8 rows, 27.1 with 16, and 32.0 without slabs (256 x 256 x 256 points); 24.2, 26.8 and 27.5
(128 x 128 x 256). Where a volume fits the caches they make no difference."""

_LATER = 3
"""So many segments ahead is the row that is fetched from memory while one is computed. A product of
volumetric_deformation on two threads takes, with 1 to 5, 4.6, 4.3, 4.5, 4.3 and 4.5 ms (64 x 128 x 128 points), and
18.4, 19.0, 18.3, 18.5 and 19.0 ms (128 x 128 x 256). Not the rows that are next in the grid: those of another slab are
long gone when they are read (19.9, 22.5 and 25.2 ms with 1 to 3, where 3 segments take 18.2)."""

_WORK = 4096
"""Points and edges around them in a segment at most, where a point goes through those; a point is never cut."""

SEGMENT = np.dtype(Segment)


def longest_segment(points: int, dense: bool) -> int:
    """Points of a segment at most.

    Args:
        points: of the grid.
        dense: whether each adds up whole dims, so that few points are much work.
    """
    if not dense:
        return _SEGMENT
    share = -(-points // (_SHARES * _CHUNK)) * _CHUNK  # segments begin on cache lines
    return min(_SEGMENT, max(_SHORTEST, share))


def all_segments(rows: int, length: int, longest: int = _SEGMENT) -> NDArray[Any]:
    """Every point of a grid, as an array of ``SEGMENT``; ``longest`` as of ``longest_segment``."""
    return _segments(np.repeat(np.arange(rows), 1), np.zeros(rows, np.int64), np.full(rows, length, np.int64), longest)


def solved_segments(solved: NDArray[Any], longest: int = _SEGMENT) -> NDArray[Any]:
    """The runs of points that hold something to solve for, up to a few points more.

    Args:
        solved: (rows, length), nonzero where something is solved for.
        longest: as of ``longest_segment``.
    """
    rows, length = solved.shape
    chunks = -(-length // _CHUNK)
    padded = np.zeros((rows, chunks * _CHUNK), bool)
    padded[:, :length] = solved != 0
    active = np.zeros((rows, chunks + 2), np.int8)
    active[:, 1:-1] = padded.reshape(rows, chunks, _CHUNK).any(axis=2)
    edges = np.diff(active, axis=1)
    row, begin = np.nonzero(edges == 1)
    end = np.nonzero(edges == -1)[1]
    return _segments(row, begin * _CHUNK, np.minimum(end * _CHUNK, length), longest)


def weighted_segments(segments: NDArray[Any], edges: NDArray[np.int64], length: int) -> NDArray[Any]:
    """Segments cut where their points have many edges, so that threads share the work evenly.

    Args:
        segments: of ``SEGMENT``.
        edges: around each point of the grid, flattened.
        length: of a row.
    """
    if not len(segments):
        return segments
    before = np.concatenate([[0], np.cumsum(edges + 1)])
    first, last = (segments["row"] * length + segments[side] for side in ("begin", "end"))
    cuts = np.zeros(len(edges) + 1, bool)
    cuts[1:-1] = np.diff(before[:-1] // _WORK) != 0
    cuts[first] = cuts[last] = True
    inside = np.zeros(len(edges) + 1, np.int64)
    np.add.at(inside, first, 1)
    np.add.at(inside, last, -1)
    at = np.flatnonzero(cuts)
    kept = np.cumsum(inside)[at[:-1]] > 0
    start, stop = at[:-1][kept], at[1:][kept]
    return _with_work(start // length, start % length, start % length + stop - start, before[stop] - before[start])


def in_slabs(segments: NDArray[Any], rows: int) -> NDArray[Any]:
    """The segments of a volume, slab after slab: some rows of each plane, for all planes.

    What a stencil reads of a plane is still in the cache when it comes to the next one; of whole planes, which have as
    many points as an image, it would not be.

    Args:
        segments: of ``SEGMENT``, by their rows.
        rows: of a plane.
    """
    found = segments[np.argsort(segments["row"] % rows // _SLAB, kind="stable")]
    return _with_work(found["row"], found["begin"], found["end"], found["work"])


def _segments(row: NDArray[Any], begin: NDArray[Any], end: NDArray[Any], longest: int) -> NDArray[Any]:
    """Cut runs into segments of bounded length."""
    pieces = -(-(end - begin) // longest)
    n = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = np.repeat(begin, pieces) + n * longest
    stop = np.minimum(start + longest, np.repeat(end, pieces))
    return _with_work(np.repeat(row, pieces), start, stop, stop - start)


def _with_work(row: NDArray[Any], begin: NDArray[Any], end: NDArray[Any], work: NDArray[Any]) -> NDArray[Any]:
    result = np.zeros(len(row), SEGMENT)
    for name, values in (("row", row), ("begin", begin), ("end", end), ("before", np.cumsum(work) - work)):
        result[name] = values
    result["work"] = work
    result["later"] = row[np.minimum(np.arange(len(row)) + _LATER, len(row) - 1)]
    return result
