"""The pages of the documentation: README.md, docs/ and the notebooks of examples/; their snippets and commands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))

INSTALLING = "python -m pip install "
"""Such commands are left to .ci/run, which does it in fresh virtual environments."""


def text_of(name: str) -> str:
    """A page, by its path in the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def name_of(page: Path) -> str:
    """Its path in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def python_of(page: Path) -> str:
    """All that a page runs, as one program: its Python blocks, or the cells of a notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return "\n".join([*blocks(text, "python"), *blocks(text, "{code-cell}")])


def commands(text: str) -> Iterator[str]:
    """The commands of a page's console blocks, but those that install."""
    for block in blocks(text, "console"):
        for line in block.splitlines():
            assert line.startswith("$ "), f"a console block has only commands, not {line!r}"
            for command in line.removeprefix("$ ").split(" && "):
                if not command.startswith(INSTALLING) and command != "python -m pytest":
                    yield command
