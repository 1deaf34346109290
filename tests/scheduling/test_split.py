"""Sums in passes of their own: over edges on a grid, and over a whole grid at one point."""

from __future__ import annotations

import numpy as np
import pytest

import optpy as op
from optpy import ir
from optpy.kernels.codegen.split import split_edges, split_sums
from optpy.kernels.runtime import executor
from optpy.scheduling.schedule import splits
from tests.support.operator_checks import Operators
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


L, A = op.Unknown("L", (), 2), op.Array("A", (H, W))
SHARED = op.Energy(
    light=A[i, j] * L[()][0] + L[()][1] - Z[i, j],
    smooth=op.sin(L[()][1]) * (Z[i, j] - Z[i + 1, j - 1]),
    fit=Z[i, j],
    prior=L[()],
)


def test_rows_are_added_up_by_a_pass_and_their_sums_at_the_point() -> None:
    whole = next(r for r in routines_of(SHARED).groups[ir.Group.PRODUCT] if not r.domain)
    (found,) = splits([whole])
    assert found.routine == whole.name
    rows, rest = split_sums(whole)
    assert rows.prepares
    assert [str(i.dim) for i in rows.domain] == ["H"]
    assert [x.loops for x in rows.locals] == [x.loops[1:] for x in whole.locals]
    assert {s.target for s in rows.assignments} <= set(rest.accesses())
    assert [x.loops for x in rest.locals] == [rows.domain]
    for routine in (rows, rest):
        ir.verify(routine)


@pytest.mark.native
@pytest.mark.parametrize("shape", [(1, 1), (2, 5), (5, 41), (300, 3)])
def test_shared_sums_are_right_and_the_same_for_any_number_of_threads(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "ACCESSES_PER_THREAD", 1)
    rng = np.random.default_rng(3)
    data = dict(Z=rng.standard_normal(shape), A=rng.standard_normal(shape), L=np.array([0.3, -0.7]))
    p = rng.standard_normal(shape[0] * shape[1] + 2)
    found = []
    for threads in (1, 3):
        operators = Operators(SHARED, data, threads=threads)
        operators.linearise()
        found.append(operators.apply(p))
    jacobian = SHARED.jacobian(data)
    assert np.allclose(found[0][0], jacobian.T @ (jacobian @ p))
    assert np.array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
