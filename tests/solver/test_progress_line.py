"""The line that tells how far a long solve has come."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from dataclasses import replace

import pytest

from optpy.solver import Minimizer, SolveOptions
from optpy.solver.iteration import IterationRecord
from optpy.solver.progress_line import ProgressLine
from tests.support.known_problems import rosenbrock

LONG = IterationRecord(3, 2.5, 1.0, 0.125, 1.0, 1.0, 10.0, 40, None, True, 1.0, 3.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")


def written(record: IterationRecord, verbose: int, stream: io.StringIO) -> str:
    with redirect_stderr(stream), ProgressLine(50, verbose) as line:
        line.show(record)
    return stream.getvalue()


def test_a_long_solve_is_told_of_and_the_line_goes() -> None:
    text = written(LONG, 0, Terminal())
    assert "iteration 3 of at most 50: cost 2.5, max |gradient| 0.125, 40 linear iterations, 3 s" in text
    assert text.rstrip("\x1b[?25h").endswith("\x1b[2K")  # erased


def test_a_short_solve_is_not() -> None:
    assert written(replace(LONG, total_time=1.9), 0, Terminal()) == ""


def test_nothing_is_told_twice() -> None:
    assert written(LONG, 2, Terminal()) == ""


def test_files_stay_silent() -> None:
    assert written(LONG, 0, io.StringIO()) == ""


def test_a_terminal_that_has_gone_stops_nothing() -> None:
    terminal = Terminal()
    with redirect_stderr(terminal):
        with ProgressLine(50, 0) as line:
            terminal.close()
            line.show(LONG)
        ProgressLine(50, 0).show(LONG)


def test_a_solve_shows_its_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[int] = []
    monkeypatch.setattr(ProgressLine, "show", lambda _, record: shown.append(record.iteration))
    summary = Minimizer(rosenbrock().problem(), SolveOptions()).run()
    assert shown == [r.iteration for r in summary.iterations[1:]]
