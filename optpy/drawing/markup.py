"""Pieces of HTML: tables, sections and whole pages. All text is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, final

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 0.5rem 0 1.5rem; }
th, td { text-align: left; padding: 0.15rem 1.2rem 0.15rem 0; vertical-align: top; }
th { border-bottom: 1px solid #999; font-weight: 600; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.formula { overflow: auto hidden; padding: 0.3rem 0; }
img { max-width: 100%; }
code { white-space: pre-wrap; }
"""


@final
class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def cell(value: object) -> Markup:
    """A value as HTML: text is escaped, numbers are set as numbers."""
    if isinstance(value, Markup):
        return value
    return Markup(escape(f"{value:.6g}" if isinstance(value, float) else str(value)))


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """A table with a row of headers.

    Args:
        headers: of the columns; of none where all are empty.
        rows: a cell for each column.
    """
    head = "".join(f"<th>{escape(h)}</th>" for h in headers)
    body = "".join(f"<tr>{''.join(map(_table_cell, row))}</tr>" for row in rows)
    return Markup(f"<table>{f'<tr>{head}</tr>' if any(headers) else ''}{body}</table>")


def _table_cell(value: object) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    shown_as = ' class="number"' if number else ""
    return f"<td{shown_as}>{cell(value)}</td>"


def findings_html(text: str, passed: bool) -> Markup:
    """A report of several lines, with a mark by which one sees whether it found something."""
    colour = "#2a7" if passed else "#c33"
    return Markup(f'<pre style="border-left: 4px solid {colour}; padding-left: 0.8em">{cell(text)}</pre>')


def section(title: str, *parts: str) -> Markup:
    """A heading and what stands under it."""
    return Markup(f"<h2>{escape(title)}</h2>{''.join(parts)}")


def page(title: str, *parts: str) -> str:
    """A whole page, which needs nothing but itself."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f"<!doctype html><html><head>{head}</head><body><h1>{escape(title)}</h1>{''.join(parts)}</body></html>"
