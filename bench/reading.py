"""Counts what one reads to follow an energy: `python -m bench.reading [--details]`.

A tracer notes every function of optpy that is entered. Counted are the lines of these functions, as they stand in their
files and without docstrings and comments, and the files.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import final

import optpy as op

PACKAGE = Path(op.__file__).parent


@final
@dataclass(frozen=True, slots=True)
class Reading:
    """The functions that were entered.

    Attributes:
        lines: the numbers of their lines, by file.
    """

    lines: dict[Path, frozenset[int]]

    @property
    def total(self) -> int:
        """Lines in all files."""
        return sum(map(len, self.lines.values()))


@contextmanager
def traced(within: str | None = None) -> Iterator[set[CodeType]]:
    """The code of all functions of optpy that are entered meanwhile, in this thread and in those that it starts.

    Args:
        within: name of a function; only what is called by it counts.
    """
    entered: set[CodeType] = set()
    ours = f"{PACKAGE}/"
    depth = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth
        if event in ("call", "return") and frame.f_code.co_name == within:
            depth += 1 if event == "call" else -1
        elif event == "call" and (depth or within is None) and frame.f_code.co_filename.startswith(ours):
            entered.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield entered
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def reading(entered: set[CodeType]) -> Reading:
    """The lines to read of some functions; those of a function within another count once."""
    lines: dict[Path, set[int]] = {}
    for code in entered:
        if code.co_name != "<module>":
            file = Path(code.co_filename)
            lines.setdefault(file, set()).update(_lines(file, code.co_firstlineno, code.co_name))
    return Reading({file: frozenset(found) for file, found in lines.items() if found})


def _lines(file: Path, first: int, name: str) -> set[int]:
    """The lines of one function, without docstring, comments and blank lines."""
    text, functions = _parsed(file)
    node = functions.get((first, name))
    if node is None or node.end_lineno is None:  # lambdas and comprehensions are part of what they stand in
        return set()
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    head = range(first, node.body[0].lineno)
    rest = range(body[0].lineno, node.end_lineno + 1) if body else range(0)
    return {n for n in (*head, *rest) if text[n - 1].strip() and not text[n - 1].lstrip().startswith("#")}


@cache
def _parsed(file: Path) -> tuple[list[str], dict[tuple[int, str], ast.FunctionDef | ast.AsyncFunctionDef]]:
    text = file.read_text(encoding="utf-8")
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found[first, node.name] = node
    return text.splitlines(), found


def main() -> dict[str, Reading]:
    """Of image warping: from its declaration to its compiled library for the CPU, and one linear solve there."""
    with traced() as declaration:
        energy = importlib.import_module("problems.image_warping").energy
        solver = op.compile(energy, device="cpu", dtype="float32")
    session = solver.start(importlib.import_module("bench.image_warping").CASE.data(64), method="lm")
    with traced(within="solve_linear") as linear:
        session.step()
    return {"declaration to library": reading(declaration), "linear solve": reading(linear)}


def show(name: str, found: Reading, details: bool) -> None:
    """Print the counts, and the lines of each file if asked for."""
    print(f"{name}: {found.total} lines of functions in {len(found.lines)} files")
    for file, lines in sorted(found.lines.items(), key=lambda item: -len(item[1])) if details else ():
        print(f"  {len(lines):4} {file.relative_to(PACKAGE)}")


if __name__ == "__main__":
    with TemporaryDirectory() as empty:  # what a cache has kept would be read past
        os.environ["OPTPY_CACHE_DIR"] = empty
        for name, found in main().items():
            show(name, found, details="--details" in sys.argv[1:])
