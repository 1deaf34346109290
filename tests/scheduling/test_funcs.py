"""Which intermediates are stored, with what, and why."""

from __future__ import annotations

from typing import Any

import pytest

import optpy as op
from optpy.api.pipeline import derive
from optpy.ir import FuncSchedule, FuncStorage, Group, Schedule
from optpy.kernels.codegen.program import ProgramListing
from optpy.scheduling.funcs import schedule_funcs

H, W, N = op.dims("H W N")
i, j = op.indices(H, W)
X, A = op.Unknown("X", (H, W)), op.Array("A", (H, W))
w = op.params("w")

INLINE, VALUES, PARTIALS = FuncStorage


def func(name: str, formula: Any) -> op.Func:
    made = op.Func(name, (H, W))
    made[i, j] = formula
    return made


def steep() -> op.Func:
    """Dear, and of two pixels."""
    return func("steep", op.exp(op.sin(X[i, j]) * X[i, j + 1]))


def around(f: op.Func) -> list[Any]:
    """Residuals that read an intermediate at three pixels each."""
    return [f[i, j] - f[i, j + 1], f[i, j] - f[i + 1, j]]


def decided(**terms: Any) -> dict[str, FuncSchedule]:
    return {s.name: s for s in schedule_funcs(op.Energy(**terms).problem).funcs}


def stores(listing: ProgramListing, group: Group) -> list[str]:
    """The stored fields of intermediates that a group writes, each with its dtype, in their order."""
    kernels = [listing.kernels[n].border for n in listing.groups.get(group, ())]
    fields = [a.target.field for k in kernels for a in k.assignments if a.target.field.name.count("steep")]
    return [f"{f.name} {f.dtype}" for f in dict.fromkeys(fields)]


def test_what_is_cheap_is_inlined() -> None:
    cheap = func("cheap", X[i, j] - A[i, j])
    assert decided(r=around(cheap))["cheap"] == FuncSchedule("cheap", INLINE)


def test_what_is_dear_is_stored_with_its_partials() -> None:
    (found,) = decided(r=around(steep())).values()
    assert found == FuncSchedule("steep", PARTIALS, in_cost=True)
    # Two partials, which take the time of 16 additions each to bring from memory.
    assert "places or 32 for what is stored" in found.reason
    assert found.reason.endswith("additions at each of 3")


def test_what_a_cost_reads_once_is_not_stored_for_it() -> None:
    (found,) = decided(r=steep()[i, j] - A[i, j]).values()
    assert found == FuncSchedule("steep", PARTIALS, in_cost=False)
    assert found.reason.endswith("additions at each of 1")


def test_what_reads_no_unknown_is_stored_as_values() -> None:
    grown = func("grown", op.exp(w * A[i, j]))
    (found,) = decided(r=[X[i, j] * r for r in around(grown)]).values()
    assert found == FuncSchedule("grown", VALUES, in_cost=False)  # stored when data is bound: also for costs


def test_a_condition_is_stored_as_bytes() -> None:
    """A byte is a quarter of a number: what is too little for a number may be enough for it."""
    whole = func("whole", (A[i, j] > 0) & (A[i - 1, j] > 0))
    (found,) = decided(r=op.where(whole[i, j], X[i, j] - X[i, j + 1], 0)).values()
    assert found == FuncSchedule("whole", VALUES)
    assert "or 4 for what is stored" in found.reason
    twice = func("twice", (A[i, j] + w) * A[i - 1, j] + A[i + 1, j] * w)
    (number,) = decided(r=X[i, j] * twice[i, j]).values()
    assert number == FuncSchedule("twice", INLINE)
    assert "or 16 for what is stored" in number.reason


def test_what_only_a_stored_one_reads_is_counted_in_its_pass() -> None:
    inner = func("inner", op.exp(A[i, j]) * op.sin(A[i, j]))
    once = func("once", op.exp(inner[i, j]))
    often = func("often", op.exp(inner[i, j] + inner[i, j + 1] + inner[i + 1, j]))
    terms = [X[i, j] * r for f in (once, often) for r in around(f)]
    only_once = decided(r=terms[:2])
    assert (only_once["inner"].storage, only_once["once"].storage) == (INLINE, VALUES)
    assert only_once["inner"].reason.endswith("; in a pass that stores another, 42 additions at each of 1")
    both = decided(r=terms)
    assert {f.storage for f in both.values()} == {VALUES}
    assert both["inner"].reason.endswith("; in a pass that stores another, 42 additions at each of 3")
    assert "in a pass" not in both["often"].reason


