"""The search for wrong successes: its verdicts on made-up results, its minima, and a run on a few problems."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.search import __main__ as program
from bench.search import report, solving
from bench.search.family import DTYPES
from bench.search.minimum import Landscape
from bench.search.solving import FAMILIES, Ways
from bench.search.verdict import Level, Nearby, Outcome, Run, Verdict, judge


def outcome(value: float, success: bool = True, is_error: bool = False) -> Outcome:
    return Outcome(success, value, "STATUS", 3, is_error)


FLAT = Nearby(1e-5, [3.0, 3.0])
SLOPE = Nearby(0.5, [3.0, 3.0])
LOWER = Nearby(1e-5, [3.0, 2.0])
BACK = Nearby(1e-5, [1.0])


@pytest.mark.parametrize(
    ("made_up", "nearby", "verdict"),
    [
        (outcome(1.0), LOWER, "right"),
        (outcome(1.0009), LOWER, "right"),
        (outcome(1.0011), BACK, "WRONG"),
        (outcome(3.0), FLAT, "other minimum"),
        (outcome(3.0), SLOPE, "WRONG"),
        (outcome(3.0), LOWER, "WRONG"),
        (outcome(np.nan), LOWER, "WRONG"),
        (outcome(np.inf), LOWER, "WRONG"),
        (outcome(1.0009, success=False), LOWER, "right, no success"),
        (outcome(3.0, success=False), FLAT, "failed"),
        (outcome(np.nan, success=False), FLAT, "failed"),
        (outcome(1.0, success=False, is_error=True), FLAT, "error"),
    ],
)
def test_verdicts(made_up: Outcome, nearby: Nearby, verdict: Verdict) -> None:
    assert judge(made_up, Level(1.0, 1e-12, "float64"), lambda: nearby) == verdict


@pytest.mark.parametrize(
    ("value", "dtype", "verdict"),
    [
        (9e-28, "float64", "right"),
        (1e-26, "float64", "short"),
        (2.9e-10, "float64", "WRONG"),
        (2.8e-10, "float64", "short"),
        (9e-28, "float32", "right"),
        (1e-26, "float32", "WRONG"),
    ],
)
def test_a_minimum_of_zero_is_measured_by_rounding(value: float, dtype: str, verdict: Verdict) -> None:
    assert judge(outcome(value), Level(0.0, 1e-27, dtype), lambda: Nearby(0.5, [0.0])) == verdict


def test_only_what_could_be_zero_is_short() -> None:
    assert not Level(1.0, 1e-9, "float64").is_short(2.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", list(FAMILIES))
def test_a_problem_is_the_same_each_time_and_in_the_dtype(name: str, dtype: str) -> None:
    family = FAMILIES[name]
    drawn, again = family.problem(3, dtype), family.problem(3, dtype)
    assert drawn.data.keys() == again.data.keys()
    for key, x in drawn.data.items():
        np.testing.assert_array_equal(x, again.data[key])
        if np.asarray(x).dtype.kind == "f":
            np.testing.assert_array_equal(x, np.asarray(x).astype(dtype))
    assert np.isfinite(family.value(drawn.data))
    assert {u.name for u in family.energy.unknowns} == set(drawn.truth)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["linear", "clock", "springs", "spline", "poisson"])
def test_the_minimum_of_a_linear_problem_is_that_of_a_direct_solve(name: str, seed: int) -> None:
    family = FAMILIES[name]
    drawn = family.problem(seed, "float64")
    landscape = Landscape(family, drawn.data)
    F, J = landscape.linearised(drawn.truth)
    J = J / np.maximum(np.linalg.norm(J, axis=0), 1e-300)
    F = F + J @ np.linalg.lstsq(J, -F, rcond=1e-14)[0]
    start = {name: drawn.data[name] for name in drawn.truth}
    for x in (drawn.truth, start):
        assert landscape.value(landscape.refined(x)) == pytest.approx(0.5 * F @ F, rel=1e-6, abs=1e-24)


@pytest.mark.parametrize("name", ["exponentials", "circle", "distances"])
def test_the_minimum_is_that_of_scipy(name: str) -> None:
    from scipy.optimize import least_squares

    family = FAMILIES[name]
    drawn = next(p for p in (family.problem(s, "float64") for s in range(20)) if family.value(p.data | p.truth) > 1e-12)
    landscape = Landscape(family, drawn.data)

    def there(z: np.ndarray) -> dict[str, np.ndarray]:
        return landscape.moved(drawn.truth, z)

    n = landscape.linearised(drawn.truth)[1].shape[1]
    peer = least_squares(
        lambda z: landscape.linearised(there(z))[0], np.zeros(n), x_scale="jac", xtol=1e-14, ftol=1e-14
    )
    assert landscape.value(landscape.refined(drawn.truth)) <= peer.cost * (1 + 1e-6)


@pytest.mark.parametrize("name", ["reweighted-line", "reweighted-grid"])
def test_where_weights_are_held_the_gradient_is_that_of_the_objective(name: str) -> None:
    family = FAMILIES[name]
    drawn = family.problem(0, "float64")
    landscape = Landscape(family, drawn.data)
    x = {key: np.asarray(drawn.data[key]) for key in drawn.truth}
    F, J = landscape.linearised(x)
    direction = np.asarray(np.random.default_rng(0).normal(size=J.shape[1]), np.float64)
    h = 1e-6
    up, down = (landscape.value(landscape.moved(x, np.asarray(sign * h * direction))) for sign in (1, -1))
    assert (J.T @ F) @ direction == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-6 * landscape.value(x))


def test_a_saddle_is_no_minimum() -> None:
    # A turn by half a circle away from the best one: the gradient vanishes there, too.
    family = FAMILIES["icp-plane"]
    drawn = family.problem(0, "float64")
    landscape = Landscape(family, drawn.data)
    best = landscape.refined(drawn.truth)
    P, Q = drawn.data["P"], drawn.data["Q"]
    turn = -best["pose"][:2]
    R = np.array([[turn[0], -turn[1]], [turn[1], turn[0]]])
    saddle = {"pose": np.concatenate([turn, Q.mean(0) - R @ P.mean(0)])}
    assert landscape.cosine(saddle) < 1e-6
    assert min(landscape.found_nearby(saddle)) < 0.9 * landscape.value(saddle)


def test_rounding_is_that_of_the_dtype() -> None:
    family = FAMILIES["linear"]
    drawn = family.problem(0, "float32")
    landscape = Landscape(family, drawn.data)
    x = landscape.refined(drawn.truth)
    rounded = {name: value.astype(np.float32).astype(np.float64) for name, value in x.items()}
    assert 0 < landscape.value(rounded) - landscape.value(x) < landscape.floor(x, "float32")
    assert landscape.floor(x, "float64") == pytest.approx(landscape.floor(x, "float32") / 2.0**58, rel=1e-3)


def test_a_solver_that_stops_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = solving.run_once

    def early(solver: object, landscape: Landscape, data: dict[str, object], *way: str) -> object:
        outcome, _ = run(solver, landscape, data, *way)  # type: ignore[arg-type, misc]
        start = {"b": np.asarray(data["b"], np.float64)}
        return Outcome(outcome.success, landscape.value(start), outcome.status, 0), start

    ways = Ways(["float64"], ["lm"], ["auto"])
    assert {r.verdict for r in solving.search("linear", range(3), ways)} <= {"right", "short"}
    monkeypatch.setattr(solving, "run_once", early)
    assert {r.verdict for r in solving.search("linear", range(3), ways)} == {"WRONG"}


def test_the_program_runs_and_leaves_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--only", "linear", "--count", "2", "--processes", "1", "--output", str(tmp_path)]
    status = program.main(arguments)
    runs = json.loads((tmp_path / "search.json").read_text())["runs"]
    assert status == int(any(r["verdict"] == "WRONG" for r in runs))
    # A number of its own stands on no grid, and on no vertices.
    applied = ["none", "auto", "jacobi", "block_jacobi"]
    ways = {(d, m, p) for d in DTYPES for m in solving.METHODS for p in applied}
    assert {(r["dtype"], r["method"], r["preconditioner"]) for r in runs} == ways
    assert len(runs) == 2 * len(ways)
    assert "2 problems, 32 runs" in capsys.readouterr().out


def test_wrong_runs_are_listed_with_what_repeats_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    level = Level(1.0, 1e-12, "float32")
    wrong = Run("circle", 7, "float32", "gn", "jacobi", outcome(2.0), level, "WRONG")
    right = Run("circle", 8, "float32", "gn", "jacobi", outcome(1.0), level, "right")
    command = "python -m bench.search --only circle --seed 7 --dtype float32 --method gn --preconditioner jacobi"
    assert [line.split("    #")[0] for line in report.lines([right, wrong])] == [command]
    monkeypatch.setattr(program, "run", lambda settings: [right, wrong])
    assert program.main(["--output", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert command in printed
    assert "1 successes are wrong" in printed
    settings = program.parse(command.split()[3:])
    assert (settings.only, settings.seed, settings.preconditioner) == (["circle"], 7, ["jacobi"])
    monkeypatch.setattr(program, "run", lambda settings: [right])
    assert program.main(["--output", str(tmp_path)]) == 0
