"""The thread that solves beside an interface."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Hashable, Mapping
from typing import Any

import pytest

from problems.demos.solving import Frame, SolvingThread, Step

SOON = 30.0
"""Seconds after which a test gives up."""


class Held:
    """Work whose steps wait until they are let go, and which ends after some."""

    def __init__(self, steps: int = 1, fails: Mapping[str, Exception] | None = None) -> None:
        self.seen: list[dict[Hashable, Any]] = []
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.recovered = 0
        self._steps = self._left = steps
        self._fails = fails or {}

    def change(self, inputs: Mapping[Hashable, Any]) -> None:
        self.seen.append(dict(inputs))
        self._left = self._steps
        for name, error in self._fails.items():
            if name in inputs:
                raise error

    def step(self) -> Step:
        self.begun.release()
        assert self.go.acquire(timeout=SOON)
        self._left -= 1
        return Step(2.0, 5, finished=self._left <= 0, message="done" if self._left <= 0 else "")

    def recover(self) -> None:
        self.recovered += 1


class Shown:
    """The frames that were shown."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._one = threading.Semaphore(0)

    def __call__(self, frame: Frame) -> None:
        self.frames.append(frame)
        self._one.release()

    def wait(self) -> Frame:
        assert self._one.acquire(timeout=SOON)
        return self.frames[-1]


def test_the_newest_input_wins_and_none_is_lost() -> None:
    work, shown = Held(), Shown()
    with SolvingThread(work, shown) as thread:
        assert work.begun.acquire(timeout=SOON)  # the first step runs while inputs come
        for n in range(20):
            thread.put({"handle": n, ("other", n % 3): n})
        work.go.release(2)
        shown.wait()
        shown.wait()
    assert work.seen == [{"handle": 19, ("other", 0): 18, ("other", 1): 19, ("other", 2): 17}]
    assert shown.frames[0].latency is None
    assert shown.frames[1].latency is not None
    assert shown.frames[1].latency >= shown.frames[1].seconds > 0


def test_steps_go_on_without_inputs_until_the_work_is_done() -> None:
    work, shown = Held(steps=3), Shown()
    work.go.release(10)
    with SolvingThread(work, shown) as thread:
        for _ in range(3):
            shown.wait()
        assert len(shown.frames) == 3
        thread.put({"again": 1})
        shown.wait()
    assert [f.message for f in shown.frames[:3]] == ["", "", "done"]
    assert work.seen == [{"again": 1}]


def test_a_step_that_fails_is_told_and_the_next_input_goes_on() -> None:
    work, shown = Held(fails={"bad": ValueError("no such vertex")}), Shown()
    work.go.release(10)
    with SolvingThread(work, shown) as thread:
        shown.wait()
        thread.put({"bad": 1})
        failed = shown.wait()
        thread.put({"good": 1})
        good = shown.wait()
    assert failed.failed
    assert failed.message == "ValueError: no such vertex"
    assert math.isnan(failed.cost)
    assert work.recovered == 1
    assert not good.failed
    assert good.cost == 2.0


def test_rates_are_those_of_the_steps() -> None:
    work, shown = Held(steps=2), Shown()
    work.go.release(10)
    with SolvingThread(work, shown):
        shown.wait()
        last = shown.wait()
    seconds = sum(f.seconds for f in shown.frames)
    assert last.frames_per_second == pytest.approx(2 / seconds)
    assert last.linear_iterations_per_second == pytest.approx(10 / seconds)


def test_drawing_is_part_of_the_numbers() -> None:
    work, shown, drawn = Held(), Shown(), list[float]()
    work.go.release(10)

    def draw() -> None:
        assert not shown.frames  # it is drawn before its numbers are shown
        began = time.perf_counter()
        threading.Event().wait(0.05)
        drawn.append(time.perf_counter() - began)

    thread = SolvingThread(work, shown, draw)
    thread.put({"handle": 1})
    with thread:
        frame = shown.wait()
    assert frame.latency is not None
    assert frame.latency >= frame.seconds >= drawn[0]
    assert frame.frames_per_second == pytest.approx(1 / frame.seconds)


def test_the_end_waits_for_the_step_that_runs() -> None:
    work, shown = Held(steps=100), Shown()
    thread = SolvingThread(work, shown)
    with thread:
        assert work.begun.acquire(timeout=SOON)
        thread.put({"late": 1})
        work.go.release()
    assert len(shown.frames) <= 2
    assert not [t for t in threading.enumerate() if t.name == "solving"]
