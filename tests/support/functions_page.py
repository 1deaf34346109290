"""Writes docs/functions.md from the functions that optpy exports: ``python -m tests.support.functions_page``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optpy as op

PAGE = Path(__file__).resolve().parents[2] / "docs" / "functions.md"

HEAD = """# The functions of optpy

In the order of the alphabet. Those of numbers act on vectors and matrices entry by entry. NumPy's names mean what they
mean there; what is not here, such as `op.einsum`, says what to write instead.

| write | it is |
| --- | --- |
"""


def functions() -> dict[str, Callable[..., Any]]:
    """Every exported function, by name."""
    return {name: f for name in op.__all__ if inspect.isfunction(f := getattr(op, name))}


def row(name: str, function: Callable[..., Any]) -> str:
    """One line of the table: how it is called, and the first sentence of its docstring."""
    if function.__name__ != name:
        text = f"Another name of `op.{function.__name__}`"
    else:
        text = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
        text = re.sub(r"``([^`]*)``", r"`\1`", text).removesuffix(".").replace("|", "\\|")
    return f"| `op.{name}({', '.join(map(_argument, inspect.signature(function).parameters.values()))})` | {text} |\n"


def _argument(p: inspect.Parameter) -> str:
    stars = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
    return stars + p.name


def page() -> str:
    """The whole page."""
    found = functions()
    return HEAD + "".join(row(name, found[name]) for name in sorted(found, key=str.lower))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
