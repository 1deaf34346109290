"""The terminal at which a user may wait."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, TextIO

PATIENCE: Final = 2.0
"""Seconds for which a terminal may be silent."""


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody may sit before a stream; none does where it is closed, or not there."""
    with suppress(ValueError):  # closed
        return stream is not None and stream.isatty()
    return False
