"""Long linear work with safe points in it, where it hears Ctrl-C, and ends when its time is up."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Sequence
from ctypes import CFUNCTYPE, c_int, c_void_p
from enum import IntEnum
from typing import final

from optpy.kernels.codegen.structures import Structure, enumeration
from optpy.kernels.toolchain.headers import native_header
from optpy.solver.safe_point import SLICE, UNDISTURBED, OutOfTime, SafePoint

SAFE_POINT = Structure(
    "SafePoint",
    """
    int (*poll)(void);        /* of the host, which hears Ctrl-C there; not 0: the work is to stop */
    double period;            /* seconds from one poll to the next */
    double time_left;         /* seconds, when the work begins; may be infinite */
    double next, deadline;    /* of the clock: the next poll, and the end of the time */
    atomic_int stopped;       /* SAFE_... */
""",
)


class Stop(IntEnum):
    """Whether native work is to stop, and why."""

    NOT_STOPPED = 0
    INTERRUPTED = 1
    LATE = 2


class _NativeSafePoint(ctypes.Structure):
    keeps: object
    """Alive: what ``poll`` points at."""

    _fields_ = SAFE_POINT.fields


def safe_work_source() -> str:
    """The C text of safe points; goes after team.h where there is a team."""
    includes = "#include <stdatomic.h>\n#include <time.h>"
    texts = [includes, enumeration("SAFE_", Stop), SAFE_POINT.text, native_header("linear/safe_work.h")]
    return "\n\n".join(texts)


@final
class SafeWork:
    """Does work, native or in Python, that a safe point cuts short: where Ctrl-C has come, and at its deadline.

    One serves many solves, as the function that native code calls takes long to make.

    Args:
        safe_point: of the first solve.
    """

    def __init__(self, safe_point: SafePoint = UNDISTURBED) -> None:
        self._at = [safe_point]  # shared with what polls, which does not keep this alive
        self._caught: list[BaseException] = []
        self._state: _NativeSafePoint | None = None

    def begin(self, safe_point: SafePoint) -> None:
        """From now on the work is of another solve.

        Args:
            safe_point: of the solve.
        """
        self._at[0] = safe_point

    def check(self) -> None:
        """A safe point of work in Python.

        Raises:
            OutOfTime: the deadline has passed.
        """
        self._at[0].check()

    def finish(self, work: Callable[[int], object]) -> None:
        """Do native work that is of no use unless it is finished.

        Args:
            work: see ``run``.

        Raises:
            OutOfTime: the deadline has passed before its end.
        """
        if self.run(work) is Stop.LATE:
            raise OutOfTime

    def run(self, work: Callable[[int], object]) -> Stop:
        """Do native work that comes to safe points; whether the deadline has cut it short.

        What Ctrl-C raises comes out of this call, when the work has come to its next safe point.

        Args:
            work: called with the address of the native structure.
        """
        (safe_point,) = self._at
        safe_point.poll()
        state = self._native()
        state.time_left = safe_point.seconds_left
        work(ctypes.addressof(state))
        if self._caught:
            self._state = None  # which would be interrupted forever
            raise self._caught.pop()
        return Stop(state.stopped)

    def _native(self) -> _NativeSafePoint:
        if self._state is None:
            polls = endless_polls(self._at, self._caught)
            next(polls)
            poll = _POLL(polls.__next__)
            self._state = _NativeSafePoint(poll=ctypes.cast(poll, c_void_p).value, period=SLICE)
            self._state.keeps = poll
        return self._state


_POLL = CFUNCTYPE(c_int)


def endless_polls(at: Sequence[SafePoint], caught: list[BaseException]) -> Generator[int, None, None]:
    """0 again and again, and 1 when a poll has raised, or a handler of signals: Python calls these when this goes on.

    A generator, since in a function they would be called before it has entered a try statement.
    """
    try:
        while True:
            at[0].poll()
            yield 0
    except GeneratorExit:
        return
    except BaseException as error:
        caught.append(error)
    while True:
        yield 1