def test_one_that_an_inlined_one_reads_is_counted_where_that_is_read() -> None:
    slope = func("slope", steep()[i, j] - steep()[i - 1, j])
    problem = op.Energy(r=slope[i, j] * w, s=slope[i, j + 1]).problem
    inline, stored = (schedule_funcs(problem, [FuncSchedule("slope", way)]).funcs[0] for way in (INLINE, PARTIALS))
    assert inline == FuncSchedule("steep", PARTIALS, in_cost=True)
    assert inline.reason.endswith("; in a cost, 45 additions at each of 4")
    assert stored.reason.endswith(
        "; in a cost, 45 additions at each of 0; in a pass that stores another, 45 additions at each of 2"
    )


@pytest.mark.parametrize("storage", FuncStorage)
@pytest.mark.parametrize("in_cost", [False, True])
def test_a_schedule_by_hand_stands(storage: FuncStorage, in_cost: bool) -> None:
    by_hand = FuncSchedule("steep", storage, in_cost, "as wished")
    problem = op.Energy(r=around(steep())).problem
    found = derive(problem, "float32", [by_hand])
    assert found.schedule.funcs == (by_hand,)
    assert found.schedule.funcs[0].reason == "as wished"
    whole = derive(problem, "float32", Schedule(funcs=(by_hand,)))
    assert whole.schedule == found.schedule
    for derived in (found, whole):
        own = {INLINE: [], VALUES: ["func.steep real"], PARTIALS: ["func.steep real", "partials.steep real"]}
        assert stores(derived.listing, Group.JACOBIAN) == own[storage]
        assert stores(derived.listing, Group.COST) == (["cost.steep real"] if in_cost else [])
        assert Group.FUNCS not in derived.listing.groups


def test_what_reads_no_unknown_is_stored_when_data_is_bound() -> None:
    known = func("steep_known", (A[i, j] > 0) & (A[i, j + 1] > 0))
    slope = func("steep_slope", op.exp(A[i, j + 1] - A[i, j]))
    energy = op.Energy(r=op.where(known[i, j], X[i, j] * slope[i, j] - X[i, j + 1] * slope[i, j + 1], 0))
    found = derive(energy.problem, "float32", [FuncSchedule(f"steep_{n}", VALUES, True) for n in ("known", "slope")])
    assert sorted(stores(found.listing, Group.FUNCS)) == ["func.steep_known bool", "func.steep_slope real"]
    for group in (Group.JACOBIAN, Group.COST, Group.RESIDUALS):
        assert stores(found.listing, group) == []
        kernels = [found.listing.kernels[n].border for n in found.listing.groups.get(group, ())]
        assert "A" not in {a.field.name for k in kernels for a in k.accesses()}


def test_texts() -> None:
    texts = [str(FuncSchedule("B", storage, storage is PARTIALS)) for storage in FuncStorage]
    assert texts == [
        "B: inline", "B: values", "B: partials, cost",
    ]  # fmt: skip
    schedule = derive(op.Energy(r=around(steep())).problem, "float32").schedule
    first = str(schedule).splitlines()[0]
    assert first == f"func steep: partials, cost  # {schedule.funcs[0].reason}"


def test_the_terms_of_a_sum_read_what_is_stored() -> None:
    """Each term would compute it anew, in every product."""
    k = op.indices(W)
    steep_ = op.Func("steep", (H, W))
    steep_[i, j] = op.sin(X[i, j])
    in_terms = op.Energy(fit=op.sum(steep_[i, k], over=k) - A[i, 0])
    assert {s.name: s.storage for s in schedule_funcs(in_terms.problem).funcs} == {"steep": PARTIALS}
    alone = op.Func("alone", (H, W))
    alone[i, j] = op.sin(X[i, j])
    beside = op.Energy(fit=op.sum(A[i, k], over=k) * alone[i, j])
    assert {s.name: s.storage for s in schedule_funcs(beside.problem).funcs} == {"alone": INLINE}
