"""What is stored for each edge: the same derivatives, read from memory, each number once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy import ir
from optpy.energy.derive.linearised import LinearisedResidual, linearise
from optpy.energy.derive.materialised import over_edges, passes, store_jacobian, store_product
from optpy.symbolic.expr import Expr, Var
from optpy.symbolic.interpret import evaluate
from optpy.symbolic.traverse import substitute, variables
from tests.support.schedules import GATHERS, routines_of

V, E, N = op.dims("V E N")
v, e, n = op.indices(V, E, N)
X, Angle, A = op.Unknown("X", (V,), 2), op.Unknown("Angle", (V,)), op.Array("A", (V,), 2)
a, b = op.Graph("edges", E, (V, V))[e]
w = op.params("w")


def source(expression: op.Expression) -> LinearisedResidual:
    (residual,) = op.Energy(r=expression).problem.residuals
    return linearise(residual)


CHEAP = source(w * (X[a] - X[b]))
ARAP = source(w * ((X[a] - X[b]) - op.rotate2d(Angle[a], A[a] - A[b])))
DEAR = source(op.exp(op.sin(X[a][0] * X[b][1]) * op.cos(X[a][1] * X[b][0])) / (1 + op.dot(X[a], X[b]) ** 2))


def values_of(roots: list[Expr]) -> list[Any]:
    """With a number for each leaf that depends on its text alone."""
    return evaluate(roots, lambda key: float(np.random.default_rng(list(str(key).encode())).uniform(0.5, 1.5)))


@pytest.mark.parametrize("given", [CHEAP, ARAP, DEAR])
def test_a_stored_jacobian_holds_the_same_derivatives(given: LinearisedResidual) -> None:
    stored, stores = store_jacobian(given)
    back: dict[Expr, Expr] = {v: s.value for s in stores for v in _variables([*stored.jvps, *stored.values], s)}
    for exact, read in ((given.values, stored.values), (given.jvps, stored.jvps)):
        np.testing.assert_allclose(values_of(substitute(read, back)), values_of(list(exact)), rtol=1e-12)
    for partials, entries in zip(given.partials, stored.partials, strict=True):
        assert list(partials) == list(entries)
        np.testing.assert_allclose(
            values_of(substitute(entries.values(), back)), values_of(list(partials.values())), rtol=1e-12
        )


def _variables(roots: list[Expr], store: ir.Assignment) -> list[Var]:
    return [v for v in variables(roots) if v.key == store.target]


def test_entries_are_stored_once_and_numbers_not_at_all() -> None:
    _, stores = store_jacobian(CHEAP)
    assert len(stores) == 2  # the two values; J holds w and -w
    opposite = source(op.sin(X[a][0] - X[b][0]) - op.cos(X[a][1]))
    _, stores = store_jacobian(opposite)
    assert len(stores) == 3  # the value, cos(..) for both ends, sin(..)


def test_a_stored_product_is_read_in_place_of_the_tangents() -> None:
    stored, stores = store_product(ARAP)
    assert [s.target.field.name for s in stores] == ["Jp.r", "Jp.r"]
    assert [t.key for t in stored.jvps if isinstance(t, Var)] == [s.target for s in stores]
    assert stored.partials == ARAP.partials
    np.testing.assert_allclose(values_of([s.value for s in stores]), values_of(list(ARAP.jvps)), rtol=1e-12)


def test_passes_come_one_for_each_domain() -> None:
    found = passes("p", [(s.residual, store_product(s)[1]) for s in (CHEAP, DEAR)], prepares=True)
    assert [(r.name, len(r.assignments), r.prepares) for r in found] == [("p_0", 3, True)]
    assert passes("p", [(CHEAP.residual, [])], prepares=True) == []


def test_only_unknowns_read_through_a_graph_make_a_residual_one_over_edges() -> None:
    grid = op.Unknown("U", (E,))
    assert over_edges(CHEAP.residual)
    assert not over_edges(source(grid[e] - grid[e + 1]).residual)
    assert not over_edges(source(grid[e] - A[a][0]).residual)


@pytest.mark.parametrize("way", GATHERS, ids=str)
def test_the_schedule_decides_which_routines_there_are(way: ir.ResidualSchedule) -> None:
    energy = op.Energy(reg=op.sin(X[a] - X[b]), fit=X[v] - A[v])
    groups = routines_of(energy, way).groups
    assert (ir.Group.JACOBIAN in groups) == way.jacobian
    for name in (ir.Group.PRODUCT, ir.Group.PRODUCT_DAMPED):
        assert [r.prepares for r in groups[name]] == [True] * way.product + [False]
        assert [r.domain[0].dim.name for r in groups[name]] == ["E"] * way.product + ["V"]
    (product,) = (r for r in groups[ir.Group.PRODUCT] if not r.prepares)
    assert len(product.locals) == 2  # one loop for each slot, whatever many contributions
    assert [type(k) for x in product.locals for k in x.loops] == [ir.Incidence, ir.Incidence]


def test_terms_share_the_loop_over_a_slot() -> None:
    energy = op.Energy(one=X[a] - X[b], two=[op.sin(X[a][0]), Angle[a] * X[b][1]], fit=Angle[v])
    groups = routines_of(energy, GATHERS[0]).groups
    (product,) = groups[ir.Group.PRODUCT]
    assert len(product.locals) == 2
