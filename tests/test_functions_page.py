"""docs/functions.md lists what optpy exports."""

from __future__ import annotations

import re

import optpy as op
from tests.support.functions_page import PAGE, functions, page

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_page_is_up_to_date() -> None:
    assert page() == TEXT, "run: python -m tests.support.functions_page"


def test_every_exported_function_is_listed_once_in_the_order_of_the_alphabet() -> None:
    listed = re.findall(r"^\| `op\.(\w+)\(", TEXT, flags=re.MULTILINE)
    assert sorted(listed) == sorted(functions())
    assert listed == sorted(listed, key=str.lower)
    assert {"arctan", "clip", "log1p", "solve", "where", "robust"} <= set(listed)


def test_every_function_of_the_page_has_a_line_that_says_something() -> None:
    for line in TEXT.splitlines():
        if line.startswith("| `op."):
            assert len(line.rpartition("` | ")[2].removesuffix(" |")) > 2, line
    assert all(name in op.__all__ for name in re.findall(r"Another name of `op\.(\w+)`", TEXT))
