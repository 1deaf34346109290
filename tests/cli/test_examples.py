from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from optpy.cli import main

pytestmark = pytest.mark.core
ROOT = Path(__file__).parents[2]


def run(*words: str) -> Result:
    return CliRunner().invoke(main, [*words])


def test_the_list_has_every_program_of_the_problems_with_its_first_sentence() -> None:
    shown = run("example", "--help")
    assert shown.exit_code == 0, shown.output
    programs = {f.stem for f in (ROOT / "problems").glob("*.py") if 'if __name__ == "__main__"' in f.read_text()}
    assert len(programs) > 15
    listed = {line.split()[0] for line in shown.output.partition("Programs:")[2].splitlines() if line[2:3].strip()}
    assert listed == programs
    assert "Smoothing of a noisy photograph" in shown.output


def test_a_program_tells_its_options() -> None:
    shown = run("example", "image_warping", "--help")
    assert shown.exit_code == 0, shown.output
    assert "--iterations" in shown.output


def test_an_unknown_program() -> None:
    shown = run("example", "image_wraping")
    assert shown.exit_code == 2
    assert "No such command 'image_wraping'" in shown.output


def test_a_library_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "viser", None)
    for name in ("mesh", "page"):
        monkeypatch.delitem(sys.modules, f"optpy.examples.demos.{name}", raising=False)
    shown = run("demo", "mesh")
    assert shown.exit_code == 1
    assert "mesh needs the package 'viser': python -m pip install 'optpy[demo]'" in shown.output


def test_the_list_needs_no_library_of_the_programs() -> None:
    program = "import sys; sys.modules.update(PIL=None, trimesh=None, viser=None); from optpy.cli import main; main()"
    shown = subprocess.run([sys.executable, "-c", program, "demo", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "mesh" in shown.stdout


def test_the_problems_are_importable_as_examples() -> None:
    module = importlib.import_module("optpy.examples.laplacian_smoothing")
    assert Path(str(module.__file__)) == ROOT / "problems" / "laplacian_smoothing.py"
    assert module.energy.unknowns


def test_a_wheel_has_the_problems_as_examples(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    program = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {
        str(file.relative_to(ROOT / "problems"))
        for file in (ROOT / "problems").rglob("*")
        if file.suffix in (".py", ".json")
    }
    assert {f"optpy/examples/{file}" for file in files} == {n for n in names if n.startswith("optpy/examples/")}
    assert "optpy/py.typed" in names
    assert not any(name.startswith("problems/") for name in names)
