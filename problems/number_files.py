"""Text files of numbers: rows of words with their line numbers, so that mistakes in a file are named by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

import optpy as op

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Row:
    """One line that is neither empty nor a comment.

    Args:
        line: its number in the file, from 1.
        words: what stands in it, between blanks.
    """

    line: int
    words: list[str]


def read_rows(path: Path) -> list[Row]:
    """All rows of a text file; lines that begin with # are comments.

    Raises:
        DataError: the file is no text.
    """
    try:
        lines = path.read_text().splitlines()
    except UnicodeDecodeError as error:
        raise op.DataError(f"{path} is no text file: {error}") from error
    rows = (Row(n, line.split()) for n, line in enumerate(lines, 1))
    return [row for row in rows if row.words and not row.words[0].startswith("#")]


def refuse(path: Path, row: Row, expected: str) -> NoReturn:
    """Raise for a row that is not what the format has there."""
    text = " ".join(row.words)
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    raise op.DataError(f"{path}:{row.line}: expected {expected}, got {shown!r}")


def numbers(path: Path, rows: Sequence[Row], columns: int, what: str, skip: int = 0) -> Numbers:
    """The words of some rows as numbers: (rows, columns).

    Args:
        path: for messages.
        rows: which.
        columns: how many numbers stand in each.
        what: what a row should be, for messages.
        skip: words at the start of each row that are not part of it.

    Raises:
        DataError: a row has more or fewer words, or one that is no finite number.
    """
    for row in rows:
        if len(row.words) != columns + skip:
            refuse(path, row, what)
    try:
        table = np.array([row.words[skip:] for row in rows], np.float64).reshape(len(rows), columns)
    except ValueError:
        refuse(path, next(row for row in rows if not all(map(_is_number, row.words[skip:]))), what)
    faulty = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if faulty.size:
        refuse(path, rows[int(faulty[0])], f"{what}, all finite")
    return table


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def indices(path: Path, rows: Sequence[Row], table: Numbers, what: str) -> Indices:
    """Columns of numbers as whole numbers, not below 0.

    Raises:
        DataError: one is negative or broken, or so large that its neighbours are the same number.
    """
    faulty = np.flatnonzero(((np.floor(table) != table) | (table < 0) | (table >= 2**53)).any(axis=1))
    if faulty.size:
        refuse(path, rows[int(faulty[0])], f"{what}, with whole numbers from 0 to 2^53 where it counts")
    return table.astype(np.int64)
