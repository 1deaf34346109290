"""Graphs as users declare and read them, and what they may not do with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy

import optpy as op
from optpy import ir

V, H, W, D, E, F = op.dims("V H W D E F")
v, e, f = op.indices(V, E, F)
X, Z = op.Unknown("X", (V,), 2), op.Unknown("Z", (H, W))
Volume = op.Unknown("Volume", (D, H, W))
Pairs = op.Unknown("Pairs", (V, V))
EDGES = op.Graph("edges", E, (V, V))
MATCH = op.Graph("match", E, ((H, W), V, (D, H, W)))
a, b = EDGES[e]
LENGTH = op.Func("length", (E,))
LENGTH[e] = X[a][0] - X[b][0]


def access(expression: op.Expression) -> ir.Access:
    key = expression.components[0].key  # type: ignore[attr-defined]
    assert isinstance(key, ir.Access)
    return key


def test_slots_are_indices() -> None:
    read = access(X[a])
    assert str(read.index[0]).startswith("edges[")
    assert access(X[b]).index != read.index
    assert X[a].shape == (2,)
    assert access(X[a + 1]).index[0] == read.index[0] + 1


def test_slots_on_grids_are_read_whole_or_unpacked() -> None:
    pixel, vertex, voxel = MATCH[e]
    row, column = pixel
    assert access(Z[pixel]) == access(Z[row, column])
    assert access(Volume[voxel]).index == tuple(k.affine for k in voxel)
    columns = [int(str(i).split()[-1].rstrip("]")) for i in (*pixel, vertex, *voxel)]
    assert columns == [0, 1, 2, 3, 4, 5]


def test_one_slot_is_a_tuple_of_one() -> None:
    for slots in (V, (V,), ((V,),)):
        (end,) = op.Graph("g", E, slots)[e]
        assert access(X[end]) == access(X[op.Graph("g", E, slots)[e]])


def test_a_term_lives_on_the_indices_of_its_edges() -> None:
    Weight = op.Array("Weight", (E,))
    c, d = op.Graph("tied", F, (V, E))[f]
    energy = op.Energy(reg=Weight[e] * (X[a] - X[b]), pair=X[a] - X[c], chain=X[c] * Weight[d], fit=X[v])
    domains = {r.label: [i.dim.name for i in r.domain] for r in energy.problem.residuals}
    assert domains == {"reg": ["E"], "pair": ["E", "F"], "chain": ["F"], "fit": ["V"]}
    assert [g.name for g in energy.graphs] == ["edges", "tied"]
    assert {d.name for d in energy.dims} == {"V", "E", "F"}


def test_what_a_slot_points_at_is_always_inside() -> None:
    energy = op.Energy(inside=X[a], outside=X[a + 1], asked=op.where(op.in_bounds(a + 1) & op.in_bounds(b), X[b], 1))
    data = dict(X=np.array([[1.0, 2], [3, 4], [5, 6]]), edges=np.array([[2, 0], [0, 1]]))
    found = energy.residuals(data)
    np.testing.assert_array_equal(found["inside"], [[5, 6], [1, 2]])
    np.testing.assert_array_equal(found["outside"], [[0, 0], [3, 4]])
    np.testing.assert_array_equal(found["asked"], [[1, 1], [3, 4]])


def test_the_value_of_a_slot_is_a_number() -> None:
    energy = op.Energy(r=X[a][0] * op.value(b - a))
    data = dict(X=np.ones((3, 2)), edges=np.array([[0, 2], [2, 1]]))
    np.testing.assert_array_equal(energy.residuals(data)["r"], [2, -1])


def test_the_jacobian_of_edges_that_loop_and_repeat() -> None:
    energy = op.Energy(r=3 * X[a][0] - X[b][1])
    J = energy.jacobian(dict(X=np.ones((2, 2)), edges=np.array([[0, 1], [0, 1], [1, 1]]))).toarray()
    np.testing.assert_array_equal(J, [[3, 0, 0, -1], [3, 0, 0, -1], [0, 0, 3, -1]])


def test_texts() -> None:
    energy = op.Energy(r=X[a] - X[b], s=Z[MATCH[e][0]], t=Volume[MATCH[e][2]])
    assert repr(EDGES) == "Graph('edges', E, (V, V))"
    assert repr(MATCH) == "Graph('match', E, ((H, W), V, (D, H, W)))"
    assert "graphs: edges E of (V, V), match E of ((H, W), V, (D, H, W))" in repr(energy)
    assert "reads X, edges" in repr(energy)
    x = sympy.IndexedBase("X", real=True)
    i0, ends = sympy.Symbol("i0", integer=True), sympy.IndexedBase("edges", integer=True)
    assert energy.to_sympy("r")[0] == x[ends[i0, 0], 0] - x[ends[i0, 1], 0]
    assert "edges" in energy._repr_latex_()


GRIDDED = op.Graph("near", (V, H), (V,))


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: op.Graph("1st", E, (V, V)), "cannot name a graph"),
    (lambda: op.Graph("g", 7, (V, V)), r"counted by a dim.*got 7"),  # type: ignore[arg-type]
    (lambda: op.Graph("g", E, ()), "no slots"),
    (lambda: op.Graph("g", E, (V, 2)), r"slot.*points into a dim.*got 2"),  # type: ignore[arg-type]
    (lambda: op.Graph("g", E, ((V, H, W, D),)), "4 axes; from 1 to 3"),
    (lambda: op.Graph("g", E, ((),)), "0 axes"),
    (lambda: EDGES[v], r"counted by E, but the index .* runs over V"),
    (lambda: EDGES[e + 1], "takes a loop variable over its edges"),
    (lambda: EDGES[0], r"e = op.indices\(E\); got 0"),
    (lambda: EDGES[a], "takes a loop variable"),
    (lambda: list(EDGES), r"a, b = edges\[e\]"),
    (lambda: X[EDGES[e]], r"'X' is indexed by all slots .*'edges' .*unpack.*b = edges\[e\], and write X\[a\], X\[b\]"),
    (lambda: X[MATCH[e]], r"unpack them, a, b, c = match\[e\], and write X\[b\]"),
    (lambda: Z[op.Graph("px", E, ((H, W),))[e]], r"unpack them, a, = px\[e\], and write Z\[a\]"),
    (lambda: Z[MATCH[e][0], 0], "slots of a graph are taken one by one"),
    (lambda: Volume[EDGES[e]], r"none of them points into \(D, H, W\)"),
    (lambda: X[[a, b]], "slots of a graph are taken one by one"),
    (lambda: X[EDGES[e][2]], r"'edges' has 2 slots, \(V, V\), but slot 2 is asked for: .*a, b = edges\[e\]"),
    (lambda: EDGES[e][-3], "slot -3 is asked for"),
    (lambda: EDGES[e, 0], r"a, b = edges\[e\] with e = op.indices\(E\); got \(e, 0\)"),
    (lambda: GRIDDED[e], r"loop variable over each of its dims: a, = near\[v, h\] with v, h = op.indices\(V, H\); got"),
    (lambda: GRIDDED[v, e], r"counted by \(V, H\), but the index e runs over E: .* v, h = op.indices\(V, H\)"),
    (lambda: GRIDDED[v, 1], "a loop variable over each of its dims"),
    (lambda: op.Graph("g", (V, 2), (V,)), r"by up to 3, .*op.Graph\('g', \(V, K\), \(V,\)\); got"),  # type: ignore[arg-type]
    (lambda: op.Graph("g", (V, H, W, D), (V,)), "counted by a dim"),
    (lambda: GRIDDED + 1, r"'near' stands for the whole graph: .* a, = near\[v, h\]"),
    (lambda: EDGES(e), "'edges' stands for the whole graph"),
    (lambda: X(v), r"'X' stands for the whole array: index it, as in X\[i\]"),
    (lambda: X[(MATCH[e],)], "slots of a graph are taken one by one"),
    (lambda: Z[a, b], r"axis 0 of 'Z'.* runs over H, but the index .* points into V"),
    (lambda: X[MATCH[e][0][0]], r"runs over V, but the index .* points into H.*\(\(H, W\), V, \(D, H, W\)\)"),
    (lambda: X[a] + a, "write op.value"),
    (lambda: X[a] * EDGES, "'edges' stands for the whole graph"),
    (lambda: EDGES + 1, "'edges' stands for the whole graph"),
    (lambda: op.Energy(r=EDGES), "'edges' stands for the whole graph"),
    (lambda: op.Energy(r=Z[MATCH[e][0][0], 0]), r"'r' reads the unknown 'Z'.*at a whole slot"),
    (lambda: op.Energy(r=Z[MATCH[e][2][1], MATCH[e][2][2]]), "at a whole slot"),
    (lambda: op.Energy(r=X[2 * a]), "at a whole slot"),
    (lambda: op.Energy(r=X[a // 2]), "at a whole slot"),
    (lambda: op.Energy(r=Pairs[a, b]), r"and at one only.*A graph whose one slot points into \(V, V\) has both"),
    (lambda: op.Energy(r=Pairs[a, a]), "and at one only"),
    (lambda: op.Energy(r=LENGTH[op.Graph("of", F, (E,))[f][0]]), r"edges\[of\[f, 0\], 0\].*One graph, made"),
    (lambda: op.Energy(r=Pairs[a, v + b]), "and at one only"),
    (lambda: op.Energy(r=X[a], edges=op.Array("edges", (V,))[v] * X[v]), "'edges' is declared twice.*graph"),
    (lambda: op.Energy(r=X[a], s=X[op.Graph("edges", E, (V,))[e]]), "'edges' is declared twice"),
    (lambda: op.Energy(r=X[MATCH[e][1]]), "size H, which a slot of the graph 'match' points into, is bound by no data"),
    (lambda: op.Energy(r=X[a], fixed={X: op.value(a) == 0}), r"uses 1 indices over E, but 'X'"),
]  # fmt: skip


@pytest.mark.parametrize(("write", "message"), MISTAKES)
def test_mistakes(write: Callable[[], Any], message: str) -> None:
    with pytest.raises(op.EnergyError, match=message) as caught:
        write()
    assert "test_graph.py" in str(caught.value)


def test_an_edge_is_unpacked_into_its_slots() -> None:
    unpackings: list[tuple[str, str]] = [
        (
            "a, b, c = EDGES[e]",
            r"'edges' has 2 slots, \(V, V\), but is unpacked into 3: write a, b = edges\[e\]",
        ),
        ("(a,) = EDGES[e]", "2 slots.*into 1"),
        ("a, b = ONE[e]", r"'one' has 1 slot, \(V,\), but is unpacked into 2: write a, = one\[e\]"),
        ("(row, column), vertex = MATCH[e]", "'match' has 3 slots.*into 2: write a, b, c = match"),
    ]
    names = dict(EDGES=EDGES, MATCH=MATCH, ONE=op.Graph("one", E, V), e=e)
    for text, message in unpackings:
        with pytest.raises(op.EnergyError, match=message) as caught:
            exec(compile(text, "users_own.py", "exec"), dict(names))
        assert str(caught.value).startswith("users_own.py:1")


def test_what_else_is_done_with_the_slots_of_an_edge_is_free() -> None:
    first, *rest = MATCH[e]
    assert len(rest) == 2
    assert len(MATCH[e]) == 3
    x, y = list(map(MATCH.__getitem__, op.indices(E, E)))
    assert len(x) == len(y) == 3
    assert str(first) == str(MATCH[e][0])


def test_data_may_be_read_at_a_part_of_a_slot() -> None:
    pixel, _, _ = MATCH[e]
    A = op.Array("A", (W,))
    energy = op.Energy(r=Z[pixel] * A[W - 1 - pixel[1]], s=X[v], t=Volume[0, 0, 0])
    rng = np.random.default_rng(0)
    match = np.array([[0, 1, 0, 0, 0, 0], [1, 2, 0, 0, 1, 1]])
    data = dict(Z=rng.normal(size=(2, 3)), A=np.arange(3.0), X=np.ones((1, 2)), Volume=np.ones((1, 2, 3)), match=match)
    np.testing.assert_allclose(energy.residuals(data)["r"], [data["Z"][0, 1] * 1, 0])


def test_vertices_without_edges_are_found_by_the_diagnosis() -> None:
    energy = op.Energy(r=X[a] - X[b])
    some = energy.diagnose(dict(X=np.ones((4, 2)), edges=np.array([[0, 2], [2, 0]])))
    assert [(u.unknown, u.count, u.first) for u in some.untouched] == [("X", 2, ((1,), (3,)))]
    none = energy.diagnose(dict(X=np.ones((4, 2)), edges=np.zeros((0, 2), int)))
    assert [(u.unknown, u.count) for u in none.untouched] == [("X", 4)]
