"""The way of a drag through a browser is found in what the page and the server have noted; nothing asks for speed."""

from __future__ import annotations

import pytest

from bench import interactive
from bench.interactive import Demo
from bench.page_latency import Shown, answered, missing
from problems import meshes
from problems.demos.mesh_work import MeshWork

SHOWN = [Shown(3, (0.0, 0.0, 0.0)), Shown(4, (1.0, 0.0, 0.0)), Shown(4, (1.5, 0.0, 0.0)), Shown(6, (2.0, 0.0, 0.0))]


def test_an_answer_is_the_first_arrival_that_comes_from_the_event() -> None:
    arrivals = [[90.0, 0.0, 0.0, 0.0], [130.0, 1.5, 0.0, 0.0], [190.0, 2.0, 0.0, 0.0]]
    assert answered([100.0, 140.0, 150.0], [4, 5, 6], arrivals, SHOWN) == pytest.approx([0.03, 0.05, 0.04])


def test_what_was_never_sent_and_what_never_came_are_errors() -> None:
    with pytest.raises(RuntimeError, match="where it was never sent"):
        answered([100.0], [4], [[90.0, 0.0, 0.0, 0.0], [130.0, 7.0, 0.0, 0.0]], SHOWN)
    with pytest.raises(RuntimeError, match="have not arrived"):
        answered([100.0], [6], [[130.0, 1.5, 0.0, 0.0]], SHOWN)


@pytest.mark.demo
@pytest.mark.filterwarnings("ignore")  # those of the server's libraries
@pytest.mark.skipif(missing() != "", reason=f"no {missing()} here")
def test_a_browser_drags_the_mesh() -> None:
    demo = Demo(lambda: interactive.mesh(2), None, browser=lambda: MeshWork(meshes.pebble(2)))
    median, last = interactive.in_browser("mesh", demo, 0.5)
    assert median.what == "in the browser, median"
    assert 0 < median.value <= last.value
