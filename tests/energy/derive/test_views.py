"""Residuals seen from the elements that they read: what is a shift, what is a loop, and over what."""

from __future__ import annotations

import pytest

import optpy as op
from optpy import ir
from optpy.ir import Group
from tests.support.schedules import routines_of

H, W, Hc, Wc, K, V, T, E = op.dims("H W Hc Wc K V T E")
i, j = op.indices(H, W)
v, t, e = op.indices(V, T, E)
P, Y, A = op.Unknown("P", (Hc, Wc)), op.Unknown("Y", (K,)), op.Array("A", (H, W))
X, G = op.Unknown("X", (V, T)), op.Graph("edges", E, (V, V))
a, b = G[e]


def product(energy: op.Energy) -> ir.Routine:
    return routines_of(energy).groups[Group.PRODUCT][-1]


def ranges(routine: ir.Routine) -> list[str]:
    return [str(k.dim) for x in routine.locals for k in x.loops if isinstance(k, ir.LoopVariable)]


def test_an_image_of_half_the_size_is_a_stencil() -> None:
    up = P[i // 2, j // 2] + P[(i + 1) // 2, j // 2]
    routine = product(op.Energy(r=up - A[i, j]))
    assert not routine.locals
    reads = {x.index for x in routine.accesses() if x.field.name == "p.P"}
    own = ir.canonical_domain(P.field.dims)
    assert {tuple(a.offset_from(k) for a, k in zip(x, own, strict=True)) for x in reads} == {(-1, 0), (0, 0), (1, 0)}


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (P[i // 3, j // 4], ["3", "4"]),
        (P[i // 5, 0], ["W", "5"]),
        (Y[i % 3] * A[i, j], ["((H + 2) // 3)", "W"]),
        (P[i // 2, i % 2] * A[i, j], ["W"]),
    ],
    ids=["remainders", "and what is not in the index", "quotients", "both are known"],
)
def test_loops_are_over_what_an_index_leaves_open(read: op.Expression, expected: list[str]) -> None:
    assert ranges(product(op.Energy(r=read - A[i, j]))) == expected


def test_frames_of_one_mesh_share_its_incidence() -> None:
    routine = product(op.Energy(r=X[a, t] - X[b, t], s=X[a, t] * X[b, t + 1]))
    loops = [k for x in routine.locals for k in x.loops]
    assert all(isinstance(k, ir.Incidence) for k in loops)
    first = ir.point(routine.domain)[:1]
    assert {k.at for k in loops if isinstance(k, ir.Incidence)} == {first}
    names: dict[str, object] = {}
    for x in routine.locals:  # one name for two loops of one nest would be declared twice
        (k,) = x.loops
        assert names.setdefault(ir.loop_variable(k).name, x) is x
