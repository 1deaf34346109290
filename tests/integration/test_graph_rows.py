"""Residuals over edges that read what stands on other edges: rows of graphs that are no loop variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api.plan import build
from optpy.energy.gradients import check_gradients
from optpy.ir import Extent, Hypergraph, Incidence, LoopVariable
from optpy.kernels.codegen.tables import loop_row, row_is_inside, table_of
from optpy.symbolic.affine import Affine, TableEntry
from tests.support.operator_checks import check_everything
from tests.support.schedules import GATHERS, Way, by_hand

pytestmark = pytest.mark.native

V, E, F = op.dims("V E F")
v, e, f, k = op.indices(V, E, F, E)
X, U, Y = op.Unknown("X", (V,)), op.Unknown("U", (E,)), op.Unknown("Y", (F,))
A, M, N = op.Array("A", (E,)), op.Array("M", (V,), dtype=bool), op.Array("N", (V,))
a, b = op.Graph("g", E, (V, V))[e]
c, d = op.Graph("h", F, (E, E))[f]
(p,) = op.Graph("up", E, (F,))[e]

ENERGIES = {
    "an edge ahead": op.Energy(r=U[e + 1] * X[a]),
    "two edges": op.Energy(r=U[e + 1] * X[a] - U[e]),
    "both sides": op.Energy(r=U[e - 2] * X[a] - U[e + 1] * X[b] * X[a + 1]),
    "weights": op.Energy(r=A[e + 1] * X[a] - A[2 * e] * X[b] + op.sin(U[e - 1])),
    "every other edge": op.Energy(r=U[2 * e] * X[a] - X[b] * U[2 * e + 1]),
    "mirrored": op.Energy(r=U[E - 1 - e] * X[a] - op.sin(X[b])),
    "all pairs of edges": op.Energy(r=U[e + k] * X[a] - X[b]),
    "far outside": op.Energy(r=U[e] * X[a], s=U[e + 2**30] * X[b], t=U[e - 2**30] * X[a]),
    "the first edge": op.Energy(r=U[0] * X[a] - U[e], fixed={U: M[b]}),
    "vertices by edges": op.Energy(r=X[2 * e] * Y[p] * X[a], s=X[e + k - 3] * Y[p], t=U[c]),
    "values": op.Energy(r=U[e + 1] * op.value(a) * N[b] - 1 / (1 + op.value(b))),
    "robust": op.Energy(r=op.robust(U[e + 1] * X[a] - U[e], "huber", scale=0.3)),
    "fixed": op.Energy(r=U[e + 1] * X[a] - U[e - 1], fixed={U: M[a], X: M[v]}),
    "fixed every other": op.Energy(r=U[2 * e] * X[b] - X[a], fixed={U: M[a + 1] | (N[b] > 0)}),
    "through two graphs": op.Energy(r=U[c] * 2 - 1, fixed={U: M[a]}),
    "through two graphs at offsets": op.Energy(r=U[c + 1] * U[d] - U[d - 1], fixed={U: M[a] & ~M[b + 1]}),
    "through two graphs by a number": op.Energy(r=U[c] * op.exp(U[d]) - 1, fixed={U: N[a] * N[b] > 0}),
    "both graphs": op.Energy(r=U[e + 1] * X[a] - U[e], s=U[c + 1] * 2 - U[d], fixed={U: M[a], X: N[v] > 0.5}),
}


def data(energy: op.Energy, vertices: int, edges: int, more: int) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    every = dict(
        X=rng.normal(size=vertices), U=rng.normal(size=edges), A=rng.normal(size=edges),
        M=rng.integers(0, 2, vertices) > 0, N=rng.normal(size=vertices),
        Y=rng.normal(size=more), up=rng.integers(0, max(more, 1), (edges, 1)),
        g=rng.integers(0, vertices, (edges, 2)), h=rng.integers(0, max(edges, 1), (more, 2)),
    )  # fmt: skip
    return {name: every[name] for name in [*(s.name for s in energy.fields), *(g.name for g in energy.graphs)]}


@pytest.mark.parametrize("name", ENERGIES)
def test_what_stands_on_other_edges_agrees_with_the_dense_jacobian(name: str) -> None:
    energy = ENERGIES[name]
    check_all_sizes(energy, op.compile(energy, "cpu", np.float64))


@pytest.mark.parametrize("way", GATHERS)
def test_every_form_agrees_with_the_dense_jacobian(way: Way) -> None:
    energy = ENERGIES["both graphs"]
    check_all_sizes(energy, build(energy, "float64", by_hand(energy, way)))


def check_all_sizes(energy: op.Energy, solver: op.Solver) -> None:
    for sizes in ((1, 1, 1), (2, 2, 5), (5, 9, 7), (6, 0, 0)):
        values = data(energy, *sizes)
        assert check_gradients(energy, values, 1e-5)
        check_everything(energy, values, solver=solver)


def test_such_energies_can_be_solved() -> None:
    energy = op.Energy(chain=U[e + 1] - U[e] - X[a] + X[b], pull=0.3 * (U[e] - 1), fit=X[v] - N[v], fixed={U: M[a]})
    values = data(energy, 8, 12, 0)
    for method in ("gn", "lm"):
        assert op.solve(energy, values, device="cpu", dtype=np.float64, method=method).success


# -- rows ------------------------------------------------------------------------------------------------------------

GRAPH = Hypergraph("g", Extent("E"), ((Extent("V"),),))
EDGES_OF_EDGES = Hypergraph("h", Extent("F"), ((Extent("E"),),))
EDGE, OTHER = LoopVariable("k0_0", Extent("E")), LoopVariable("i0", Extent("V"))


def entry(row: Any, graph: Hypergraph = GRAPH) -> TableEntry:
    return TableEntry(graph, 0, Affine.of(row))


def test_rows_that_may_lie_outside_are_told_from_edges() -> None:
    linked = entry(LoopVariable("i0", Extent("F")), EDGES_OF_EDGES)
    inside = [entry(EDGE), entry(linked)]
    outside: list[Any] = [OTHER, Affine.of(EDGE) + 1, Affine.of(EDGE) * 2, 0, Extent("E"), Affine.of(linked) - 1]
    outside += [entry(EDGE), entry(Affine.of(EDGE) + 1, EDGES_OF_EDGES)]  # into V; at an edge that may not be there
    assert [row_is_inside(x) for x in inside] == [True, True]
    assert not any(row_is_inside(entry(row)) for row in outside)


def test_only_the_edge_of_a_loop_is_read_in_its_order() -> None:
    loops = {EDGE: Incidence(EDGE, GRAPH, 0, (Affine.of(OTHER),))}
    assert loop_row(entry(EDGE)) == EDGE
    assert table_of(entry(EDGE), loops) != table_of(entry(Affine.of(EDGE) + 1), loops)
    assert table_of(entry(Affine.of(EDGE) + 1), loops) == table_of(entry(OTHER), loops)
