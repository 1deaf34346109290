"""The motion between two frames, found step by step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from problems.demos.flow_work import FlowChoices, FlowWork
from problems.optical_flow import Film, coarse_to_fine, turning

pytestmark = pytest.mark.applications

FILM = turning(64)


@pytest.fixture
def work() -> FlowWork:
    return FlowWork(FILM)


def solve(work: FlowWork) -> list[tuple[int, int]]:
    """The levels and rounds of all steps."""
    passed = []
    for _ in range(1000):
        step = work.step()
        passed.append((work.level, work.round))
        if step.finished:
            return passed
    raise AssertionError("it does not end")


def test_the_motion_is_found_from_coarse_to_fine_as_in_one_go(work: FlowWork) -> None:
    passed = solve(work)
    assert passed == sorted(passed)
    assert {level for level, _ in passed} == set(range(len(work.levels)))
    assert {r for _, r in passed} == {0, 1, 2}
    *_, last = coarse_to_fine(FILM, device="cpu", dtype="float32", method="lm", max_iterations=5)
    np.testing.assert_allclose(work.flow, last.flow, atol=0.02)
    assert FILM.error(work.whole) < 0.1
    assert work.standing == "3 of 3: 64 x 64, round 3 of 3"
    assert work.step().finished  # nothing is left: it stays
    assert FILM.error(work.whole) < 0.1


def test_motions_of_small_pictures_are_told_in_pixels_of_the_film(work: FlowWork) -> None:
    for _ in range(15):
        work.step()
    assert work.level == 0
    assert work.flow.shape == (27, 27, 2)
    assert work.in_film.shape == (27, 27, 2)
    assert work.whole.shape == (64, 64, 2)
    np.testing.assert_allclose(work.in_film, work.flow * 64 / 27, rtol=1e-5)
    assert FILM.error(work.whole) < 0.5 * FILM.error(np.zeros((64, 64, 2)))


def test_whatever_comes_the_search_begins_anew(work: FlowWork) -> None:
    solve(work)
    work.change({"w_smooth": 50.0, "rounds": 1, "method": "gn"})
    assert work.choices == FlowChoices(w_smooth=50.0, rounds=1, method="gn")
    assert (work.level, work.round) == (0, 0)
    assert not work.flow.any()
    assert {r for _, r in solve(work)} == {0}
    smooth = np.abs(np.diff(work.flow, axis=0)).mean()
    work.change({"w_smooth": 0.5, "restart": True})
    solve(work)
    assert np.abs(np.diff(work.flow, axis=0)).mean() > smooth


@pytest.mark.parametrize("given", [{"w_smooth": math.nan}, {"s_fit": 0.0}, {"rounds": 0}, {"w_smooth": -1.0}])
def test_choices_that_cannot_be_are_refused(work: FlowWork, given: dict[Any, Any]) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        work.change(given)
    assert work.choices == FlowChoices()


def test_frames_that_are_one_and_the_same_have_no_motion() -> None:
    still = Film(FILM.first, FILM.first)
    work = FlowWork(still)
    solve(work)
    assert np.abs(work.flow).max() < 0.01


def test_colours_and_small_frames_are_no_trouble() -> None:
    rng = np.random.default_rng(0)
    work = FlowWork(Film(rng.random((9, 12, 3)), rng.random((9, 12, 3))))
    assert work.levels == [(9, 12)]
    solve(work)
    assert np.isfinite(work.whole).all()


def test_frames_that_cannot_be_used_end_the_program_with_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("viser")
    from problems.demos.flow import main

    def run(*arguments: str) -> str:
        shown = CliRunner().invoke(main, list(arguments))
        assert shown.exit_code == 1
        return shown.output

    one, other = str(tmp_path / "one.png"), str(tmp_path / "other.png")
    Image.new("RGB", (30, 20)).save(one)
    Image.new("RGB", (40, 20)).save(other)
    said = run("--first", one, "--second", other)
    assert "the frames must be of one size: in pixels, one.png 30 x 20 and other.png 40 x 20" in said
    assert "two frames are needed" in run("--first", one)
    assert "there is no file" in run("--first", one, "--second", str(tmp_path / "none.png"))
    (tmp_path / "other.png").write_text("no picture")
    assert "no picture that Pillow reads" in run("--first", one, "--second", other)
