"""Tests use what a module offers: no name that begins with an underscore, but those of their own objects."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "tests").rglob("*.py"))

PRIVATE = re.compile(r"_[A-Za-z]\w*(?<!_)")
"""Not `__init__`, `_fields_` or `_repr_latex_`, which are Python's, ctypes' and IPython's."""

PUBLIC_ELSEWHERE = {"_exit", "_name", "_obj", "_replace"}
"""Of the standard library, documented so: os._exit, ctypes.CDLL._name, byref()._obj, namedtuple._replace."""

EXCEPTIONS = {
    ("solver/test_options.py", "_ELSEWHERE"),  # that each suggestion is an option: no error lists them all
    ("scheduling/test_channel_order.py", "_positions"),  # a rule for any sets of channels, of which energies have few
}


def private_names(source: str) -> Iterator[str]:
    """The private names of others that a file reaches for: as attributes, by import, or in texts for `setattr`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                continue
            case ast.Attribute(attr=name):
                names = [name]
            case ast.ImportFrom(module=module, names=found):
                names = [*(module or "").split("."), *(alias.name for alias in found)]
            case ast.Import(names=found):
                names = [part for alias in found for part in alias.name.split(".")]
            case ast.Call(
                func=ast.Attribute(attr="setattr" | "delattr") | ast.Name(id="setattr" | "getattr" | "hasattr")
            ):
                texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                names = [part for text in texts for part in text.split(".")]
            case ast.For(iter=ast.Tuple() | ast.List() as listed):
                names = [a.value for a in listed.elts if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            case _:
                continue
        yield from (name for name in names if PRIVATE.fullmatch(name))


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_no_test_reaches_for_a_private_name(file: Path) -> None:
    found = {*private_names(file.read_text(encoding="utf-8"))} - PUBLIC_ELSEWHERE
    within = str(file.relative_to(ROOT / "tests"))
    assert {(within, name) for name in found} == {e for e in EXCEPTIONS if e[0] == within}


@pytest.mark.parametrize(
    "source",
    [
        "problem._executor.run()",
        "from optpy.solver.options import _CHECKS",
        "import optpy._inner",
        "monkeypatch.setattr(module, '_LIMIT', 0)",
        "patch.setattr('optpy.module._LIMIT', 0)",
        "getattr(problem, '_executor')",
        "for name in ('_LOW', '_HIGH'): patch.setattr(module, name, 0)",
    ],
)
def test_a_private_name_is_found(source: str) -> None:
    assert [*private_names(source)]


@pytest.mark.parametrize("source", ["self._own = 1", "_private = 2", "x.__dict__", "X._fields_", "text.endswith('_b')"])
def test_what_is_no_private_name_of_others_is_left_alone(source: str) -> None:
    assert not [*private_names(source)]
