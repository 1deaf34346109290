"""All of the documentation is run, without Sphinx: the Python of each page, each notebook, each command."""

from __future__ import annotations

import ast
import json
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from io import StringIO
from itertools import pairwise, takewhile
from pathlib import Path

import pytest
from matplotlib import pyplot

from tests.support.kernel_flags import compiled_with, quick
from tests.support.pages import NOTEBOOKS, PAGES, ROOT, commands, name_of, python_of, text_of

pytestmark = pytest.mark.applications

WITH_PYTHON = [name_of(page) for page in [*PAGES, *NOTEBOOKS] if python_of(page)]

COMMANDS = [(name_of(page), command) for page in PAGES for command in commands(page.read_text(encoding="utf-8"))]

ENOUGH = {"--size": 64, "--iterations": 4}
"""Commands of pages may ask for more, for the sake of their pictures."""

ADDED = {"python -m problems.image_warping": "--iterations 1"}
"""To a command that would take long. .ci/run runs it in a fresh environment."""

LEFT = {
    "docs/guide/command-line.md": {"data.npz"},
    "docs/guide/pictures.md": {"course.png", "residuals.png", "energy.html"},
}
"""Files that the Python of a page writes."""

Workshop = Callable[[str], Path]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """The folder of a page, once its Python has run there as one program: it looks like the checkout to commands."""
    ready: dict[str, Path] = {}

    def of(page: str) -> Path:
        if page not in ready:
            folder = tmp_path_factory.mktemp("page")
            for name in ("problems", "docs"):
                (folder / name).symlink_to(ROOT / name)
            with compiled_with(quick), chdir(folder), figures_in_memory():
                exec(compile(python_of(ROOT / page), page, "exec"), {"__name__": "__main__"})
            ready[page] = folder
        return ready[page]

    return of


@contextmanager
def figures_in_memory() -> Iterator[None]:
    pyplot.switch_backend("agg")
    try:
        yield
    finally:
        pyplot.close("all")


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_runs(page: str, workshop: Workshop) -> None:
    assert LEFT.get(page, set()) <= {file.name for file in workshop(page).iterdir()}


def test_the_pages_that_show_python_are_found() -> None:
    assert {"README.md", "docs/index.md", "docs/guide/graphs.md", "docs/tutorial/mesh.md"} <= set(WITH_PYTHON)
    assert len([page for page in WITH_PYTHON if page.endswith(".ipynb")]) == 3


def smaller(command: str) -> list[str]:
    """The words of a command, its sizes and iterations no more than enough."""
    words = shlex.split(f"{command} {ADDED.get(command, '')}")
    for option, most in ENOUGH.items():
        if option in words:
            value = words.index(option) + 1
            words[value] = str(min(int(words[value]), most))
    return words


def run_command(folder: Path, command: str) -> str:
    """What it prints. All run in this process, which has imported already what each of them would import anew.

    Readers have no data folder, so the problems take what they make themselves.
    """
    program, *arguments = smaller(command)
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


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_the_commands_run(page: str, command: str, workshop: Workshop) -> None:
    folder, read = workshop(page), set(shlex.split(command)) - written(command)
    for earlier in takewhile(lambda c: c != command, commands(text_of(page))):
        missing = {file for file in written(earlier) & read if not (folder / file).exists()}
        if missing:  # another process has run that test
            run_command(folder, earlier)
    assert bool(run_command(folder, command)) is ("--quiet" not in shlex.split(command))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_pictures_are_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_notebooks_are_kept_without_what_they_have_printed(notebook: Path) -> None:
    code = [c for c in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_the_gallery_has_every_problem() -> None:
    trees = {file.stem: ast.parse(file.read_text(encoding="utf-8")) for file in (ROOT / "problems").glob("*.py")}
    problems = {name for name, tree in trees.items() if any(getattr(n, "name", "") == "main" for n in tree.body)}
    shown = [re.match(r"optpy example (\w+) ", c) for page, c in COMMANDS if page.startswith("docs/gallery/")]
    assert {match[1] for match in shown if match} == problems
    assert {file.stem for file in (ROOT / "docs" / "gallery").glob("*.jpg")} == problems
