"""The choice of a preconditioner, by records that are made up."""

from __future__ import annotations

import pytest

from optpy.linear.aggregation.record import AGGREGATION
from optpy.linear.choice import HOPELESS, Choice
from optpy.linear.cholesky.record import CHOLESKY
from optpy.linear.jacobi.record import BLOCK_JACOBI, JACOBI
from optpy.linear.method import Outcome
from optpy.linear.multigrid.record import MULTIGRID
from optpy.linear.record import Record

ON_GRID = (JACOBI, MULTIGRID)
ON_GRAPH = (CHOLESKY, BLOCK_JACOBI, AGGREGATION)


def choice(records: tuple[Record, ...] = ON_GRID, first: Record = JACOBI) -> Choice:
    return Choice(first, lambda left: [record for record in records if record is not left], 25)


def in_force(made: Choice) -> str:
    return made.record.option


def with_multigrid() -> Choice:
    """After the first solve."""
    made = choice()
    made.report(Outcome.DEAR, 25)
    made.report(Outcome.SERVED, 6)
    return made


def test_the_first_is_kept_while_its_solves_are_short() -> None:
    made = choice()
    for _ in range(3):
        assert (in_force(made), made.patience) == ("jacobi", 25)
        made.report(Outcome.SERVED, 20)
    assert not made.disappointed


def test_what_takes_over_is_kept_as_long_as_it_serves() -> None:
    made = with_multigrid()
    for iterations in (3, 60, 300):
        assert in_force(made) == "multigrid"
        made.report(Outcome.SERVED, iterations)
    assert not made.disappointed


def test_what_was_short_before_patience_was_lost_is_no_reason_to_go_back() -> None:
    made = choice()
    made.report(Outcome.SERVED, 2)
    made.report(Outcome.DEAR, 25)
    made.report(Outcome.SERVED, 10)
    assert in_force(made) == "multigrid"


def test_what_is_left_is_come_back_to_where_the_other_proves_dearer() -> None:
    made = with_multigrid()
    made.report(Outcome.DEAR, 90)
    assert (in_force(made), made.patience, made.disappointed) == ("jacobi", None, True)
    made.report(Outcome.SERVED, 2 * 5 * 90 - 1)
    assert in_force(made) == "jacobi"
    made.report(Outcome.SERVED, 2 * 5 * 90 + 1)
    assert in_force(made) == "multigrid"
    assert made.patience == (2 * 5 * 90 + 1) // 5  # as much as Jacobi has taken


def test_each_failure_puts_the_next_attempt_off_for_twice_as_long() -> None:
    made = with_multigrid()
    attempts = 0
    for _ in range(1000):  # Jacobi always takes 3000, and multigrid all that it may
        if in_force(made) == "multigrid":
            attempts += 1
            assert made.patience is not None
            made.report(Outcome.DEAR, made.patience)
            assert in_force(made) == "jacobi"
        made.report(Outcome.SERVED, 3000)
    assert attempts == 2


def test_one_that_meets_the_limit_gives_way_to_the_other() -> None:
    made = with_multigrid()
    made.report(Outcome.DEAR, HOPELESS)
    made.report(Outcome.DEAR, 5000)
    assert in_force(made) == "multigrid"
    made.report(Outcome.SERVED, 20)
    assert in_force(made) == "multigrid"


def test_a_doubt_without_reason_is_settled_by_who_goes_on() -> None:
    made = with_multigrid()
    made.report(Outcome.DOUBTED, 8, Q=-2.0)
    assert in_force(made) == "jacobi"
    made.report(Outcome.SERVED, 3, Q=-2.0001)
    assert made.settle(-2.0001, ended=True)
    assert in_force(made) == "multigrid"
    assert not made.settle(-3.0, ended=True)  # of the next solve nothing was doubted


@pytest.mark.parametrize(("Q", "ended"), [(-2.1, True), (-2.0, False)])
def test_a_doubt_with_reason_or_without_an_answer_is_not(Q: float, ended: bool) -> None:
    made = with_multigrid()
    made.report(Outcome.DOUBTED, 8, Q=-2.0)
    made.report(Outcome.SERVED, 400, Q=Q)
    assert not made.settle(Q, ended)
    assert in_force(made) == "jacobi"
    made.report(Outcome.DEAR, 5000)  # only at the limit it is worth another try
    assert in_force(made) == "multigrid"


def test_of_several_the_cheapest_known_one_takes_over() -> None:
    made = choice(ON_GRAPH, BLOCK_JACOBI)
    made.report(Outcome.DEAR, 10)
    assert in_force(made) == "cholesky"
    made.report(Outcome.SERVED, 2)
    made.report(Outcome.UNFIT, 0)
    assert in_force(made) == "block_jacobi"
    made.report(Outcome.DEAR, 5000)
    assert in_force(made) == "multigrid"
    made.report(Outcome.DEAR, 100)
    assert in_force(made) == "block_jacobi"
    made.report(Outcome.DEAR, 5000)
    assert in_force(made) == "multigrid"  # never again what cannot serve


def test_without_others_it_stays() -> None:
    made = Choice(BLOCK_JACOBI, lambda _: [], None)
    for outcome in (Outcome.DEAR, Outcome.SERVED, Outcome.DEAR):
        assert (in_force(made), made.patience) == ("block_jacobi", None)
        made.report(outcome, 5000)
