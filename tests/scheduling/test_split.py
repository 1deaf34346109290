"""Sums over edges apart from the loop over a grid."""

from __future__ import annotations

import optpy as op
from optpy import ir
from optpy.kernels.codegen.split import split_edges
from optpy.scheduling.schedule import splits
from tests.support.schedules import routines_of

H, W, V, E = op.dims("H W V E")
i, j, v, e = op.indices(H, W, V, E)
Z, X = op.Unknown("Z", (H, W)), op.Unknown("X", (V,))
pixel, vertex = op.Graph("match", E, ((H, W), V))[e]
ENERGY = op.Energy(match=Z[pixel] - X[vertex], smooth=Z[i, j] - Z[i, j + 1], fit=X[v])


def product(dims: tuple[str, ...]) -> ir.Routine:
    groups = routines_of(ENERGY).groups
    return next(r for r in groups[ir.Group.PRODUCT] if tuple(k.dim.name for k in r.domain) == dims)


def test_a_grid_s_loop_reads_the_sums_over_its_edges_from_memory() -> None:
    whole = product(("H", "W"))
    before, rest = split_edges(whole)
    assert before.prepares
    assert before.locals == whole.locals
    assert not before.reductions
    assert not rest.locals
    assert rest.reductions
    assert not rest.prepares
    (stored,) = (s.target for s in before.assignments)
    assert stored in rest.accesses()
    for routine in (before, rest):
        ir.verify(routine)


def test_vertices_go_through_their_edges_at_once() -> None:
    whole = product(("V",))
    assert whole.locals
    assert splits([whole]) == ()


def test_a_grid_without_edges_stays_as_it_is() -> None:
    assert splits(routines_of(op.Energy(smooth=Z[i, j] - Z[i, j + 1])).groups[ir.Group.PRODUCT]) == ()


def test_a_split_names_its_routine_and_its_grid() -> None:
    whole = product(("H", "W"))
    (found,) = splits([whole, product(("V",))])
    assert found.routine == whole.name
    assert found.reason == "loops over edges would keep the loop over (H, W) from vector code"
