"""What all problems' programs do alike: where they write, and what they say of a solve that has not converged."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from problems import bundle_adjustment, image_warping, mesh_deformation, meshes, nonrigid_alignment

SMALL = ["--size", "16"]


def run(program: click.Command, *arguments: object) -> Result:
    return CliRunner().invoke(program, list(map(str, arguments)), env={"OPTPY_DATA": ""}, catch_exceptions=False)


@pytest.mark.parametrize("quiet", [True, False])
def test_a_solve_that_has_not_converged_is_said_and_drawn(tmp_path: Path, quiet: bool) -> None:
    more = ["--quiet"] if quiet else []
    done = run(image_warping.main, *SMALL, "--iterations", 1, "--output", tmp_path / "warp.png", *more)
    assert done.exit_code == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("MAX_ITERATIONS: Not converged: iteration limit reached")
    assert line.endswith("What was reached is drawn.")
    assert (done.stdout == "") is quiet
    assert (tmp_path / "warp.png").is_file()


def test_the_picture_goes_through_a_link_into_a_file_that_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "warp.jpg").symlink_to("real")
    assert run(image_warping.main, *SMALL, "--output", tmp_path / "warp.jpg").exit_code == 0
    assert sorted(os.listdir(tmp_path)) == ["real", "warp.jpg"]
    assert (tmp_path / "warp.jpg").is_symlink()
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o640
    with Image.open(tmp_path / "real") as opened:
        assert opened.format == "JPEG"


@pytest.mark.parametrize("program", [bundle_adjustment.main, mesh_deformation.main, nonrigid_alignment.main])
def test_what_is_no_file_is_refused_before_the_solve(tmp_path: Path, program: click.Command) -> None:
    (tmp_path / "full.png").symlink_to("/dev/full")
    (tmp_path / "out.ply").mkdir()
    os.mkfifo(tmp_path / "pipe.ply")
    good = ["--output", tmp_path / "good.png"]
    for option, arguments in (
        ("--output", ["--output", tmp_path / "full.png"]),
        ("--result", ["--output", tmp_path / "out.png"]),  # its own name, with .ply
        ("--result", ["--result", tmp_path / "pipe.ply", *good]),
        ("--result", ["--result", tmp_path / "gone" / "x.ply", *good]),
    ):
        done = run(program, *arguments)
        assert done.exit_code == 2
        assert f"Invalid value for '{option}'" in done.output
    assert sorted(os.listdir(tmp_path)) == ["full.png", "out.ply", "pipe.ply"]


@pytest.mark.parametrize("ending", meshes.FORMATS)
def test_a_mesh_goes_through_a_link(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"mesh{ending}").symlink_to(f"real{ending}")
    meshes.write_mesh(tmp_path / f"mesh{ending}", meshes.pebble(1))
    assert sorted(os.listdir(tmp_path)) == [f"mesh{ending}", f"real{ending}"]
    assert len(meshes.read_mesh(tmp_path / f"real{ending}").faces) == len(meshes.pebble(1).faces)


def test_a_disk_that_is_full_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = run(image_warping.main, *SMALL, "--quiet", "--output", tmp_path / "warp.png")
    assert done.exit_code == 1
    assert f"Error: {tmp_path / 'warp.png'} cannot be written: No space left on device\n" in done.stderr
    assert os.listdir(tmp_path) == []
