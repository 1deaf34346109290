"""All of README.md is run: its Python blocks in order, its commands; its tables are held to the code."""

from __future__ import annotations

import dataclasses
import math
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from io import StringIO
from itertools import pairwise, takewhile
from pathlib import Path

import numpy as np
import pytest

import optpy as op
from optpy.solver.options import SolveOptions
from tests.support.kernel_flags import compiled_with, quick

pytestmark = pytest.mark.applications

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

INSTALLING = "python -m pip install "
"""Left to .ci/run, which does it in fresh virtual environments."""


FEWER = {
    "python -m problems.image_warping": "--iterations 1",
    "python -m problems.image_warping --size 128 --output warped.png": "--iterations 1",
    "python -m problems.sparse_warping --size 96": "--iterations 1",
}
"""What is added to a command that would take long. .ci/run runs it in a fresh environment."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def commands() -> Iterator[str]:
    for block in blocks("console"):
        for line in block.splitlines():
            assert line.startswith("$ "), f"a console block has only commands, not {line!r}"
            for command in line.removeprefix("$ ").split(" && "):
                if not command.startswith(INSTALLING) and command != "python -m pytest":
                    yield command


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like the checkout to the README's commands, where they may leave files."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("problems", "docs"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture(scope="module")
def after_the_python_blocks(workshop: Path) -> Path:
    """The same folder, once the Python blocks have run one after the other, as a reader would."""
    with compiled_with(quick), chdir(workshop):
        exec(compile("\n".join(blocks("python")), "README.md", "exec"), {"__name__": "__main__"})
    return workshop


def test_the_python_blocks_run(after_the_python_blocks: Path) -> None:
    assert (after_the_python_blocks / "data.npz").is_file()


def run_command(folder: Path, command: str) -> str:
    """What it prints. All run in this process, which has imported already what each of them would import anew.

    Readers have no data folder, so the problems take what they make themselves.
    """
    program, *arguments = shlex.split(f"{command} {FEWER.get(command, '')}")
    assert program == "optpy" or (program, arguments.pop(0)) == ("python", "-m")
    module = program if program == "optpy" else arguments.pop(0)
    with pytest.MonkeyPatch.context() as patch, chdir(folder), redirect_stdout(StringIO()) as printed:
        patch.setenv("OPTPY_DATA", "")
        patch.setattr(sys, "argv", [module, *arguments])
        if program == "python":  # runs anew what another test has imported
            patch.delitem(sys.modules, module, raising=False)
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert ended.value.code in (0, None), f"{command}\n{printed.getvalue()}"
    return printed.getvalue()


def written(command: str) -> set[str]:
    """The files that a command leaves for those after it."""
    words = shlex.split(command)
    return {after for word, after in pairwise(words) if word in ("--out", "--output", "--result")}


@pytest.mark.parametrize("command", list(commands()))
def test_the_commands_run(command: str, after_the_python_blocks: Path) -> None:
    folder, read = after_the_python_blocks, set(shlex.split(command)) - written(command)
    for earlier in takewhile(lambda c: c != command, commands()):
        missing = {file for file in written(earlier) & read if not (folder / file).exists()}
        if missing:  # another process has run that test
            run_command(folder, earlier)
    assert bool(run_command(folder, command)) is ("--quiet" not in shlex.split(command))


def test_the_two_commands_of_the_first_screen_are_there() -> None:
    first = blocks("console")[:2]
    assert [block.count("\n") for block in first] == [1, 1]
    assert first[0].startswith(f"$ {INSTALLING}'.[problems]' && python -m problems.image_warping")
    assert first[1] == f"$ {INSTALLING}'.[test]' && python -m pytest\n"


def test_the_table_of_options_is_complete_and_right() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", README, flags=re.MULTILINE))
    expected = {
        field.name: f'"{field.default}"' if isinstance(field.default, str) else repr(field.default)
        for field in dataclasses.fields(SolveOptions)
    }
    assert rows == expected


def test_the_table_of_statuses_is_complete_and_right() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| (yes|no) \|", README, flags=re.MULTILINE)
    assert rows == [(status.name, "yes" if status.success else "no") for status in op.Status]


def test_the_table_of_errors_is_complete_and_right() -> None:
    rows = re.findall(r"^\| `op\.(\w+Error)` \| `(\w+)` \|", README, flags=re.MULTILINE)
    listed = dict(rows)
    public = {
        name for name in dir(op) if isinstance(getattr(op, name), type) and issubclass(getattr(op, name), op.OptpyError)
    }
    assert set(listed) == public - {"OptpyError"}
    for name, base in listed.items():
        assert base in [parent.__name__ for parent in getattr(op, name).__mro__]


def test_every_function_that_is_not_numpys_or_pythons_is_named() -> None:
    functions = [name for name in op.__all__ if callable(getattr(op, name)) and name.islower()]
    ours = [name for name in functions if not hasattr(np, name) and not hasattr(math, name)]
    assert len(ours) > 10
    assert [name for name in ours if f"op.{name}" not in README] == []


def test_links_and_pictures_are_there() -> None:
    targets = [t for t in re.findall(r"\]\(([^)]+)\)", README) if not t.startswith("http")]
    assert len(targets) >= 4
    headings = {"#" + title.lower().replace(" ", "-") for title in re.findall(r"^##+ (.+)$", README, re.MULTILINE)}
    for target in targets:
        assert target in headings if target.startswith("#") else (ROOT / target).exists(), target
