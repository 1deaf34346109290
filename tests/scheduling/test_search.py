"""The search by measuring, with times that are made up: the best of what is tried, one decision after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from optpy.errors import OptionError
from optpy.ir import Schedule, Target
from optpy.scheduling.search import fastest

AUTO = Schedule(
    funcs={"B": "partials, cost"}, residuals={"r": "inline", "s": "J"}, normal="products", values={"sin": "stored"},
    splits={"applyJTJ_0": "apart"}, layouts={"V": "planar"},
)  # fmt: skip


def in_force(decided: Schedule) -> Schedule:
    """The made-up decider: AUTO, with what is decided in its place; Jp of r cannot be."""
    text = {
        (d.kind, d.about): f"{d.kind} {d}  # {d.reason or 'counted'}" for d in [*AUTO.decisions, *decided.decisions]
    }
    if "Jp" in text["residual", "r"]:
        raise OptionError("r has no Jp")
    return Schedule.parse("\n".join(text.values()))


def search(
    costs: Mapping[str, float], target: Target = Target.CPU, is_over: Callable[[], bool] = lambda: False
) -> tuple[Schedule, list[tuple[str, str]]]:
    """The schedule that is found where decisions cost so much, and 0.001 s by themselves; and the decisions raced."""
    raced: list[tuple[str, str]] = []

    def seconds(schedule: Schedule) -> float:
        return 0.001 * (len(list(schedule.decisions)) + sum(costs.get(str(d), 0) for d in schedule.decisions))

    def race(best: Schedule, other: Schedule) -> tuple[float, float]:
        changes = (str(d) for d in other.decisions if d not in list(best.decisions))
        before = (str(d) for d in best.decisions if d not in list(other.decisions))
        raced.append(("; ".join(before), "; ".join(changes)))
        return seconds(best), seconds(other)

    return fastest(in_force, race, target, is_over), raced


def test_what_is_best_already_stays_with_what_was_measured_as_the_reason() -> None:
    found, raced = search({"B: inline, cost": 1, "B: values, cost": 2, "B: partials": 3, "r: J": 1, "s: inline": 1})
    ways = {"r": "inline", "s": "J", "B": "partials, cost"}
    assert (
        found.residuals[1].reason == "measured: 7 ms, against 8 ms inline, 7 ms Jp, 7 ms J, Jp, 7 ms JTJ, 7 ms J, JTJ"
    )
    assert {d.about: d.choice for d in found.decisions if d.about in ways} == ways
    assert ("r: inline", "r: J") in raced
    assert not any("r: Jp" in pair for pair in raced)  # it cannot be
    assert found.normal is not None
    assert found.normal.reason == "counted"  # of which there is nothing to measure


def test_the_fastest_way_of_each_thing_is_taken() -> None:
    found, raced = search(
        {"B: values, cost": -1, "B: values": -3, "r: J": -0.5, "s: J, Jp": -2, "s: J": 4, "s: inline": 2,
         "sin: recomputed": -1, "applyJTJ_0: together": -1, "(V): interleaved": -1}
    )  # fmt: skip
    assert [d.choice for d in found.decisions] == [
        "values", "J", "J, Jp", "products", "recomputed", "together", "interleaved",
    ]  # fmt: skip
    assert raced[:3] == [
        ("B: partials, cost", "B: inline, cost"), ("B: partials, cost", "B: values, cost"),
        ("B: values, cost", "B: values"),
    ]  # fmt: skip
    assert str(found.layouts[0].reason).startswith("measured: ")
    assert Schedule.parse(str(found)) == found


def test_what_none_gains_alone_all_may_gain_together() -> None:
    """Only with both in it is a stencil of J^T J faster than J of each."""
    found, raced = search({"r: JTJ": 3, "s: JTJ": -4.5})
    assert found.residuals[1].choice == "JTJ"
    assert ("r: inline; s: J", "r: JTJ; s: JTJ") in raced


def test_a_little_less_is_noise() -> None:
    found, _ = search({"r: J": -0.1})
    assert found.residuals[0].choice == "inline"
    found, _ = search({"r: J": -0.5})
    assert found.residuals[0].choice == "J"


def test_scatters_and_padding_are_tried_on_a_gpu_only() -> None:
    costs = {"s: J, scatter": -2.0, "(V): interleaved, padded": -2.0}
    assert [d.choice for d in (search(costs)[0].residuals[1], search(costs)[0].layouts[0])] == ["J", "planar"]
    found, _ = search(costs, Target.GPU)
    assert [d.choice for d in (found.residuals[1], found.layouts[0])] == ["J, scatter", "interleaved, padded"]
    assert not any("scatter" in b for _, b in search(costs, Target.DETERMINISTIC_GPU)[1])


@pytest.mark.parametrize("tries", [0, 1, 4])
def test_when_time_is_up_the_rest_stays_as_it_was_counted(tries: int) -> None:
    left = iter(range(tries))
    found, raced = search({"(V): interleaved": -5, "r: J": -1}, is_over=lambda: next(left, None) is None)
    assert len(raced) == tries - (tries > 3)  # one of four cannot be
    assert found.layouts[0].choice == "planar"
    assert found.layouts[0].reason == "counted"
    assert found.funcs[0].reason.startswith("measured" if tries else "counted")
