"""Which residuals over edges are scattered, in which form, and what that is taken to cost."""

from __future__ import annotations

import optpy as op
from optpy.energy.derive.edge_form import EdgeForm, best_form, product_cost, store_jacobian
from optpy.energy.derive.linearised import LinearisedResidual, linearise
from optpy.energy.derive.problem_routines import Scatter, problem_routines
from optpy.energy.derive.scatter import ATOMIC, best_scatter_form, prefer_scatter, scatter_cost

V, E = op.dims("V E")
v, e = op.indices(V, E)
X, Angle = op.Unknown("X", (V,), 3), op.Unknown("Angle", (V,), 3)
A = op.Array("A", (V,), 3)
a, b = op.Graph("g", E, (V, V))[e]


def source(residual: object) -> LinearisedResidual:
    (r,) = op.Energy(r=residual).residual_terms
    return linearise(r)


CHEAP = source(X[a] - X[b])
DEAR = source((X[a] - X[b]) - op.rotate3d(Angle[a], A[a] - A[b]))
AT_ONE_END = source(X[a][0] ** 2)


def test_a_scatter_takes_one_addition_for_each_number_that_an_edge_reads() -> None:
    more = source(op.vector(X[a][0] ** 2, 3 * X[a][0]))  # more components, the same element
    assert ATOMIC < scatter_cost(AT_ONE_END) < scatter_cost(more) < scatter_cost(AT_ONE_END) + ATOMIC
    assert scatter_cost(CHEAP) > 6 * ATOMIC


def test_what_is_dear_is_scattered_and_what_is_cheap_is_gathered() -> None:
    assert not prefer_scatter(CHEAP)
    assert prefer_scatter(DEAR)


def test_the_choice_is_that_of_the_lower_cost() -> None:
    for s in (CHEAP, DEAR, AT_ONE_END):
        stored = store_jacobian(s)[0]
        form = best_form(s)
        gathered = product_cost(stored if form.jacobian else s, form.product)
        assert prefer_scatter(s) == (min(scatter_cost(s), scatter_cost(stored)) < gathered)
        assert best_scatter_form(s) == EdgeForm(scatter_cost(stored) < scatter_cost(s), product=False)


def test_each_residual_is_chosen_for_itself() -> None:
    energy = op.Energy(cheap=X[a] - X[b], dear=(X[a] - X[b]) - op.rotate3d(Angle[a], A[a] - A[b]))
    groups = problem_routines(energy.residual_terms, energy.unknown_fields, energy.fixed, scatter=True).groups
    vertices, edges = groups["applyJTJ"]
    assert vertices.prepares
    assert vertices.locals
    assert len(edges.accumulates) == 9  # X at both ends, Angle at one
    assert not edges.locals


def test_what_is_fixed_is_stored_once_and_only_where_edges_need_it() -> None:
    fixed = {X: op.value(v) == 0, Angle: op.value(v) == 1}
    energy = op.Energy(reg=X[a] - X[b], fit=Angle[v], fixed=fixed)

    def stored(scatter: Scatter) -> set[str]:
        groups = problem_routines(energy.residual_terms, energy.unknown_fields, energy.fixed, scatter=scatter).groups
        return {s.target.field.name for r in groups.get("jacobian", ()) for s in r.stores}

    assert stored(False) == set()
    assert stored("all") == {"free.X"}
