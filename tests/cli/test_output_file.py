"""Files that are written whole, through links, with the permissions that were there, or not at all."""

from __future__ import annotations

import os
import resource
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from optpy.cli.output_file import OutputFile, whole_file


def write(path: Path, text: bytes = b"new") -> None:
    with whole_file(path) as file:
        file.write(text)


def write_half(path: Path, error: BaseException) -> None:
    with whole_file(path) as file:
        file.write(b"half")
        raise error


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o007])
def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        write(tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o666 & ~mask
    assert os.listdir(tmp_path) == ["new"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o666])
def test_a_file_that_was_there_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"old")
    path.chmod(mode)
    with whole_file(path) as file:
        meanwhile = [p for p in tmp_path.iterdir() if p != path]
        assert [stat.S_IMODE(p.stat().st_mode) for p in meanwhile] == [mode]
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link_and_its_target_is_written(tmp_path: Path, there: bool) -> None:
    target, link, second = tmp_path / "far" / "target", tmp_path / "link", tmp_path / "second"
    target.parent.mkdir()
    if there:
        target.write_bytes(b"old")
        target.chmod(0o640)
    link.symlink_to("far/target")
    second.symlink_to("link")
    write(second)
    assert (link.is_symlink(), second.is_symlink()) == (True, True)
    assert target.read_bytes() == b"new"
    assert not there or stat.S_IMODE(target.stat().st_mode) == 0o640
    assert os.listdir(tmp_path / "far") == ["target"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("mine")])
def test_what_fails_leaves_all_as_it_was(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"old")
    with pytest.raises(type(error)) as caught:
        write_half(path, error)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["old"]
    if isinstance(error, OSError):
        assert str(caught.value) == f"{path} cannot be written: No space left on device"


def test_a_disk_that_takes_no_more_leaves_all_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # Python ignores the signal
    try:
        with pytest.raises(OSError, match="cannot be written: File too large"):
            write(path, bytes(1_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["old"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_ended_while_it_writes_leaves_no_part(tmp_path: Path, number: signal.Signals) -> None:
    program = """
import sys, time
from pathlib import Path
from optpy.cli.output_file import whole_file
with whole_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    time.sleep(600)
"""
    path = tmp_path / "old"
    path.write_bytes(b"old")
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        assert len(os.listdir(tmp_path)) == 2
        process.send_signal(number)
        assert process.wait(60) in (128 + number, -number)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["old"]


def test_sigterm_is_as_before_when_all_is_written(tmp_path: Path) -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with whole_file(tmp_path / "new"):
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@click.command()
@click.option("--out", type=OutputFile())
def program(out: Path) -> None:
    write(out)
    click.echo("written")


def no_files(folder: Path) -> dict[str, Path]:
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "to_a_folder").symlink_to(folder)
    (folder / "to_a_device").symlink_to("/dev/null")
    (folder / "to_nowhere").symlink_to(folder / "gone" / "x")
    (folder / "file").write_text("")
    return {
        "is a folder": folder,
        "to_a_folder is a folder": folder / "to_a_folder",
        "full is a device": Path("/dev/full"),
        "to_a_device is a device": folder / "to_a_device",
        "pipe is a device, a pipe": folder / "pipe",
        "Too many levels of symbolic links": folder / "loop",
        "name too long": folder / ("x" * 300),
        "there is no folder": folder / "gone" / "x",
        "gone": folder / "to_nowhere",
        "there is no folder ": folder / "file" / "x",
    }


def test_what_is_no_file_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    for message, path in no_files(tmp_path).items():
        run = CliRunner().invoke(program, ["--out", str(path)])
        assert run.exit_code == 2, run.output
        assert "Invalid value for '--out'" in run.output
        assert message.lower() in " ".join(run.output.lower().split())
        assert "written\n" not in run.output
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the names of sockets are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("server")
        assert CliRunner().invoke(program, ["--out", "server"]).exit_code == 2
    assert stat.S_ISSOCK((tmp_path / "server").stat().st_mode)


def test_what_is_write_protected_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the permissions the system is asked, which lets its administrator write anywhere."""
    (tmp_path / "file").write_text("old")
    for locked, message in ((tmp_path / "file", "file is write-"), (tmp_path, "no file can be made in the folder")):
        monkeypatch.setattr(os, "access", lambda path, mode, locked=locked: Path(path) != locked)
        run = CliRunner().invoke(program, ["--out", str(tmp_path / "file")])
        assert run.exit_code == 2
        assert message in run.output
    assert (tmp_path / "file").read_text() == "old"
