"""Sums over edges apart from the loop over a grid."""

from __future__ import annotations

import optpy as op
from optpy import ir
from optpy.energy.derive.problem_routines import problem_routines
from optpy.kernels.codegen.split import split_edges

H, W, V, E = op.dims("H W V E")
i, j, v, e = op.indices(H, W, V, E)
Z, X = op.Unknown("Z", (H, W)), op.Unknown("X", (V,))
pixel, vertex = op.Graph("match", E, ((H, W), V))[e]
ENERGY = op.Energy(match=Z[pixel] - X[vertex], smooth=Z[i, j] - Z[i, j + 1], fit=X[v])


def product(dims: tuple[str, ...]) -> ir.Routine:
    groups = problem_routines(ENERGY.residual_terms, ENERGY.unknown_fields, ENERGY.fixed).groups
    return next(r for r in groups["applyJTJ"] if tuple(k.dim.name for k in r.domain) == dims)


def test_a_grid_s_loop_reads_the_sums_over_its_edges_from_memory() -> None:
    whole = product(("H", "W"))
    before, rest = split_edges(whole)
    assert before.prepares
    assert before.locals == whole.locals
    assert not before.reductions
    assert not rest.locals
    assert rest.reductions
    assert not rest.prepares
    (stored,) = (s.target for s in before.stores)
    assert stored in rest.accesses()
    for routine in (before, rest):
        ir.verify(routine)


def test_vertices_go_through_their_edges_at_once() -> None:
    whole = product(("V",))
    assert whole.locals
    assert split_edges(whole) == [whole]


def test_a_grid_without_edges_stays_as_it_is() -> None:
    energy = op.Energy(smooth=Z[i, j] - Z[i, j + 1])
    (whole,) = problem_routines(energy.residual_terms, energy.unknown_fields, energy.fixed).groups["applyJTJ"]
    assert split_edges(whole) == [whole]
