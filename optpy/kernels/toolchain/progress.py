"""Messages while users wait for a compiler: at once if they ask for it by ``verbose``, else after a while."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TextIO

from optpy import terminal
from optpy.terminal import is_terminal

_verbose: ContextVar[bool] = ContextVar("optpy_asked_for_progress", default=False)


@contextmanager
def reporting(verbose: bool) -> Iterator[None]:
    """Within it, and in this thread, ``reported`` prints if that is asked for."""
    before = _verbose.set(verbose)
    try:
        yield
    finally:
        _verbose.reset(before)


@contextmanager
def reported(work: str) -> Iterator[None]:
    """One line: what is done, and when it is done the seconds that it took.

    On stdout where it is asked for. Else on stderr, if that is a terminal and the work takes more than two seconds:
    whoever sits there should know what is waited for.
    """
    if _verbose.get():
        with _StatusLine(sys.stdout, work).standing(from_the_beginning=True):
            yield
    elif is_terminal(sys.stderr):
        with _StatusLine(sys.stderr, work).standing(from_the_beginning=False):
            yield
    else:
        yield


class _StatusLine:
    def __init__(self, stream: TextIO, work: str) -> None:
        self._stream = stream
        self._work = work
        self._begun = False

    @contextmanager
    def standing(self, *, from_the_beginning: bool) -> Iterator[None]:
        started = time.perf_counter()
        patience = threading.Timer(terminal.PATIENCE, self._begin)
        patience.daemon = True
        done = " failed after"
        try:
            if from_the_beginning:
                self._begin()
            else:
                patience.start()
            yield
            done = ""
        finally:
            if patience.is_alive():
                patience.cancel()
                patience.join()
            if self._begun:
                self._print(f"{done} {time.perf_counter() - started:.1f} s\n")

    def _begin(self) -> None:
        self._begun = True
        self._print(f"{self._work} ...")

    def _print(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that has gone stops no compilation
            self._stream.write(text)
            self._stream.flush()
