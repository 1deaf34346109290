from __future__ import annotations

import ctypes
import importlib.metadata
import re
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from optpy.cli import main
from optpy.errors import CompileError
from optpy.kernels.toolchain.ownership import owned, unfinished_name
from tests.support.compilers import make_counter

pytestmark = pytest.mark.native
DOCTOR = sys.modules["optpy.cli.doctor"]
"""The module; in its package the command has the same name."""


def doctor() -> Result:
    return CliRunner().invoke(main, ["doctor"])


def words(run: Result) -> str:
    """What was printed, without its lines."""
    return " ".join(run.output.split())


@pytest.fixture(autouse=True)
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose runtime is built already."""
    monkeypatch.setenv("OPTPY_CC", str(make_counter(tmp_path)[1]))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "kernels"
    monkeypatch.setenv("OPTPY_CACHE_DIR", str(folder))
    return folder


def test_a_healthy_machine(cache: Path, cache_of_the_tests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPTPY_CC")
    cache.mkdir(mode=0o700)
    (cache / "zig").symlink_to(cache_of_the_tests / "zig")  # the compiler's own runtime, which takes it ten seconds
    run = doctor()
    assert run.exit_code == 0, run.output
    assert "optpy can solve here" in run.output
    assert str(cache) in run.output
    assert "drwx------" in run.output
    assert "compiled and loaded" in run.output
    assert "found in the cache" in doctor().output


def test_a_compiler_that_does_not_run(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTPY_CC", "/no/such/compiler")
    run = doctor()
    assert run.exit_code == 1
    assert "broken" in run.output
    assert "/no/such/compiler" in run.output
    assert "optpy cannot solve here: see compiler" in run.output


def test_a_compiler_that_fails(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && echo one && exit 0\necho it hurts >&2\nexit 3\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("OPTPY_CC", str(compiler))
    run = doctor()
    assert run.exit_code == 1
    assert "it hurts" in run.output
    assert "see trial" in run.output


def test_a_cache_that_others_may_write_to(cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    run = doctor()
    assert run.exit_code == 1
    assert "can be written by other users" in run.output


def test_a_cache_that_cannot_be_made_is_a_limit_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OPTPY_CACHE_DIR", str(tmp_path / "file" / "cache"))
    output = words(doctor())
    assert "access limited a file stands in its path. Every process compiles again; set OPTPY_CACHE_DIR" in output
    assert "optpy can solve here" in output


def test_a_cache_of_no_size(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTPY_CACHE_MAX", "much")
    run = doctor()
    assert run.exit_code == 1
    assert "OPTPY_CACHE_MAX is a number of bytes" in words(run)


def test_what_the_cache_has(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTPY_CACHE_MAX", "2G")
    output = words(doctor())
    assert re.search(
        r"size 1 libraries and programs, \d\.\d MiB of at most 2048\.0 MiB \(another limit: OPTPY_CACHE_MAX\)", output
    )
    assert re.search(r"free space \d+\.\d MiB", output)
    assert "loading works a library was loaded from it" in output
    assert "left over nothing" in output
    dead = cache / unfinished_name()
    dead.mkdir()
    with owned(dead):
        assert "left over nothing" in words(doctor())
    (dead / "x.o").write_bytes(bytes(3 * 2**20))
    assert "left over 1 of killed compilations, 3.0 MiB, removed" in words(doctor())
    assert not dead.exists()


def test_a_full_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(100, 99, 2**20))
    output = words(doctor())
    assert "free space 1.0 MiB" in output
    assert "access limited drwx------: its disk is full. Every process compiles again; set OPTPY_CACHE_DIR" in output


def test_a_folder_from_which_nothing_is_loaded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(path: str) -> ctypes.CDLL:
        if cache in Path(path).parents:
            raise OSError(f"{path}: failed to map segment from shared object")
        return real(path)

    real = ctypes.CDLL
    monkeypatch.setattr("optpy.kernels.toolchain.compiler.ctypes.CDLL", load)
    run = doctor()
    assert run.exit_code == 0, run.output
    assert "loading limited no library can be loaded from it (is it mounted noexec?" in words(run)


def test_without_a_gpu_the_reason_and_the_cure_are_given(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = {"CuPy": "cupy-cuda12x 14.2.0", "error": "no driver; install one"}
    monkeypatch.setattr(DOCTOR, "describe_cuda", lambda: dict(described))
    run = doctor()
    assert run.exit_code == 0, run.output
    assert "cupy-cuda12x 14.2.0" in run.output
    assert "absent  no driver; install one" in run.output


class Gpu:
    """As much of a device as a trial takes."""

    name = "NVIDIA H200"
    refuses = ""

    def load(self, source: str) -> SimpleNamespace:
        if self.refuses:
            raise CompileError(self.refuses)
        assert 'extern "C" __global__ void optpy_doctor(' in source
        return SimpleNamespace(kernel={"optpy_doctor": 1}.__getitem__, cache_hit=False, seconds=0.25)


@pytest.fixture
def gpu(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    described = {"NVRTC": "12.9", "driver": "up to CUDA 12.8", "device 0": "NVIDIA H200, sm_90", "device 1": "other"}
    made = Gpu()
    monkeypatch.setattr(DOCTOR, "describe_cuda", lambda: dict(described))
    monkeypatch.setattr(DOCTOR, "find_device", lambda: made)
    return made


@pytest.mark.usefixtures("gpu")
def test_the_gpus_are_listed() -> None:
    output = " ".join(doctor().output.split())
    for row in ("NVRTC 12.9", "driver up to CUDA 12.8", "device 0 NVIDIA H200, sm_90", "device 1 other"):
        assert row in output
    assert "trial works compiled and loaded on NVIDIA H200 in 0.25 s" in output


def test_a_gpu_that_does_not_load_a_kernel(gpu: Gpu) -> None:
    gpu.refuses = "the driver refuses it"
    run = doctor()
    assert run.exit_code == 0  # there is the CPU
    assert "trial limited CompileError: the driver refuses it" in " ".join(run.output.split())


def test_cuda_of_this_machine(cache: Path) -> None:
    output = doctor().output
    assert "CUDA" in output
    assert "CuPy" in output  # its version, or that it is not installed


def test_the_console_script_is_the_group() -> None:
    scripts = [s for s in importlib.metadata.entry_points(group="console_scripts") if s.name == "optpy"]
    if not scripts:
        pytest.skip("optpy runs from the checkout, without being installed")
    assert scripts[0].load() is main


@pytest.mark.parametrize("command", [[], ["solve"], ["inspect"], ["doctor"]])
def test_help(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "optpy", *command, "--help"], capture_output=True, text=True, check=True
    )
    assert "Usage: optpy" in done.stdout
