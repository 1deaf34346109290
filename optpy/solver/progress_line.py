"""A line on the terminal that tells how far a long solve has come, and rewrites itself."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, final

from optpy.solver.iteration import IterationRecord
from optpy.terminal import PATIENCE, is_terminal

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text


@final
class ProgressLine:
    """Shown on stderr, if that is a terminal, while a solve runs that has taken more than two seconds.

    A context manager: at its end the line is gone. Where each iteration is printed anyway, there is none.

    Args:
        most: iterations that the solve may take.
        verbose: of its options; 2 prints each iteration.
    """

    def __init__(self, most: int, verbose: int) -> None:
        self._most = most
        self._is_wanted = verbose < 2 and is_terminal(sys.stderr)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            with suppress(OSError, ValueError):
                self._live.stop()

    def show(self, record: IterationRecord) -> None:
        """Show the last iteration, once the solve has become a long one."""
        if not self._is_wanted or record.total_time < PATIENCE:
            return
        with suppress(OSError, ValueError):  # a terminal that has gone stops no solve
            self._live = self._live or _started()
            self._live.update(_text(record, self._most), refresh=True)


def _text(record: IterationRecord, most: int) -> Text:
    from rich.text import Text

    return Text(
        f"iteration {record.iteration} of at most {most}: cost {record.cost:.6g}, "
        f"max |gradient| {record.gradient_norm:.3g}, {record.linear_iterations} linear iterations, "
        f"{record.total_time:.0f} s"
    )


def _started() -> Live:
    from rich.console import Console
    from rich.live import Live

    live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
    live.start()
    return live
