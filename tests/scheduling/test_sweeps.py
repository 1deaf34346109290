"""Sweeps on GPUs: the points that a thread takes at a time, decided by what registers hold, and by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

import optpy as op
from optpy.api.device_choice import DeviceChoice
from optpy.api.pipeline import derive, derive_cuda
from optpy.api.plan import build
from optpy.errors import OptionError
from optpy.ir import Schedule, Target, VectorSweep, loops
from optpy.kernels.runtime.cuda.device import Device
from tests.support.multigrid_cases import bending, values_of
from tests.support.operator_checks import check_everything

W = op.dims("W")
i = op.indices(W)


def sweeps(energy: op.Energy, dtype: str) -> dict[str, VectorSweep]:
    return {x.routine: x for x in derive_cuda(energy.problem, dtype).schedule.sweeps}


def widths(energy: op.Energy, given: Schedule) -> dict[str, int]:
    """Of each kernel that takes vectors."""
    listing = derive_cuda(energy.problem, "float32", given).listing
    nests = ((f.name, s) for (f,) in listing.loops for s in f.body)
    return {name: s.width for name, s in nests if isinstance(s, loops.Vectors)}


def test_a_load_brings_four_numbers_or_two_in_double() -> None:
    assert sweeps(bending(), "float32")["pcg_update_0"].points == 4
    found = sweeps(bending(), "float64")["pcg_update_0"]
    assert found.points == 2
    assert found.reason.endswith(", and 64 may be in registers; a load brings 2 at most")


def test_what_has_many_numbers_at_a_point_takes_fewer_points() -> None:
    X = op.Unknown("X", (W,), 12)
    of_many = sweeps(op.Energy(r=X[i] - X[i + 1]), "float32")["pcg_start_0"]
    assert of_many.points == 1
    assert str(of_many) == "pcg_start_0: 1"


def test_what_reads_its_neighbours_is_no_sweep_and_nothing_is_on_the_cpu() -> None:
    assert not any(name.startswith("applyJTJ") for name in sweeps(bending(), "float32"))
    assert derive(bending().problem, "float32").schedule.sweeps == ()


def test_sweeps_by_hand_are_those_of_the_program() -> None:
    energy = bending()
    decided = derive_cuda(energy.problem, "float32").schedule
    assert widths(energy, decided) == {x.routine: x.points for x in decided.sweeps}
    halved = replace(decided, sweeps=(VectorSweep("pcg_update_0", 2, "by hand"),))
    assert widths(energy, halved) == widths(energy, decided) | {"pcg_update_0": 2}
    alone = Schedule(sweeps={"*": 1})
    assert widths(energy, alone) == dict.fromkeys(widths(energy, decided), 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (VectorSweep("applyJTJ_0", 4), "applyJTJ_0: 4': its kernel touches more than its own point"),
        (VectorSweep("pcg_update_0", 3), "threads take 1, 2 or 4"),
        (VectorSweep("pcg_update_0", 4), "a load brings 2"),
        (VectorSweep("pcg_updates_0", 1), "no sweep 'pcg_updates_0'; there are: .*; did you mean 'pcg_update_0'"),
    ],
)
def test_sweeps_that_cannot_be_are_refused(wrong: VectorSweep, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        derive_cuda(bending().problem, "float64", Schedule(sweeps=(wrong,)))


@pytest.mark.parametrize("points", [None, 1, 2])
def test_any_number_of_points_computes_the_same(gpu: Device, points: int | None) -> None:
    energy = bending()
    decided = derive_cuda(energy.problem, "float64", (), Target.DETERMINISTIC_GPU).schedule
    given = decided.sweeps if points is None else tuple(replace(x, points=points) for x in decided.sweeps)
    solver = build(energy, "float64", replace(decided, sweeps=given), DeviceChoice(gpu, "as asked", True))
    check_everything(energy, values_of(energy, (6, 35)), solver=solver)
