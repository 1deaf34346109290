"""The programs that measure schedules: what is switched off is off, and nothing stays switched off."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import optpy as op
from bench import ablation, best_schedule
from bench.__main__ import CAN_PLOT, CASES
from bench.decisions import chosen, parser
from optpy.api.pipeline import derive
from optpy.ir import Group
from optpy.kernels.codegen.program import ProgramListing


def lines(listing: ProgramListing, group: Group = Group.PRODUCT) -> int:
    return sum(listing.functions[n].count("\n") for n in listing.groups[group])


def steep() -> op.Energy:
    """Something to do for every step: products, a square in two forms, quotients by one number, a param, a Func."""
    H, W = op.dims("H W")
    i, j = op.indices(H, W)
    X, A, w = op.Unknown("X", (H, W)), op.Array("A", (H, W)), op.params("w")
    Steep = op.Func("Steep", (H, W))
    Steep[i, j] = op.exp(op.sin(X[i, j]) * X[i, j + 1] + A[i, j] * X[i, j]) / op.sqrt(1 + X[i, j] ** 2)
    x, a = X[i, j], A[i, j]
    return op.Energy(
        fit=op.sin(w) * op.exp(X[i, j]) / (1 + A[i, j] ** 2), square=op.sin((x + a) ** 2),
        written_out=a * op.sin(x * x + 2 * x * a + a * a), across=Steep[i, j] - Steep[i, j + 1],
        down=Steep[i, j] - Steep[i + 1, j],
    )  # fmt: skip


def test_each_step_changes_the_program_and_the_last_is_the_whole_compiler() -> None:
    problem = steep().problem
    whole = derive(problem, "float32").listing
    made: list[ProgramListing] = []
    for n in range(len(ablation.STEPS)):
        with ablation.only(ablation.STEPS[: n + 1]) as schedule:
            made.append(derive(problem, "float32", schedule).listing)
    again = derive(problem, "float32").listing  # nothing is left off
    assert [made[-1].source == whole.source, again.source == whole.source] == [True, True]
    assert len({listing.source for listing in made[:7]}) == 7
    assert lines(made[0]) > lines(made[6])
    assert [Group.PRECOMPUTE in listing.groups for listing in made] == [False] * 5 + [True] * 5
    assert [Group.JACOBIAN in listing.groups for listing in made] == [False] * 6 + [True] * 4


@pytest.mark.native
def test_an_ablation_leaves_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "ENOUGH", 0.0)
    ablation.main(["laplacian", "--size", "24", "--output", str(tmp_path)])
    record = json.loads((tmp_path / "laplacian_ablation.json").read_text())
    assert [row["optimisation"] for row in record["rows"]] == [step.name for step in ablation.STEPS]
    assert all(row["gradient"] > 0 and row["product"] > 0 for row in record["rows"])
    assert record["size"] == 24
    assert (tmp_path / "laplacian_ablation.png").exists() is CAN_PLOT


@pytest.mark.native
def test_the_automatic_schedule_is_set_beside_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_schedule, "ENOUGH", 0.0)
    row = best_schedule.measure("laplacian", 24, "float32", 0.0)
    assert (row.differs, row.tried) == ((), 0)  # no time to try anything
    assert row.best == row.automatic > 0 < row.inlined


def test_what_is_wanted_of_the_automatic_schedule() -> None:
    beside = best_schedule.Beside
    assert beside(2.0, 1.05, 1.0, (), 0).verdict == "as wanted"
    assert beside(2.0, 1.2, 1.0, (), 0).verdict == "not within 10 % of the best"
    assert beside(1.0, 1.05, 1.0, (), 0).verdict == "slower than inlined"


@pytest.mark.parametrize("name", sorted({*best_schedule.PROBLEMS} - {*CASES}))
def test_every_problem_has_data(name: str) -> None:
    energy, data = best_schedule.subject(name)
    reads = {*(f.name for f in energy.fields), *(g.name for g in energy.graphs), *(p.name for p in energy.params)}
    found = data(16)
    assert reads <= set(found)
    assert all(np.size(value) for value in found.values())


def test_all_cases_are_meant_where_none_is_named() -> None:
    settings = parser("bench.schedules", None).parse_args(["--size", "8"])
    assert [case.name for case, _ in chosen(settings)] == list(CASES)
    (one,) = chosen(parser("bench.schedules", None).parse_args(["poisson"]))
    assert one[0].name == "poisson"
    with pytest.raises(SystemExit):
        parser("bench.schedules", None).parse_args(["poison"])
