"""Solving beside an interface: inputs come at any time, the newest win, and one thread works on them step by step."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol, Self, final

_REMEMBERED: Final = 30
"""Frames over which rates are means."""


class Work(Protocol):
    """A solve that goes on step by step while its inputs change."""

    def change(self, inputs: Mapping[Hashable, Any]) -> None:
        """Take new values of some inputs.

        Raises:
            Exception: they cannot be taken; the values of before hold.
        """

    def step(self) -> Step:
        """Work for about one frame.

        Raises:
            Exception: the step has failed; `recover` is called next.
        """

    def recover(self) -> None:
        """Go back to where steps do not fail."""


@final
@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of a step.

    Attributes:
        cost: after it.
        linear_iterations: that it has taken.
        finished: nothing is left to do until an input changes.
        message: how the solve has ended, if it has.
    """

    cost: float
    linear_iterations: int
    finished: bool
    message: str = ""


@final
@dataclass(frozen=True, slots=True)
class Frame:
    """The numbers that a panel shows.

    Attributes:
        seconds: of the step, with taking its inputs and drawing what it has become.
        frames_per_second: of the last frames, while there was work.
        linear_iterations_per_second: likewise.
        latency: seconds from the oldest input that the step was the first to see, until it was drawn; None: there was
            none.
        cost: after the step; NaN where it has failed.
        message: how the solve stands, in a sentence.
        failed: the step has raised an exception.
    """

    seconds: float
    frames_per_second: float
    linear_iterations_per_second: float
    latency: float | None
    cost: float
    message: str
    failed: bool = False


@final
class SolvingThread:
    """The one thread that works. It sleeps where the work is done and no input has changed.

    Args:
        work: whose steps; nobody else may touch it meanwhile.
        show: is called in the thread after each step, with its numbers.
        draw: is called in the thread before that: draws what the work has become; its time is part of the numbers.
    """

    def __init__(self, work: Work, show: Callable[[Frame], None], draw: Callable[[], None] | None = None) -> None:
        self._work = work
        self._show = show
        self._draw = draw
        self._changed = threading.Condition()
        self._inputs: dict[Hashable, Any] = {}
        self._first_put: float | None = None
        self._stopping = False
        self._finished = False
        self._past: deque[tuple[float, int]] = deque(maxlen=_REMEMBERED)
        self._thread = threading.Thread(target=self._run, name="solving", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def put(self, inputs: Mapping[Hashable, Any]) -> None:
        """Leave new values of some inputs, from any thread; does not wait. Of several values the last one counts."""
        with self._changed:
            self._inputs |= inputs
            self._first_put = self._first_put or time.perf_counter()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._finished and not self._inputs and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    return
                inputs, self._inputs = self._inputs, {}
                put, self._first_put = self._first_put, None
            self._frame(inputs, put)

    def _frame(self, inputs: Mapping[Hashable, Any], put: float | None) -> None:
        started = time.perf_counter()
        error: Exception | None = None
        step = Step(float("nan"), 0, finished=True)
        try:
            if inputs:
                self._work.change(inputs)
            step = self._work.step()
        except Exception as raised:  # whatever it was, who drags goes on
            error = raised
            self._work.recover()
        self._finished = step.finished
        if self._draw is not None:
            self._draw()
        seconds = time.perf_counter() - started
        self._past.append((seconds, step.linear_iterations))
        worked = sum(s for s, _ in self._past)
        message = step.message if error is None else f"{type(error).__name__}: {error}"
        latency = None if put is None else time.perf_counter() - put
        rate, linear = len(self._past) / worked, sum(n for _, n in self._past) / worked
        self._show(Frame(seconds, rate, linear, latency, step.cost, message, failed=error is not None))
