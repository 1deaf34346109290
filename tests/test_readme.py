"""README.md is short, and what .ci/run reads there is there; tables of the guide are held to the code."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np

import optpy as op
from optpy.solver.options import SolveOptions
from tests.support.pages import INSTALLING, PAGES, blocks, text_of

README = text_of("README.md")


def test_the_two_commands_are_there() -> None:
    first = blocks(README, "console")
    assert [block.count("\n") for block in first] == [1, 1]
    assert first[0].startswith(f"$ {INSTALLING}'.[problems]' && python -m problems.image_warping")
    assert first[1] == f"$ {INSTALLING}'.[test]' && python -m pytest\n"


def test_it_is_read_in_two_minutes() -> None:
    assert len(README.splitlines()) < 90


def test_the_table_of_options_is_complete_and_right() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \| .", text_of("docs/guide/solving.md"), flags=re.MULTILINE))
    expected = {
        field.name: f'"{field.default}"' if isinstance(field.default, str) else repr(field.default)
        for field in dataclasses.fields(SolveOptions)
    }
    assert rows == expected


def test_the_table_of_statuses_is_complete_and_right() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| (yes|no) \|", text_of("docs/guide/endings.md"), flags=re.MULTILINE)
    assert rows == [(status.name, "yes" if status.success else "no") for status in op.Status]


def test_the_table_of_errors_is_complete_and_right() -> None:
    rows = re.findall(r"^\| `op\.(\w+Error)` \| `(\w+)` \|", text_of("docs/guide/errors.md"), flags=re.MULTILINE)
    listed = dict(rows)
    public = {
        name for name in dir(op) if isinstance(getattr(op, name), type) and issubclass(getattr(op, name), op.OptpyError)
    }
    assert set(listed) == public - {"OptpyError"}
    for name, base in listed.items():
        assert base in [parent.__name__ for parent in getattr(op, name).__mro__]


def test_every_function_that_is_not_numpys_or_pythons_is_told_of() -> None:
    functions = [name for name in op.__all__ if callable(getattr(op, name)) and name.islower()]
    ours = [name for name in functions if not hasattr(np, name) and not hasattr(math, name)]
    guide = "".join(page.read_text(encoding="utf-8") for page in PAGES if page.parent.name == "guide")
    assert len(ours) > 10
    assert [name for name in ours if f"op.{name}" not in guide] == []


def test_every_name_is_in_the_reference() -> None:
    pages = [page.read_text(encoding="utf-8") for page in PAGES if page.parent.name == "reference"]
    listed = re.findall(r"^\.\. auto(?:class|function):: optpy\.(\w+)$", "".join(pages), flags=re.MULTILINE)
    named = [name for name in op.__all__ if getattr(getattr(op, name), "__name__", name) == name]
    assert sorted(listed) == sorted(set(named) - {"__version__"})
