"""Scatters over hyper-edges, interpreted, against the dense Jacobian: on random energies and by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import optpy as op
from optpy import ir
from optpy.energy.check.evaluation import solved_elements
from optpy.energy.data.binding import bind
from optpy.energy.derive.materialised import over_edges
from optpy.energy.derive.problem_routines import ProblemRoutines
from optpy.energy.derive.vectors import block_channel, vector
from optpy.ir import Group, VectorKind
from tests.integration import test_manifold_graphs as manifolds
from tests.integration.test_graph_operators import (
    EXAMPLES,
    SIZES,
    bundle_adjustment,
    data_of_bundle_adjustment,
    data_of_mesh,
    mesh_energy,
    possible,
)
from tests.support.interpret_routines import Interpreter
from tests.support.operator_checks import Real, near, stacked
from tests.support.random_graphs import RandomGraphEnergy, random_graph_energies
from tests.support.schedules import SCATTERS, Way, routines_of

V, H, W, E, N, C = op.dims("V H W E N C")
v, e, o = op.indices(V, E, N)
i, j = op.indices(H, W)


def derive(energy: op.Energy, way: Way = "scatter", target: ir.Target = ir.Target.GPU) -> ProblemRoutines:
    return routines_of(energy, way, target)


mesh, bundle = functools.cache(mesh_energy), functools.cache(bundle_adjustment)


@functools.cache
def scattered_routines(energy: Callable[[], op.Energy]) -> ProblemRoutines:
    """Of an energy that several tests look at."""
    return derive(energy())


class Scattered:
    """The routines of an energy at some data, on vectors that stack all unknowns."""

    def __init__(self, energy: op.Energy, data: dict[str, Any], routines: ProblemRoutines) -> None:
        bound = bind(energy.problem, data, np.float64)
        self.routines = routines
        self.unknowns = [ir.tangent(u) for u in energy.problem.unknowns]
        self.interpreter = Interpreter(routines.groups, bound)
        solved = [
            (solved_elements(energy.problem, u, bound).ravel(), ir.tangent(u).channels) for u in energy.problem.unknowns
        ]
        self.solved = np.concatenate([np.repeat(s, channels) for s, channels in solved])
        self.interpreter.run(Group.SOLVED)
        self.interpreter.run(Group.JACOBIAN)

    def get(self, kind: VectorKind) -> Real:
        return np.concatenate([self.interpreter.field(vector(kind, u)).ravel() for u in self.unknowns])

    def put(self, kind: VectorKind, value: Real) -> None:
        start = 0
        for u in self.unknowns:
            field = self.interpreter.field(vector(kind, u))
            field[...] = value[start : start + field.size].reshape(field.shape)
            start += field.size


def check_scatters(
    energy: op.Energy, data: dict[str, Any], routines: ProblemRoutines | None = None, epsilon: float = 1e-11
) -> None:
    """g, C, its blocks and both products, as sums over edges, against F and J."""
    routines = routines or derive(energy)
    J, F = energy.jacobian(data).toarray(), stacked(energy, data, linearised=True)
    found = Scattered(energy, data, routines)
    check_gradients(found, J, F, epsilon)
    check_products(found, J, epsilon)


def check_gradients(found: Scattered, J: Real, F: Real, epsilon: float) -> None:
    g, magnitude = J.T @ F, (np.abs(J).T @ np.abs(F)).max(initial=0)
    squares = (J**2).sum(axis=0)
    for group in (Group.GRADIENT, Group.GRADIENT_BLOCKS):
        for _ in range(2):  # what the first has added is gone before the second adds
            if group in found.routines.groups:
                largest = found.interpreter.run(group)["gradient_max"]
                near(found.get(VectorKind.G), g, magnitude, epsilon)
                near(largest, np.abs(g).max(initial=0), magnitude, epsilon)
                assert not found.get(VectorKind.G)[~found.solved].any()
    near(found.get(VectorKind.C), squares, squares.max(initial=0), epsilon)
    start = 0
    for u in found.unknowns:
        n = range(u.channels)
        elements = len(found.interpreter.field(vector(VectorKind.P, u)))
        columns = J[:, start : start + elements * u.channels].reshape(len(J), elements, u.channels)
        start += elements * u.channels
        blocks = np.einsum("rea,reb->eab", columns, columns)
        if Group.GRADIENT_BLOCKS in found.routines.groups:
            packed = found.interpreter.field(vector(VectorKind.C, u, blocks=True))
            stored = np.array([[packed[:, block_channel(u, a, b)] for b in n] for a in n]).transpose(2, 0, 1)
            near(stored, blocks, squares.max(initial=0), epsilon)
        else:  # there are none only where all are diagonal
            assert not (blocks * (1 - np.eye(u.channels))).any()


def check_products(found: Scattered, J: Real, epsilon: float) -> None:
    rng = np.random.default_rng(0)
    for group, damping in ((Group.PRODUCT, 0.0), (Group.PRODUCT_DAMPED, 1.0), (Group.PRODUCT, 0.0)):
        D, p = rng.uniform(1, 2, len(found.solved)), rng.standard_normal(len(found.solved)) * found.solved
        found.put(VectorKind.D, D)
        found.put(VectorKind.P, p)
        total = found.interpreter.run(group)["pAp"]
        A = J.T @ J + damping * np.diag(D)
        magnitude = (np.abs(J).T @ np.abs(J) + damping * np.diag(D)) @ np.abs(p)
        near(found.get(VectorKind.AP), A @ p, magnitude.max(initial=0), epsilon)
        near(total, p @ A @ p, np.abs(p) @ magnitude, epsilon)
        assert not found.get(VectorKind.AP)[~found.solved].any()


# -- random energies ---------------------------------------------------------------------------------------------------


def check_random(random: RandomGraphEnergy, routines: ProblemRoutines) -> None:
    """At all sizes that are possible."""
    for sizes in SIZES:
        if possible(random.energy, sizes):
            check_scatters(random.energy, random.data(**sizes), routines)


@settings(EXAMPLES, max_examples=10)
@given(random_graph_energies(), st.sampled_from(["scatter", *SCATTERS]))
def test_scatters_of_random_energies_agree_with_the_dense_jacobian(random: RandomGraphEnergy, way: Way) -> None:
    check_random(random, derive(random.energy, way))


@settings(EXAMPLES, max_examples=10)
@given(random_graph_energies(), st.sampled_from([ir.Target.DETERMINISTIC_GPU, ir.Target.GPU]))
def test_gathers_agree_by_the_same_interpreter(random: RandomGraphEnergy, target: ir.Target) -> None:
    check_random(random, derive(random.energy, None, target))


@pytest.mark.deep
@settings(EXAMPLES, max_examples=1000)
@given(random_graph_energies(), st.sampled_from([None, "scatter", *SCATTERS]))
def test_scatters_and_gathers_of_many_energies(random: RandomGraphEnergy, way: Way) -> None:
    check_random(random, derive(random.energy, way))


# -- single energies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["scatter", *SCATTERS])
def test_bundle_adjustment(way: Way) -> None:
    energy = bundle()
    routines = derive(energy, way)
    for sizes in ((1, 1, 1), (3, 10, 40)):
        check_scatters(energy, data_of_bundle_adjustment(*sizes), routines)


@pytest.mark.parametrize("way", ["scatter", *SCATTERS])
def test_edges_triangles_wedges_and_pixels(way: Way) -> None:
    energy = mesh()
    routines = derive(energy, way)
    for sizes in ((3, 1), (20, 50)):
        check_scatters(energy, data_of_mesh(*sizes), routines)


def test_unknowns_on_manifolds() -> None:
    energy = manifolds.mixed()
    routines = derive(energy)
    for sizes in manifolds.SIZES:
        check_scatters(energy, manifolds.data(**sizes), routines, epsilon=1e-10)


def test_edges_that_loop_and_repeat_add_up() -> None:
    X = op.Unknown("X", (V,))
    a, b, c = op.Graph("g", E, (V, V, V))[e]
    energy = op.Energy(r=X[a] * X[b] - 2 * X[c])
    edges = np.array([[1, 1, 1], [0, 1, 1], [0, 1, 1], [2, 0, 2]])
    check_scatters(energy, dict(X=np.array([0.5, -1.5, 2.0, 7.0]), g=edges))


def test_edges_may_read_neighbours_of_what_they_point_at() -> None:
    X, Z = op.Unknown("X", (V,), 2), op.Unknown("Z", (H, W))
    a, b = op.Graph("g", E, (V, V))[e]
    pixel, p = op.Graph("m", N, ((H, W), V))[o]
    row, column = pixel
    energy = op.Energy(
        zero=X[a + 1] * X[b][1] - X[b - 2],  # 0 where one of them lies outside
        asked=op.where(op.in_bounds(row + 1, column), Z[row + 1, column] * X[p][0], Z[row, column - 1] - 1),
        fixed={Z: op.value(i) == 1},
    )
    rng = np.random.default_rng(3)
    data = dict(X=rng.normal(size=(5, 2)), Z=rng.normal(size=(3, 4)), g=rng.integers(0, 5, (30, 2)),
                m=np.stack([rng.integers(0, n, 40) for n in (3, 4, 5)], axis=1))  # fmt: skip
    check_scatters(energy, data)


def test_edges_may_hold_unknowns_of_their_own_and_read_those_of_the_next() -> None:
    X, U, Y = op.Unknown("X", (V,)), op.Unknown("U", (E,)), op.Unknown("Y", ())
    a, b = op.Graph("g", E, (V, V))[e]
    energy = op.Energy(r=U[e + 1] * X[a] - U[e] * X[b] * Y[()], s=X[v] - 1, t=Y[()] * U[e])
    rng = np.random.default_rng(4)
    check_scatters(energy, dict(X=rng.normal(size=5), U=rng.normal(size=9), Y=0.7, g=rng.integers(0, 5, (9, 2))))


def test_one_index_may_point_into_two_grids() -> None:
    X, U = op.Unknown("X", (V,)), op.Unknown("U", (E,))
    (a,) = op.Graph("g", E, (V,))[e]
    energy = op.Energy(r=U[1] * X[a] - op.sin(X[1]) * U[e])
    rng = np.random.default_rng(6)
    data = dict(X=rng.normal(size=5), U=rng.normal(size=9), g=rng.integers(0, 5, (9, 1)))
    check_scatters(energy, data)
    check_scatters(energy, data, derive(energy, None, ir.Target.DETERMINISTIC_GPU))


def test_a_term_may_have_other_indices_beside_the_edge() -> None:
    X, Y = op.Unknown("X", (V,)), op.Unknown("Y", (C,), 2)
    k = op.indices(C)
    a, b = op.Graph("g", E, (V, V))[e]
    energy = op.Energy(r=X[a] * Y[k][0] - X[b] * Y[2 * k][1], s=X[v] - 1)
    rng = np.random.default_rng(1)
    check_scatters(energy, dict(X=rng.normal(size=5), Y=rng.normal(size=(3, 2)), g=rng.integers(0, 5, (9, 2))))


def test_two_graphs_may_share_their_edges() -> None:
    X, Y = op.Unknown("X", (V,)), op.Unknown("Y", (C,))
    a, b = op.Graph("g", E, (V, V))[e]
    c, d = op.Graph("h", E, (C, V))[e]
    energy = op.Energy(r=X[a] * Y[c] - op.sin(X[b]) + X[d], s=X[a] - X[d])
    rng = np.random.default_rng(0)
    data = dict(X=rng.normal(size=5), Y=rng.normal(size=3), g=rng.integers(0, 5, (9, 2)),
                h=np.stack([rng.integers(0, 3, 9), rng.integers(0, 5, 9)], axis=1))  # fmt: skip
    check_scatters(energy, data)
    (edges,) = (r for r in derive(energy).groups[ir.Group.PRODUCT] if r.atomic_adds)
    assert len(edges.atomic_adds) == 4  # a, b, c, d once


def test_nothing_is_added_to_what_is_fixed() -> None:
    """Conditions may go through graphs; edges are visited also where their own unknown is fixed."""
    X, U = op.Unknown("X", (V,)), op.Unknown("U", (E,))
    M, d = op.Array("M", (V,), dtype=bool), op.Dim("D")
    a, b = op.Graph("g", E, (V, V))[e]
    (c,) = op.Graph("h", d, (E,))[op.indices(d)]
    energy = op.Energy(r=U[e] * (X[a] - X[b]) - 1, s=U[c] - 2, fixed={U: M[a], X: op.value(v) == 2})
    rng = np.random.default_rng(1)
    data = dict(X=rng.normal(size=9), U=rng.normal(size=300), M=np.arange(9) < 7, g=rng.integers(0, 9, (300, 2)),
                h=rng.integers(0, 300, (20, 1)))  # fmt: skip
    check_scatters(energy, data)


def test_ends_of_an_edge_are_compared_once() -> None:
    X = op.Unknown("X", (V,), 2)
    a, b = op.Graph("g", E, (V, V))[e]
    (edges,) = (r for r in derive(op.Energy(r=op.sin(X[a]) * X[b])).groups[ir.Group.GRADIENT] if r.atomic_adds)
    assert len({k for k in edges.keys if isinstance(k, ir.IndexCondition)}) == 1


# -- what there is -----------------------------------------------------------------------------------------------------


def test_all_or_none_or_those_that_cost_less() -> None:
    energy = mesh()
    edges = {r.domain for r in energy.problem.residuals if over_edges(r)}

    def scattered(way: Way, target: ir.Target = ir.Target.GPU) -> set[ir.Domain]:
        return {r.domain for r in derive(energy, way, target).groups[ir.Group.PRODUCT] if r.atomic_adds}

    assert scattered(None, ir.Target.DETERMINISTIC_GPU) == set()
    assert scattered("scatter") == edges
    assert scattered(None) <= edges


def test_grids_wait_for_no_one_and_edges_for_the_grids_once() -> None:
    groups = scattered_routines(mesh).groups
    names = [r.name for r in groups[ir.Group.PRODUCT]]
    assert names == ["applyJTJ_0", "applyJTJ_1", *(f"applyJTJ_scatter_{n}" for n in range(4))]
    assert [r.prepares for r in groups[ir.Group.PRODUCT]] == [False, True, *([False] * 4)]
    assert [r.prepares for r in groups[ir.Group.GRADIENT]] == [False, True, False, False, False, True, False, False]
    assert [r.name for r in groups[ir.Group.GRADIENT]][-2:] == ["evalJTF_max_0", "evalJTF_max_1"]


@pytest.mark.parametrize("energy", [mesh, bundle])
def test_products_take_two_phases_and_gradients_three(energy: Callable[[], op.Energy]) -> None:
    groups = scattered_routines(energy).groups
    phases = {group: len(ir.in_phases(groups[group])) for group in groups}
    assert (phases[ir.Group.PRODUCT], phases[ir.Group.PRODUCT_DAMPED], phases[ir.Group.GRADIENT]) == (2, 2, 3)


def test_a_grid_that_no_edge_reaches_is_as_it_is_without_scatters() -> None:
    X, Z = op.Unknown("X", (V,)), op.Unknown("Z", (H, W))
    a, b = op.Graph("g", E, (V, V))[e]
    groups = derive(op.Energy(r=X[a] - X[b], s=Z[i, j] - Z[i, j + 1])).groups
    gradient = {r.name: r for r in groups[ir.Group.GRADIENT]}
    assert list(gradient) == ["evalJTF_0", "evalJTF_1", "evalJTF_scatter_0", "evalJTF_max_0"]
    assert [bool(r.reductions) for r in gradient.values()] == [False, True, False, True]


def test_the_channels_of_an_element_are_added_side_by_side() -> None:
    (edges,) = (r for r in scattered_routines(bundle).groups[ir.Group.PRODUCT] if r.atomic_adds)
    targets = [x.target for x in edges.atomic_adds]
    assert [(t.field.name, t.channel) for t in targets] == [
        *(("Ap.Camera", n) for n in range(7)), *(("Ap.Point", n) for n in range(3)),
    ]  # fmt: skip
