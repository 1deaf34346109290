"""Edges that are bound: what is accepted, and that no index that points outside ever passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optpy as op
from optpy.energy.data.binding import bind
from optpy.energy.data.graph_binding import checked_edges

V, H, W, E = op.dims("V H W E")
v, e = op.indices(V, E)
i, j = op.indices(H, W)
X, Z, Weight = op.Unknown("X", (V,)), op.Unknown("Z", (H, W)), op.Array("Weight", (E,))
MATCH = op.Graph("match", E, ((H, W), V))
pixel, vertex = MATCH[e]
ENERGY = op.Energy(r=Z[pixel] - X[vertex])
SIZES: dict[str, Any] = dict(X=np.zeros(5), Z=np.zeros((3, 4)))


def with_match(match: Any, **more: Any) -> dict[str, Any]:
    return SIZES | {"match": match} | more


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_whole_numbers_of_any_kind_are_taken(dtype: str) -> None:
    edges = np.array([[2, 3, 4], [0, 0, 0]], dtype)
    for given_ in (edges, edges[::-1], np.asfortranarray(edges), np.repeat(edges, 2, axis=1)[:, ::2], edges.tolist()):
        bound = bind(ENERGY.problem, with_match(given_)).edges["match"]
        assert bound.dtype == np.int32
        np.testing.assert_array_equal(bound, given_)
        assert not np.shares_memory(bound, edges)


def test_there_may_be_no_edges() -> None:
    edgeless: list[Any] = [np.zeros((0, 3), int), np.empty((0, 3), np.uint8), np.zeros((0, 3)), [], ()]
    for match in edgeless:
        bound = bind(ENERGY.problem, with_match(match))
        assert bound.edges["match"].shape == (0, 3)
    weighted = op.Energy(r=Weight[e] * X[vertex] - Z[pixel])
    data = with_match(np.zeros((0, 3), int), Weight=np.zeros(0))
    assert weighted.cost(data) == 0
    assert weighted.jacobian(data).shape == (0, 17)
    assert weighted.residuals(data)["r"].shape == (0,)
    assert op.check_gradients(weighted, data)


REFUSED: list[tuple[Any, str]] = [
    (np.zeros((2, 2), int), r"'match' must have shape \(E, 3\).*\(\(H, W\), V\); got \(2, 2\)"),
    (np.zeros((3, 7), int), r"the edges come first: a.T"),
    (np.zeros(3, int), r"got \(3,\)"),
    (np.zeros((2, 3, 1), int), r"got \(2, 3, 1\)"),
    (np.zeros((2, 3)), r"dtype float64.*whole numbers, a.astype"),
    (np.zeros((0, 3), bool), "dtype bool"),
    ([[2, 3, 4], [0, 1]], r"match\[1\] = \[0, 1\] has 2 entries.*shape \(E, 3\).*slots \(\(H, W\), V\)"),
    ([(2,), (0, 1, 2)], r"match\[0\] = \(2,\) has 1 entry"),
    (np.zeros((2, 3), bool), "dtype bool"),
    (np.zeros((2, 3), complex), "dtype complex128"),
    (np.zeros((2, 3), object), "dtype object"),
    (7, r"shape \(E, 3\).*; got 7$"),
    ("edges", r"got 'edges'$"),
    (None, r"got a NoneType$"),
    ({(0, 1, 2)}, r"got a set$"),
    (np.zeros(0), r"got \(0,\); without edges it is np\.empty\(\(0, 3\), int\)"),
    (np.zeros((3, 0), int), r"np\.empty\(\(0, 3\), int\)"),
    (np.array([[2, 3, 4], [0, -1, 0]]), r"match\[1, 1\] = -1: slot 0, axis 1 points into \(H, W\) with W = 4.*0 to 3"),
    (np.array([[3, 3, 4]]), r"match\[0, 0\] = 3: slot 0, axis 0 points into \(H, W\) with H = 3.*the only such"),
    (np.array([[2, 3, 5], [2, 3, 6]]), r"match\[0, 2\] = 5: slot 1 points into V with V = 5.*first of 2 such"),
    (
        np.array([[1, 1, 1], [3, 4, 5]]),
        r"first of 3 such indices\. Do they count from 1\? Here they count from 0: subtract 1",
    ),
    (np.array([[1, 1, 1], [3, 5, 5]]), r"first of 3 such indices$"),
    (np.array([[0, 1, 1], [3, 4, 5]]), r"first of 3 such indices$"),
    (np.array([[2, 3, 2**63]], np.uint64), r"match\[0, 2\] = 9223372036854775808"),
    (np.array([[2, 3, 2**32]]), r"match\[0, 2\] = 4294967296"),
    (np.array([[2, 3, -(2**63)]]), r"match\[0, 2\] = -9223372036854775808"),
]


@pytest.mark.parametrize(("match", "message"), REFUSED)
def test_what_is_refused(match: Any, message: str) -> None:
    with pytest.raises(op.DataError, match=message) as caught:
        bind(ENERGY.problem, with_match(match))
    assert "test_graph_binding.py" in str(caught.value)


def test_a_single_column_needs_its_axis() -> None:
    energy = op.Energy(r=X[op.Graph("g", E, V)[e]])
    with pytest.raises(op.DataError, match=r"a\[:, None\]"):
        bind(energy.problem, dict(X=np.zeros(5), g=np.zeros(3, int)))


def test_sizes_and_names_are_held_against_the_rest_of_the_data() -> None:
    energy = op.Energy(r=Weight[e] * X[vertex] - Z[pixel])
    with pytest.raises(op.DataError, match=r"the graph 'match' has 2 edges, but E is 3 from 'Weight'"):
        bind(energy.problem, with_match(np.zeros((2, 3), int), Weight=np.zeros(3)))
    with pytest.raises(op.DataError, match=r"lacks 'match' \(an integer array of shape \(E, 3\)\)"):
        bind(energy.problem, SIZES | {"Weight": np.zeros(3)})
    with pytest.raises(op.DataError, match="did you mean 'match'"):
        bind(energy.problem, with_match(np.zeros((2, 3), int), Weight=np.zeros(2), matsch=1))
    with pytest.raises(op.DataError, match="the size V is 0"):
        bind(energy.problem, with_match(np.zeros((0, 3), int), Weight=np.zeros(0), X=np.zeros(0)))


def test_two_graphs_with_one_dim_have_as_many_edges() -> None:
    a, b = op.Graph("pairs", E, (V, V))[e]
    energy = op.Energy(r=X[a] - X[b], s=Z[pixel])
    with pytest.raises(op.DataError, match="'match' has 2 edges, but E is 1 from 'pairs'"):
        bind(energy.problem, with_match(np.zeros((2, 3), int), pairs=np.zeros((1, 2), int)))


def test_more_than_32_bits_can_count_is_refused() -> None:
    graph = MATCH.graph
    sizes = {V.size: 2**31, H.size: 1, W.size: 1, E.size: 0}
    with pytest.raises(op.DataError, match="V is 2147483648, but the graph 'match' can count to 2147483647"):
        checked_edges(graph, np.zeros((0, 3), int), sizes, np)
    assert checked_edges(graph, np.zeros((0, 3), int), sizes | {V.size: 2**31 - 1}, np).shape == (0, 3)


@given(
    st.lists(st.tuples(*[st.integers(-2, 6)] * 3), min_size=1, max_size=6),
    st.sampled_from(["int8", "int32", "int64", "uint8", "uint64"]),
)
def test_an_index_passes_only_if_it_is_inside(rows: list[tuple[int, int, int]], dtype: str) -> None:
    edges = np.array(rows).astype(dtype)
    inside = all(0 <= int(n) < size for row in edges for n, size in zip(row, (3, 4, 5), strict=True))
    if inside:
        assert bind(ENERGY.problem, with_match(edges)).edges["match"].tolist() == edges.tolist()
    else:
        with pytest.raises(op.DataError, match="indices are from 0 to"):
            bind(ENERGY.problem, with_match(edges))
