"""Safe points: between linear iterations and between nonlinear steps a solve can be left, by Ctrl-C or at a deadline.

Ctrl-C is held back while a solve runs, and heard at its safe points only. What lies between two of them, such as moving
x or queueing kernels, is never cut in two.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final, final

SLICE: Final = 0.05
"""Seconds at most between two safe points, where native code can be made to return: Ctrl-C is heard as fast."""


class OutOfTime(Exception):
    """Raised where work has not been finished in time."""


def _nothing() -> None:
    """No Ctrl-C is held back."""


@final
@dataclass(frozen=True, slots=True)
class SafePoint:
    """Asked by a long computation between its parts, where it can be left with all that remains whole.

    Attributes:
        deadline: a value of `time.perf_counter()` after which the computation ends by itself; infinite: none.
        poll: raises KeyboardInterrupt where Ctrl-C has come since it was last heard.
    """

    deadline: float = math.inf
    poll: Callable[[], None] = _nothing

    @property
    def seconds_left(self) -> float:
        """Until the deadline, 0 after it; infinite where there is none."""
        return max(self.deadline - time.perf_counter(), 0.0)

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return time.perf_counter() >= self.deadline

    def check(self) -> None:
        """A safe point of work that is of no use unless it is finished.

        Raises:
            OutOfTime: the deadline has passed.
        """
        self.poll()
        if self.is_late:
            raise OutOfTime


UNDISTURBED: Final = SafePoint()
"""There is no deadline, and no Ctrl-C is held back."""


@final
class HeldBack:
    """Ctrl-C, held back for as long as a solve runs: it comes out of `poll`, unless `forget` has dropped it.

    Python's signals are those of its main thread: elsewhere, and where a handler is none of Python's, nothing is held
    back, and `poll` says nothing.
    """

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], object] | None = None  # that which is held back
        self._came: tuple[int, FrameType | None] | None = None

    def poll(self) -> None:
        """Does what Ctrl-C would have done at once: raises KeyboardInterrupt, or what the user's own handler does."""
        came, self._came = self._came, None
        if came is not None and self._handler is not None:
            self._handler(*came)

    def forget(self) -> None:
        """Nothing has come."""
        self._came = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Ctrl-C is held back in this block, until its end at most; within another such block nothing changes."""
        if self._handler is not None or threading.current_thread() is not threading.main_thread():
            yield
            return
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):
            yield
            return
        self._handler = handler
        signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler)
            try:
                self.poll()
            finally:
                self._handler = None

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Ctrl-C is heard at once in this block, as in the user's own code, where a solve calls it."""
        held = self._handler
        if held is None:
            yield
            return
        self.poll()
        signal.signal(signal.SIGINT, held)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame
