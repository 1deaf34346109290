"""What users are told while they wait for a compiler, if they have asked for it by ``verbose``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_asked: ContextVar[bool] = ContextVar("optpy_asked_for_progress", default=False)


@contextmanager
def telling(asked: bool) -> Iterator[None]:
    """Within it, and in this thread, ``told`` prints if that is asked for."""
    before = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(before)


@contextmanager
def told(work: str) -> Iterator[None]:
    """One line on stdout: what is done, and when it is done the seconds that it took."""
    if not _asked.get():
        yield
        return
    print(f"{work} ...", end="", flush=True)
    started = time.perf_counter()
    done = " failed after"
    try:
        yield
        done = ""
    finally:
        print(f"{done} {time.perf_counter() - started:.1f} s", flush=True)
