from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import optpy as op
from optpy.cli.energy_file import load_energy

ONE = """
import optpy as op
N = op.dims("N")
i = op.indices(N)
X, A = op.Unknown("X", (N,)), op.Array("A", (N,))
energy = op.Energy(fit=X[i] - A[i])
"""


@pytest.fixture(autouse=True)
def path_and_modules_as_before() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if "energy_file_" in name or name.startswith("house"):
            del sys.modules[name]


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_the_only_energy_is_found(tmp_path: Path) -> None:
    assert isinstance(load_energy(write(tmp_path / "one.py", ONE), None), op.Energy)


def test_a_file_called_like_a_module_of_python_is_still_the_file(tmp_path: Path) -> None:
    assert isinstance(load_energy(write(tmp_path / "math.py", ONE), None), op.Energy)
    import math

    assert math.sqrt(4) == 2


def test_two_names_of_one_energy_are_one_energy(tmp_path: Path) -> None:
    file = write(tmp_path / "alias.py", ONE + "same = energy\n")
    assert isinstance(load_energy(file, None), op.Energy)


def test_of_several_energies_one_is_chosen_by_name(tmp_path: Path) -> None:
    file = write(tmp_path / "two.py", ONE + "other = op.Energy(twice=2 * X[i] - A[i])\n")
    with pytest.raises(click.ClickException, match="several energies: choose by --energy, of energy, other"):
        load_energy(file, None)
    assert load_energy(file, "other") is not load_energy(file, "energy")
    with pytest.raises(click.ClickException, match="no energy 'third'; it has energy, other"):
        load_energy(file, "third")


def test_a_file_without_an_energy_says_what_one_looks_like(tmp_path: Path) -> None:
    file = write(tmp_path / "none.py", "energy = 'no'\n")
    with pytest.raises(click.ClickException, match=r"none\.py has no energy: .*optpy\.Energy\(fit="):
        load_energy(file, None)


def test_a_file_that_is_no_python_says_so_and_is_not_run(tmp_path: Path) -> None:
    file = write(tmp_path / "README.md", ONE)
    with pytest.raises(click.ClickException) as caught:
        load_energy(file, None)
    assert caught.value.message == f"{file} is no Python file: an energy is read from a file whose name ends in .py"


def test_a_file_that_fails_shows_its_own_line_and_nothing_of_optpy(tmp_path: Path) -> None:
    file = write(tmp_path / "bad.py", "def f():\n    return 1 / 0\nf()\n")
    with pytest.raises(click.ClickException, match="ZeroDivisionError") as caught:
        load_energy(file, None)
    assert 'bad.py", line 2' in caught.value.message
    assert "energy_file.py" not in caught.value.message
    assert "importlib" not in caught.value.message


def test_a_file_that_does_not_parse_shows_the_place(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="SyntaxError") as caught:
        load_energy(write(tmp_path / "bad.py", "energy = = 2\n"), None)
    assert "line 1" in caught.value.message


def test_a_mistake_in_the_energy_keeps_its_own_class(tmp_path: Path) -> None:
    file = write(tmp_path / "bad.py", ONE.replace("X[i] - A[i]", "X[i, i]"))
    with pytest.raises(op.EnergyError, match=r"bad\.py:6"):
        load_energy(file, None)


def test_the_file_may_import_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path / "house_neighbour.py", ONE)
    file = write(tmp_path / "imports.py", "from house_neighbour import energy\n")
    assert isinstance(load_energy(file, None), op.Energy)


def test_a_module_of_a_package_may_import_its_package(tmp_path: Path) -> None:
    write(tmp_path / "house" / "__init__.py", "")
    write(tmp_path / "house" / "parts.py", ONE)
    file = write(tmp_path / "house" / "whole.py", "from .parts import energy\n")
    assert isinstance(load_energy(file, None), op.Energy)


def test_the_main_part_of_the_file_does_not_run(tmp_path: Path) -> None:
    file = write(tmp_path / "main.py", ONE + "if __name__ == '__main__':\n    raise SystemExit('ran')\n")
    assert isinstance(load_energy(file, None), op.Energy)


@pytest.mark.parametrize("leave", ["sys.exit()", "sys.exit(0)", "sys.exit('no')", "raise SystemExit(3)", "quit()"])
def test_a_file_that_ends_the_program_is_a_mistake(tmp_path: Path, leave: str) -> None:
    file = write(tmp_path / "leaves.py", f"import sys\n{leave}\n{ONE}")
    with pytest.raises(click.ClickException, match=r"leaves\.py ends the program.*__main__"):
        load_energy(file, None)


@pytest.mark.parametrize("text", ["x = 1\0", "\xff = '", "(" * 10_000, "def f(): f()\ndef f(): return f()\nf()\n"])
def test_a_file_that_python_cannot_take_is_one_message(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.py"
    file.write_bytes(text.encode("latin1"))
    with pytest.raises(click.ClickException, match=r"bad\.py fails:"):
        load_energy(file, None)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(click.ClickException, match="no Python file"):
        load_energy(tmp_path / "pipe.py", None)
