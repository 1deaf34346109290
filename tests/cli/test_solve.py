from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from optpy.cli import main
from optpy.cli.solve import read_data, write_arrays

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
    assert run.exit_code == 0, run.output
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


def test_data_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no")
    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "objects.npz", A=np.array([{}], dtype=object))
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("letter.txt", "no")
    for name, message in (
        ("text.npz", r"no \.npz file of arrays: such files are written by np\.savez"),
        ("one.npy", "without a name"),
        ("objects.npz", "'A' are Python objects"),
        ("other.zip", "'letter.txt' is no array"),
    ):
        with pytest.raises(click.ClickException, match=message) as caught:
            read_data(tmp_path / name)
        assert "pickle" not in str(caught.value)


def test_numbers_come_as_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", w=2.5, A=np.ones(3))
    data = read_data(tmp_path / "data.npz")
    assert data["w"] == 2.5
    assert isinstance(data["w"], float)
    assert data["A"].shape == (3,)


def test_any_name_can_be_written_and_nothing_else_is_left(tmp_path: Path) -> None:
    arrays = {"file": np.arange(3.0), "allow_pickle": np.eye(2, dtype=np.float32)}
    write_arrays(tmp_path / "result", arrays)
    assert os.listdir(tmp_path) == ["result"]
    with np.load(tmp_path / "result") as archive:
        assert set(archive.files) == {"file", "allow_pickle"}
        np.testing.assert_array_equal(archive["file"], [0, 1, 2])
        assert archive["allow_pickle"].dtype == np.float32
