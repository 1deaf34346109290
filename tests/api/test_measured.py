"""schedule="measured", with times that are made up: the best is taken, kept, and found again without measuring."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api import measured
from optpy.api.compiled import CompiledEnergy
from optpy.api.device_choice import DeviceChoice
from optpy.api.problem import CompiledProblem
from optpy.ir import Extent, Group
from optpy.kernels.runtime.cuda.device import Device
from optpy.scheduling.costs import PRODUCTS

pytestmark = pytest.mark.native


N = op.dims("N")
n = op.indices(N)
X, A = op.Unknown("X", (N,)), op.Array("A", (N,))


@pytest.fixture(scope="module", autouse=True)
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache for all tests here, so that what no energy changes is compiled once."""
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPTPY_CACHE_DIR", str(folder))
        yield folder


def made(weight: float) -> op.Energy:
    """A new one each time, so that no solver is remembered; of a weight for each test, so that none is kept."""
    return op.Energy(smooth=op.vector(weight * (X[n] - A[n]), X[n] ** 2 * (X[n] - X[n + 1])))


def data(size: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(size)
    return dict(X=rng.normal(size=size), A=rng.normal(size=size))


def stores(problem: CompiledProblem) -> bool:
    return Group.JACOBIAN in problem.executor.groups


@pytest.fixture
def races(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool]]:
    """All races: whether each of the two stores J. What stores is faster, by a clock that nobody reads."""
    found: list[tuple[bool, bool]] = []

    def race(one: CompiledProblem, other: CompiledProblem) -> tuple[float, float]:
        found.append((stores(one), stores(other)))
        first, second = (0.001 if stored else 0.002 for stored in found[-1])
        return first, second

    monkeypatch.setattr(measured, "race", race)
    monkeypatch.setattr(measured, "SECONDS", float("inf"))
    return found


def measured_by(energy: op.Energy, size: int = 5) -> tuple[op.Solver, op.SolveResult]:
    solver = op.compile(energy, "cpu", schedule="measured")
    return solver, solver.solve(data(size), threads=1)


def kept(root: Path) -> Path:
    """What was kept last."""
    return max(root.glob("schedule-*/schedule.txt"), key=lambda file: file.stat().st_mtime_ns)


def test_the_best_is_taken_and_found_again(root: Path, races: list[tuple[bool, bool]]) -> None:
    solver, result = measured_by(made(1.0))
    assert races == [(False, False), (False, True), *[(True, True)] * 3]  # Jp, J, both, J^T J, with J
    smooth = next(r for r in solver.schedule.residuals if r.label == "smooth")
    assert smooth.choice == "J"
    assert smooth.reason == "measured: 1 ms, against 2 ms inline, 2 ms Jp, 1 ms J, Jp, 1 ms JTJ, 1 ms J, JTJ"
    assert result.cost == pytest.approx(op.solve(made(1.0), data(), device="cpu").cost, rel=1e-9)
    races.clear()
    again, same = measured_by(made(1.0))
    assert races == []
    assert (again.schedule, str(again.schedule)) == (solver.schedule, str(solver.schedule))
    assert same.cost == result.cost
    assert result.timing.measure == solver.timing.measure > 0 == same.timing.measure
    assert "measure schedules" in result.report()
    assert "measure schedules" not in same.report()
    assert op.Schedule.parse(kept(root).read_text()) == solver.schedule


def test_it_is_measured_again_for_other_sizes_precisions_and_threads(races: list[tuple[bool, bool]]) -> None:
    energy = made(2.0)

    def measures(run: Callable[[], object]) -> bool:
        races.clear()
        run()
        return bool(races)

    assert measures(lambda: measured_by(energy))
    assert not measures(lambda: measured_by(energy, 6))  # of one power of two
    assert measures(lambda: measured_by(energy, 20))
    assert not measures(lambda: measured_by(energy))
    single = dict(data(), X=data()["X"].astype(np.float32))
    assert measures(lambda: op.solve(energy, single, device="cpu", schedule="measured", threads=1))
    assert measures(lambda: op.solve(energy, data(), device="cpu", schedule="measured", threads=2))
    assert measured.size_class({Extent("H"): 5, Extent("W"): 16}, 2) == "H 2**3, W 2**5, 2 threads"


