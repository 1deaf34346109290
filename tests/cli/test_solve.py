from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from optpy.cli import main

pytestmark = pytest.mark.native

ENERGY = """
import optpy as op
H, W = op.dims("H W")
i, j = op.indices(H, W)
X, A = op.Unknown("X", (H, W)), op.Array("A", (H, W))
w = op.params("w")
energy = op.Energy(fit=X[i, j] - A[i, j], reg=w * (X[i, j] - X[i, j + 1]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "smooth.py").write_text(ENERGY)
    A = np.random.default_rng(0).normal(size=(5, 7))
    np.savez(tmp_path / "data.npz", X=np.zeros((5, 7)), A=A, w=0.0)
    return tmp_path


def solve(folder: Path, *more: str, data: str = "data.npz", out: str = "result.npz") -> Result:
    files = [str(folder / "smooth.py"), "--data", str(folder / data), "--out", str(folder / out)]
    return CliRunner().invoke(main, ["solve", *files, *more])


def test_the_solution_is_written_by_name(folder: Path) -> None:
    run = solve(folder)
    assert run.exit_code == 0, run.output
    with np.load(folder / "result.npz") as result, np.load(folder / "data.npz") as data:
        assert result.files == ["X"]
        np.testing.assert_allclose(result["X"], data["A"], atol=1e-5)
    assert "CONVERGED" in run.output.upper()
    assert str(folder / "result.npz") in run.output


def test_quiet_prints_nothing(folder: Path) -> None:
    run = solve(folder, "--quiet")
    assert (run.exit_code, run.output) == (0, "")


def test_options_reach_the_solver(folder: Path) -> None:
    run = solve(folder, "--method", "gn", "--dtype", "float64", "--option", "max_iterations=0")
    assert run.exit_code == 3, run.output
    assert "MAX_ITERATIONS" in run.output
    with np.load(folder / "result.npz") as result:
        np.testing.assert_array_equal(result["X"], 0)


def test_text_and_none_are_values_of_options(folder: Path) -> None:
    assert solve(folder, "--option", "preconditioner=block_jacobi").exit_code == 0
    for none in ("None", "none"):
        run = solve(folder, "--option", f"preconditioner={none}")
        assert run.exit_code == 0, run.output
    assert solve(folder, "--option", "jacobi_scaling=false").exit_code == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--option", "max_iteration=3"], "did you mean 'max_iterations'"),
        (["--option", "preconditioner=jacobbi"], "did you mean 'jacobi'?"),
        (["--option", "max_iterations"], "'max_iterations' is not NAME=VALUE"),
        (["--option", "eta=0.1", "--option", "eta=0.2"], "eta is given twice"),
        (["--option", "method=gn", "--method", "lm"], "the method is given twice"),
        (["--option", "dtype=float64"], "dtype is no option of the solver"),
        (["--option", "schedule=measured"], "schedule is no option of the solver"),
        (["--method", "gn", "--option", "initial_radius=3.0"], "method='gn' does not use 'initial_radius'"),
        (["--energy", "other"], "has no energy 'other'"),
    ],
)
def test_bad_options_are_one_clear_message(folder: Path, more: list[str], message: str) -> None:
    run = solve(folder, *more)
    assert run.exit_code in (1, 2)
    assert message in run.output
    assert "Traceback" not in run.output
    assert not (folder / "result.npz").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"A": None}, "A"),
        ({"A": np.zeros((5, 6))}, "A"),
        ({"B": np.zeros(3)}, "B"),
        ({"A": np.full((5, 7), np.nan)}, "A"),
    ],
)
def test_bad_data_is_one_clear_message(folder: Path, change: dict[str, Any], message: str) -> None:
    with np.load(folder / "data.npz") as data:
        arrays = {**data, **change}
    np.savez(folder / "bad.npz", **{name: array for name, array in arrays.items() if array is not None})
    run = solve(folder, data="bad.npz")
    assert run.exit_code == 1
    assert run.output.startswith("Error: ")
    assert message in run.output
    assert "Traceback" not in run.output


def test_a_missing_folder_for_the_result_is_found_before_the_solve(folder: Path) -> None:
    run = solve(folder, out="gone/result.npz")
    assert run.exit_code == 2
    assert "there is no folder" in run.output
    assert "iter" not in run.output


def test_names_in_folders_are_names_that_the_energy_has_not(folder: Path) -> None:
    with np.load(folder / "data.npz") as data, zipfile.ZipFile(folder / "bad.npz", "w") as archive:
        for name in ("X", "A", "w"):
            with archive.open(f"../deep/{name}.npy", "w") as member:
                np.lib.format.write_array(member, data[name])
    run = solve(folder, data="bad.npz")
    assert run.exit_code == 1
    assert "'../deep/X'" in run.output
    assert sorted(os.listdir(folder)) == ["bad.npz", "data.npz", "smooth.py"]


def test_an_energy_file_that_goes_elsewhere_takes_no_file_along(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "elsewhere").mkdir()
    (folder / "smooth.py").write_text(f"import os\nos.chdir('elsewhere')\n{ENERGY}")
    run = CliRunner().invoke(main, ["solve", "smooth.py", "--data", "data.npz", "--out", "result.npz"])
    assert run.exit_code == 0, run.output
    assert (folder / "result.npz").is_file()
    assert os.listdir(folder / "elsewhere") == []


# -- how it ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quiet", [True, False])
def test_a_solve_that_does_not_converge_writes_what_it_has_and_says_so(folder: Path, quiet: bool) -> None:
    run = solve(folder, "--option", "max_iterations=1", *(["--quiet"] if quiet else []))
    assert run.exit_code == 3
    (line,) = run.stderr.splitlines()
    assert line.startswith("MAX_ITERATIONS: Not converged: iteration limit reached")
    assert line.endswith(f"What was reached is written to {folder / 'result.npz'}.")
    assert (run.stdout == "") is quiet
    with np.load(folder / "result.npz") as result:
        assert result["X"].any()


def test_the_help_tells_the_statuses(folder: Path) -> None:
    run = CliRunner().invoke(main, ["solve", "--help"])
    for line in ("0  converged", "1  an error", "2  the command line is wrong", "3  not converged"):
        assert line in run.output


def test_a_place_for_the_result_that_is_no_file_is_found_before_the_solve(folder: Path) -> None:
    (folder / "smooth.py").write_text("raise RuntimeError('the file was run')")
    for out in ("/dev/full", str(folder)):
        run = solve(folder, out=out)
        assert run.exit_code == 2
        assert "Invalid value for '--out'" in run.output
        assert "was run" not in run.output
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_the_result_goes_through_a_link_into_a_file_that_keeps_its_mode(folder: Path) -> None:
    (folder / "real.npz").write_bytes(b"")
    (folder / "real.npz").chmod(0o600)
    (folder / "result.npz").symlink_to("real.npz")
    assert solve(folder).exit_code == 0
    assert (folder / "result.npz").is_symlink()
    assert stat.S_IMODE((folder / "real.npz").stat().st_mode) == 0o600
    with np.load(folder / "real.npz") as result:
        assert result.files == ["X"]


def test_a_solve_that_finds_no_memory_is_one_clear_message(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def solve_nothing(*_: Any, **__: Any) -> None:
        raise MemoryError("Unable to allocate 8.00 EiB")

    monkeypatch.setattr("optpy.solve", solve_nothing)
    run = solve(folder)
    assert (run.exit_code, run.output) == (1, "Error: there is not enough memory: Unable to allocate 8.00 EiB\n")
