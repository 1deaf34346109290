"""Connectivity: the edges at every point, in order, and tables that are built once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optpy.ir import Extent, Hypergraph
from optpy.kernels.codegen.tables import Column, Offsets, Sorted
from optpy.kernels.runtime.tables import Connectivity, sorted_order

V, H, W, E = (Extent(n) for n in "VHWE")
GRAPH = Hypergraph("g", E, ((V,), (H, W), (V,)))


def connectivity(edges: Any, **sizes: int) -> Connectivity:
    dims = {Extent(n): size for n, size in (dict(V=5, H=2, W=3, E=len(edges)) | sizes).items()}
    return Connectivity(GRAPH, np.asarray(edges, np.int32).reshape(-1, 4), dims)


EDGES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1), st.integers(0, 2), st.integers(0, 4)), max_size=30)


@given(EDGES)
def test_every_edge_stands_once_at_what_its_slot_points_at(edges: list[tuple[int, int, int, int]]) -> None:
    c = connectivity(edges)
    points = {0: [e[0] for e in edges], 1: [3 * e[1] + e[2] for e in edges], 2: [e[3] for e in edges]}
    for slot, size in ((0, 5), (1, 6), (2, 5)):
        offsets, numbers = c.table(Offsets(GRAPH, slot)), c.table(Sorted(GRAPH, slot, None))
        assert offsets.dtype == numbers.dtype == np.int32
        assert len(offsets) == size + 1
        for p in range(size):
            around = numbers[offsets[p] : offsets[p + 1]].tolist()
            assert around == [n for n, q in enumerate(points[slot]) if q == p]  # in their order
        assert c.degrees(slot).tolist() == np.bincount(np.array(points[slot], int), minlength=size).tolist()
        for column in range(4):
            sorted_column = c.table(Sorted(GRAPH, slot, column))
            assert sorted_column.tolist() == [edges[n][column] for n in numbers]
    for column in range(4):
        assert c.table(Column(GRAPH, column)).tolist() == [e[column] for e in edges]


def test_tables_are_built_once_and_kept_for_the_same_edges() -> None:
    c = connectivity([[0, 1, 2, 3], [4, 0, 0, 4]])
    key = Sorted(GRAPH, 1, 0)
    assert c.table(key) is c.table(key)
    sizes = {V: 5, H: 2, W: 3, E: 2}
    assert c.same_as(c.edges, sizes)
    assert c.same_as(c.edges.copy(), sizes)
    assert not c.same_as(c.edges[::-1], sizes)
    assert not c.same_as(c.edges[:1], sizes)
    assert not c.same_as(c.edges, sizes | {V: 6})  # more offsets
    before = c.nbytes
    c.table(Column(GRAPH, 3))
    assert c.nbytes == before + 8


@pytest.mark.parametrize("size", [5, 2**61])
def test_the_order_is_stable_however_large_the_grid(size: int) -> None:
    points = np.random.default_rng(0).integers(0, 5, 1000) * (size // 5)
    order = sorted_order(points, size)
    np.testing.assert_array_equal(order, np.argsort(points, kind="stable"))
    assert len(sorted_order(np.zeros(0, np.int64), size)) == 0
