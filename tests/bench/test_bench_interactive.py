"""The benchmark of the demos runs on a small mesh, and finds what grows, compiles and fails. Nothing asks for speed."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bench import interactive
from bench.interactive import Demo
from problems.demos.solving import Step


class Greedy:
    """Work that keeps more memory at each step, and fails at one of them."""

    def __init__(self, fails_at: int = 1000) -> None:
        self.kept: list[bytearray] = []
        self._fails_at = fails_at

    def change(self, inputs: Mapping[Hashable, Any]) -> None:
        assert inputs

    def step(self) -> Step:
        self.kept.append(bytearray(b"1") * 2**20)
        if len(self.kept) == self._fails_at:
            raise ArithmeticError("too much")
        return Step(1.0, 3, finished=True)

    def recover(self) -> None:
        self.kept.clear()


def test_the_program_leaves_json_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(interactive.DEMOS, "mesh", Demo(lambda: interactive.mesh(2), 1e-3))
    interactive.main(["mesh", "--seconds", "0.2", "--steps", "20", "--output", str(tmp_path)])
    rows = {r["what"]: r for r in json.loads((tmp_path / "interactive.json").read_text())["rows"]}
    assert rows["solves a second"]["met"]
    assert 0 < rows["latency, median"]["value"] <= rows["latency, 99 %"]["value"]
    assert rows["libraries compiled after the first step"]["value"] == 0
    assert rows["memory"]["value"] > 1
    assert "asked for" in capsys.readouterr().out


@pytest.mark.parametrize(
    "demo",
    [Demo(lambda: interactive.image(48), 1e-3), Demo(lambda: interactive.flow(48), None, steps=1000)],
    ids=["image", "flow"],
)
def test_pictures_are_measured(demo: Demo) -> None:
    solves, processor = interactive.rate("picture", demo, 0.1)
    assert solves.met is (None if demo.wanted is None else True)
    assert processor.value > 0
    assert all(row.value > 0 for row in interactive.latency("picture", demo, 0.2))


def test_a_solve_that_ends_sooner_is_one() -> None:
    work = Greedy()
    _, memory, compiled = interactive.session("greedy", Demo(lambda: (work, lambda n: {"n": n}), None, steps=7), 20)
    assert len(work.kept) == 20
    assert memory.value > 0
    assert compiled.met


def test_the_way_through_a_browser_is_left_out_visibly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interactive, "missing", lambda: "chromium")
    assert not [*interactive.in_browser("mesh", interactive.DEMOS["mesh"], 1.0)]
    assert "mesh: the way through a browser is not measured: there is no chromium here" in capsys.readouterr().err


def test_memory_that_grows_is_found() -> None:
    grown, *_ = interactive.session("greedy", Demo(lambda: (Greedy(), lambda n: {"n": n}), 1.0), 100)
    assert grown.value > 2
    assert not grown.met


def test_a_solve_that_fails_is_no_latency() -> None:
    demo = Demo(lambda: (Greedy(fails_at=22), lambda n: {"n": n}), 1.0)
    with pytest.raises(RuntimeError, match="greedy: a solve has failed while it was measured: ArithmeticError: too"):
        [*interactive.latency("greedy", demo, 0.3)]


def test_what_cannot_be_measured_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, why in (
        (["house"], "no demo 'house'; there are: mesh, image, shading, flow"),
        (["--steps", "3"], "--steps must be 10"),
    ):
        with pytest.raises(SystemExit):
            interactive.main(arguments)
        assert why in capsys.readouterr().err


def test_shading_is_measured_through_all_its_sizes() -> None:
    work, drag = interactive.shading(96)
    demo = interactive.DEMOS["shading"]
    seen: list[int] = []

    class Watched:
        """The same work, whose levels are noted."""

        def change(self, inputs: Mapping[Hashable, Any]) -> None:
            work.change(inputs)

        def step(self) -> Step:
            step = work.step()
            seen.append(work.level)  # type: ignore[attr-defined]
            return step

        def recover(self) -> None:
            work.recover()

    for row in interactive.session("shading", Demo(lambda: (Watched(), drag), 1.0, steps=demo.steps), 12):
        assert row.value >= 0
    assert seen == [0, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1]


def test_the_scan_is_of_the_size_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactive, "data_file", lambda _: None)
    scan = interactive.large_scan()
    assert scan.data["D"].shape == scan.data["across"].shape == (480, 640)
    assert scan.data["centre_y"] == 240
