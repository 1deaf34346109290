"""The points of the unknowns' grid that the terms of J^T J read, at given data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.ir import Extent, NormalTerm, slabs


@final
@dataclass(frozen=True, slots=True)
class GraphData:
    """The data that decides which elements a residual reads."""

    sizes: Mapping[Extent, int]
    edges: Mapping[str, NDArray[Any]]
    """Of each graph, by name."""


def nodes_read(term: NormalTerm, dims: tuple[Extent, ...], data: GraphData) -> NDArray[np.int64]:
    """The points of the unknowns' grid, counted in C order, that a term reads; -1 outside: (points, reads)."""
    shape = [data.sizes[d] for d in dims]
    parts = []
    for slab in slabs(term.domain, data.sizes):
        found = np.full((math.prod(slab.shape), len(term.reads)), -1, np.int64)
        for n, read in enumerate(term.reads):
            index = [np.broadcast_to(slab.index(a, data), slab.shape).ravel() for a in read]
            inside = np.all([(i >= 0) & (i < size) for i, size in zip(index, shape, strict=True)], axis=0)
            found[inside, n] = np.ravel_multi_index([i[inside] for i in index], shape)
        parts.append(found)
    return np.concatenate(parts)
