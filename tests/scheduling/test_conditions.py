"""Which routines branch: by counts, by the target, and as asked."""

from __future__ import annotations

import numpy as np
import pytest

import optpy as op
from optpy.api.pipeline import whole_schedule
from optpy.errors import OptionError
from optpy.ir import Schedule, Target
from tests.support.warping import arap_energy

H, W = op.dims("H W")
i, j = op.indices(H, W)
X, A = op.Unknown("X", (H, W)), op.Array("A", (H, W))
Lit = op.Array("Lit", (H, W), dtype=np.uint8)
x = X[i, j]


def energy(value: op.Expression) -> op.Energy:
    return op.Energy(fit=op.where(Lit[i, j] != 0, value - A[i, j], 0), smooth=x - X[i, j + 1])


def exponentials(n: int) -> op.Expression:
    return sum((op.exp(k * x) for k in range(2, n + 2)), x)


def choices(e: op.Energy, target: Target = Target.CPU, given: Schedule | None = None) -> dict[str, str]:
    found = whole_schedule(e.problem, "float32", target, given or Schedule()).conditions
    assert all("where ~(Lit[i0, i1] == 0) fails" in c.reason or c.reason == "as asked" for c in found)
    return {c.routine: c.choice for c in found}


def test_much_work_branches_and_less_of_it_is_selected() -> None:
    assert choices(energy(exponentials(30)))["cost_0"] == "branch"
    assert choices(energy(exponentials(6)))["cost_0"] == "select"
    assert choices(energy(exponentials(1))) == {}


def test_a_device_branches_as_asked() -> None:
    much = energy(exponentials(30))
    assert choices(much, Target.GPU)["cost_0"] == "select"
    assert choices(much, Target.GPU, Schedule(conditions={"*": "branch"}))["cost_0"] == "branch"


def test_what_is_computed_one_by_one_branches() -> None:
    assert choices(energy(sum((op.atan(k * x) for k in range(2, 8)), x)))["cost_0"] == "branch"


def test_values_are_computed_where_somebody_needs_them() -> None:
    assert choices(energy(exponentials(30)))["precompute_0"] == "branch"
    everywhere = op.Energy(fit=op.where(Lit[i, j] != 0, exponentials(30), 0), all=exponentials(30) - 1)
    assert "precompute_0" not in choices(everywhere)


def test_by_hand() -> None:
    little, much = energy(exponentials(6)), energy(exponentials(30))
    assert choices(little, given=Schedule(conditions={"cost_0": "branch"}))["cost_0"] == "branch"
    assert set(choices(much, given=Schedule(conditions={"*": "select"})).values()) == {"select"}
    with pytest.raises(OptionError, match=r"no condition 'cost_9'; there are: .*did you mean 'cost_0'"):
        choices(much, given=Schedule(conditions={"cost_9": "branch"}))
    with pytest.raises(OptionError, match="'skip' is no choice here; there are: branch or select"):
        Schedule(conditions={"cost_0": "skip"})


def test_image_warping_does_not_branch_on_the_cpu() -> None:
    schedule = whole_schedule(arap_energy().problem, "float32", Target.CPU)
    assert not any(c.branched for c in schedule.conditions)
