"""What a routine may accumulate into, and what is a mistake."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optpy.errors import InternalError
from optpy.ir import (
    REAL,
    Access,
    Assignment,
    AtomicAdd,
    Domain,
    Extent,
    Field,
    Hypergraph,
    LocalName,
    LocalSum,
    LoopVariable,
    Reduce,
    Role,
    Routine,
    canonical_domain,
    in_phases,
    point,
    verify,
)
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import ONE, Expr, const, var

V, E = Extent("V"), Extent("E")
G = Hypergraph("g", E, ((V,), (V,)))
DOMAIN = canonical_domain((E,))
ROW = Affine.of(DOMAIN[0])
X = Field("X", (V,), 2, REAL, Role.UNKNOWN)
SUM = Field("Ap.X", (V,), 2, REAL, Role.VECTOR)
BEYOND = Affine.of(LoopVariable("k0", V))


def add(target: Access, value: Expr = ONE) -> AtomicAdd:
    return AtomicAdd(target, value)


def at(field: Field, domain: Domain, channel: int) -> Access:
    return Access(field, point(domain), channel)


FIRST, SECOND = (Access(SUM, G.at(slot, ROW), 0) for slot in (0, 1))
ROUTINE = Routine("r", DOMAIN, atomic_adds=(add(FIRST, var(Access(X, G.at(1, ROW), 1))), add(SECOND, const(3))))


def test_a_routine_may_add_to_whatever_its_point_determines() -> None:
    verify(ROUTINE)
    beside = Access(SUM, (G.at(0, ROW)[0] + 1,), 0)
    verify(replace(ROUTINE, atomic_adds=(*ROUTINE.atomic_adds, add(beside))))


def test_values_are_roots_between_those_of_stores_and_of_sums() -> None:
    own = Assignment(Access(Field("F", (E,), 1, REAL, Role.VECTOR), (ROW,), 0), const(1))
    whole = replace(ROUTINE, assignments=(own,), reductions=(Reduce("n", const(4)),))
    assert whole.roots == [const(1), *(x.value for x in ROUTINE.atomic_adds), const(4)]
    assert [a.field for a in whole.accesses()] == [X]
    assert {FIRST, SECOND, Access(X, G.at(1, ROW), 1)} <= set(whole.keys)
    assert str(ROUTINE).splitlines() == [
        "r over (i0: E)",
        "  Ap.X[g[i0, 0]].0 += X[g[i0, 1]].1",
        "  Ap.X[g[i0, 1]].0 += 3",
    ]


@pytest.mark.parametrize(
    ("message", "atomic_adds"),
    [
        ("adds to the same element twice", (add(FIRST), add(FIRST, const(2)))),
        ("no vector of the solver", (add(Access(X, G.at(0, ROW), 0)),)),
        ("no vector of the solver", (add(Access(replace(SUM, dtype="float32"), G.at(0, ROW), 0)),)),
        ("which it reads or stores", (add(FIRST, var(Access(SUM, G.at(1, ROW), 1))),)),
        ("its point does not determine", (add(Access(SUM, (BEYOND,), 0)),)),
    ],
)
def test_mistakes(message: str, atomic_adds: tuple[AtomicAdd, ...]) -> None:
    with pytest.raises(InternalError, match=message):
        verify(replace(ROUTINE, atomic_adds=atomic_adds))


def test_what_is_stored_is_not_added_to() -> None:
    on_edges = Field("Ap.U", (E,), 1, REAL, Role.VECTOR)
    own = Assignment(Access(on_edges, (ROW,), 0), ONE)
    with pytest.raises(InternalError, match="which it reads or stores"):
        verify(replace(ROUTINE, assignments=(own,), atomic_adds=(add(Access(on_edges, (ROW + 1,), 0)),)))


def stores(field: Field, value: Expr = ONE) -> Routine:
    domain = canonical_domain(field.dims)
    return Routine(field.name, domain, (Assignment(at(field, domain, 0), value),))


def test_phases_are_cut_where_something_must_be_there_before() -> None:
    other = replace(SUM, name="other")
    reads = replace(stores(other, var(at(SUM, canonical_domain((V,)), 1))), name="reads")
    zero, beside = stores(SUM), stores(replace(SUM, name="beside"))
    again = replace(ROUTINE, name="again")
    assert in_phases([]) == []
    assert in_phases([zero, beside]) == [[zero, beside]]
    assert in_phases([zero, beside, ROUTINE, again, reads]) == [[zero, beside], [ROUTINE, again], [reads]]
    assert in_phases([zero, replace(beside, prepares=True), reads]) == [[zero, replace(beside, prepares=True)], [reads]]
    assert in_phases([reads, zero]) == [[reads], [zero]]  # it must not be overwritten before it is read
    assert in_phases([reads, ROUTINE]) == [[reads], [ROUTINE]]
    assert in_phases([ROUTINE, zero]) == [[ROUTINE], [zero]]
    assert in_phases([zero, zero]) == [[zero], [zero]]


def test_the_loops_of_sums_say_nothing_of_where_to_add() -> None:
    local = LocalSum(("s",), (LoopVariable("k0", V),), ONE, (ONE,))
    with pytest.raises(InternalError, match="its point does not determine"):
        verify(replace(ROUTINE, locals=(local,), atomic_adds=(add(Access(SUM, (BEYOND,), 0), var(LocalName("s"))),)))
