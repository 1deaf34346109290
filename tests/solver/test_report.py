from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optpy.solver import Minimizer, SolveOptions, SolveResult, Status, Summary
from optpy.solver.report import TABLE_HEADER, table_row
from tests.support.known_problems import linear, rosenbrock


def result_of(summary: Summary, options: SolveOptions, x: Any) -> SolveResult:
    timing = replace(summary.timing, compile=1.5, cache="miss")
    return summary.result({"x": x}, timing, "cpu", options, {"Unknowns": "x: (2,)"})


@pytest.mark.parametrize("method", ["lm", "gn"])
def test_the_report_tells_the_whole_story(method: Any) -> None:
    problem, options = rosenbrock().problem(), SolveOptions(method=method)
    summary = Minimizer(problem, options).run()
    text = result_of(summary, options, problem.x).report()
    rejected = sum(not r.accepted for r in summary.iterations[1:])
    for part in (
        "x: (2,)",
        "Levenberg-Marquardt" if method == "lm" else "Gauss-Newton",
        "preconditioner chosen as it goes",
        "1.5000  (cache miss)",
        f"{summary.initial.total:.6e}",
        f"{summary.final.total:.6e}",
        f"{summary.nit} ({summary.nit - rejected} taken, {rejected} rejected)",
        summary.message,
    ):
        assert part in text
    table = text[text.index(TABLE_HEADER) :].split("\n\n")[0].splitlines()
    assert len(table) == summary.nit + 2
    assert sum(line.endswith("x") for line in table) == rejected
    assert all(line == line.rstrip() for line in text.splitlines())
    assert all(len(line) <= len(TABLE_HEADER) + 2 for line in table)


def test_times_of_queueing_are_called_so() -> None:
    problem, options = linear().problem(), SolveOptions()
    on_cpu = result_of(Minimizer(problem, options).run(), options, problem.x)
    on_gpu = replace(on_cpu, device="cuda")
    labels = [
        [line[2:28].strip() for line in r.report(table=False).splitlines() if line.startswith("  ")]
        for r in (on_cpu, on_gpu)
    ]
    assert labels[0][-4:] == ["residual", "linearise", "linear solve", "solve in all"]
    assert labels[1][-4:] == ["residual, queueing", "linearise, queueing", "linear solve, all waiting", "solve in all"]


def test_the_repr_of_a_result_holds_no_arrays() -> None:
    problem, options = linear().problem(), SolveOptions()
    result = result_of(Minimizer(problem, options).run(), options, problem.x)
    assert "array" not in repr(result)
    assert result.status.name in repr(result)


def test_results_are_compared_by_identity_and_can_be_keys() -> None:
    problem, options = linear().problem(), SolveOptions()
    summary = Minimizer(problem, options).run()
    one, other = (result_of(summary, options, problem.x.copy()) for _ in range(2))
    assert one != other
    assert {one: "one", other: "other"}[one] == "one"


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_progress_goes_to_stdout_as_asked(verbose: Any, capsys: pytest.CaptureFixture[str]) -> None:
    summary = Minimizer(rosenbrock().problem(), SolveOptions(verbose=verbose)).run()
    out = capsys.readouterr().out.splitlines()
    ending = f"{summary.status.name}: {summary.message}"
    table = [TABLE_HEADER, *map(table_row, summary.iterations)]
    assert out == [[], [ending], [*table, ending]][verbose]


def test_a_status_is_a_sentence() -> None:
    assert not Status.RUNNING.finished
    for status in Status:
        assert status.value
        assert not status.success or status.finished
    assert {s for s in Status if s.success} == {
        Status.GRADIENT_TOLERANCE,
        Status.FUNCTION_TOLERANCE,
        Status.PARAMETER_TOLERANCE,
        Status.COSINE_TOLERANCE,
        Status.PRECISION,
    }


def test_times_add_up() -> None:
    summary = Minimizer(rosenbrock().problem(), SolveOptions()).run()
    t = summary.timing
    assert min(t.residual, t.linearise, t.linear_solve) > 0
    assert t.residual + t.linearise + t.linear_solve <= t.total
    assert sum(r.time for r in summary.iterations) == pytest.approx(summary.iterations[-1].total_time)