def test_a_session_keeps_the_schedule_that_it_began_with(races: list[tuple[bool, bool]]) -> None:
    session = op.compile(made(3.0), "cpu", schedule="measured").start(data(), threads=1)
    races.clear()
    session.update(**data(40))
    session.run()
    assert races == []
    assert session.status.finished


def test_what_is_kept_but_damaged_is_measured_again(root: Path, races: list[tuple[bool, bool]]) -> None:
    measured_by(made(4.0))
    file = kept(root)
    whole = file.read_text()
    for text in (b"cut off", b"residual smoth: J", b"\xff"):
        file.write_bytes(text)
        if text != b"cut off":  # else the cache sees it by itself
            file.with_suffix(".sha256").write_text(sha256(text).hexdigest())
        races.clear()
        measured_by(made(4.0))
        assert races
        assert file.read_text() == whole


def test_what_is_kept_makes_room_as_all_else_does(
    root: Path, races: list[tuple[bool, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = root / f"schedule-{64 * '0'}"
    race = measured.race

    def race_and_grow_old(*both: CompiledProblem) -> tuple[float, float]:
        old.mkdir(exist_ok=True)
        os.utime(old, (0, 0))
        return race(*both)

    monkeypatch.setattr(measured, "race", race_and_grow_old)
    monkeypatch.setenv("OPTPY_CACHE_MAX", "1K")
    measured_by(made(8.0))
    assert races
    assert not old.exists()
    assert kept(root).is_file()


def test_before_there_was_data_there_is_no_schedule() -> None:
    solver = op.compile(made(5.0), "cpu", np.float32, schedule="measured")
    for shown in (lambda: solver.schedule, lambda: solver.source("applyJTJ")):
        with pytest.raises(op.OptionError, match=r"once there was data: solver\.solve"):
            shown()


def test_what_is_raced_are_the_routines_that_a_solve_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake clock: each routine takes as many seconds as its name has letters."""
    runs: list[Group] = []

    def benchmark(self: CompiledProblem, group: Group, repeat: int) -> float:
        runs.append(group)
        return float(len(group))

    monkeypatch.setattr(CompiledProblem, "benchmark", benchmark)
    monkeypatch.setattr(measured, "SECONDS", float("inf"))
    solver, _ = measured_by(made(6.0))
    assert set(runs) == {Group.COST, Group.JACOBIAN, Group.GRADIENT, Group.PRODUCT}
    seconds = len("cost") + len("evalJTF") + PRODUCTS * len("applyJTJ")
    smooth = next(r for r in solver.schedule.residuals if r.label == "smooth")
    assert smooth.choice == "inline"  # jacobian is one routine more
    assert smooth.reason.startswith(f"measured: {1e3 * seconds:.4g} ms, against ")
    assert f" {1e3 * (seconds + 8):.4g} ms J, " in smooth.reason


@pytest.mark.deep
@pytest.mark.emulated
def test_on_a_gpu(gpu: Device, races: list[tuple[bool, bool]]) -> None:
    compiled = CompiledEnergy(made(7.0).problem, DeviceChoice(gpu, "as asked"), "float64", {}, "measured")
    solver = op.Solver(compiled)
    solved = solver.solve(data())
    assert races[:5] == [(False, False), (False, True), *[(True, True)] * 3]  # then sweeps
    assert next(r for r in solver.schedule.residuals if r.label == "smooth").choice == "J"
    assert solver.schedule.sweeps
    assert solved.cost == pytest.approx(op.solve(made(7.0), data(), device="cpu").cost, rel=1e-9)
    races.clear()
    again = op.Solver(CompiledEnergy(made(7.0).problem, DeviceChoice(gpu, "otherwise"), "float64", {}, "measured"))
    again.solve(data())
    assert (races, again.schedule) == ([], solver.schedule)


def test_a_start_that_is_not_finite_is_the_error_of_every_solve() -> None:
    wrong = data()
    wrong["X"][2] = 1e200
    with pytest.raises(op.DataError, match="smooth"):
        op.solve(made(6.0), wrong, device="cpu", schedule="measured")
