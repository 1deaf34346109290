"""Tables on a terminal and in a file."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

_NEVER_FOLD = 4096
"""Columns where nobody looks: a path in a log should stay in one piece."""


def new_console() -> Console:
    """The terminal, or standard output without a width."""
    console = Console()
    return console if console.is_terminal else Console(width=_NEVER_FOLD)


def plain_table(title: str, *headers: str) -> Table:
    """A table without lines; without headers, its columns are to be added."""
    table = Table(title=title, title_justify="left", show_header=bool(headers), box=None, pad_edge=False)
    for header in headers:
        table.add_column(header, overflow="fold")
    return table
