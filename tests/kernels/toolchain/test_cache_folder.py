"""The folder of the cache: whose it is, and what is done where it cannot be used."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import warnings
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from optpy.errors import CompileError
from optpy.kernels.toolchain import cache_folder
from optpy.kernels.toolchain.cache import Cache, make_key, open_cache
from optpy.kernels.toolchain.cache_folder import with_fallback
from optpy.kernels.toolchain.compiler import compile_c
from tests.support.compilers import ADD, Counter, wait_for

pytestmark = pytest.mark.native

NOBODY = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="only root can mount a disk")


@pytest.fixture(autouse=True)
def another_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As at the start of a process, and with a folder for temporary files of its own."""
    monkeypatch.setattr(cache_folder, "refused_folders", {})
    monkeypatch.setattr(cache_folder, "private_folders", {})
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.fixture
def disk(request: pytest.FixtureRequest, root: Path) -> Iterator[Path]:
    """A disk of its own in the place of the cache, mounted with the options of the test."""
    root.mkdir()
    options = f"mode=700,{request.param}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(root)], check=False).returncode != 0:
        pytest.skip("this root may not mount")
    yield root
    subprocess.run(["umount", "--lazy", str(root)], check=True)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def falls_back(reason: str, root: Path) -> None:
    """Kernels are compiled, into a private folder; of which there is one warning, which has the cure."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in ("add", "sum", "add"):
            compiled = compile_c(ADD, name=name)
            assert compiled.library.add(20, 22) == 42
            assert root not in compiled.path.parents
            assert mode(compiled.path.parents[1]) == 0o700
        assert compiled.cache_hit  # within this process
    (warning,) = caught
    text = str(warning.message)
    assert f"cannot use its cache folder {root}: " in text
    assert reason in text
    assert "set OPTPY_CACHE_DIR to a folder" in text


@pytest.mark.parametrize("bits", [0o770, 0o702, 0o777])
def test_folder_that_others_can_write_is_refused(bits: int, root: Path) -> None:
    root.mkdir()
    root.chmod(bits)
    with pytest.raises(CompileError, match=r"can be written by other users(?s:.*)chmod go-w"):
        compile_c(ADD, name="add")
    root.chmod(0o755)  # others may read
    assert open_cache().root == root
    assert mode(root) == 0o755


@pytest.mark.parametrize("bits", [0o755, 0o750, 0o711])
def test_the_platforms_folder_is_made_private_again(bits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "optpy"
    own.mkdir()
    own.chmod(bits)
    monkeypatch.delenv("OPTPY_CACHE_DIR", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / name))
    assert open_cache().root == own
    assert mode(own) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_folder_of_another_user_is_refused(root: Path) -> None:
    root.mkdir(mode=0o700)
    os.chown(root, NOBODY, NOBODY)
    with pytest.raises(CompileError, match=r"belongs to another user(?s:.*)OPTPY_CACHE_DIR"):
        compile_c(ADD, name="add")


def a_file(root: Path) -> None:
    root.touch()


def a_link_to_nothing(root: Path) -> None:
    root.symlink_to(root.parent / "nothing" / "here")


def a_link_to_itself(root: Path) -> None:
    root.symlink_to(root)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (a_file, "it is a file"),
        (a_link_to_nothing, "a link to nothing"),
        (a_link_to_itself, "a link to nothing"),
    ],
)
def test_what_is_no_folder(make: object, reason: str, counter: Counter, root: Path) -> None:
    assert callable(make)
    make(root)
    falls_back(reason, root)


def test_folder_in_a_file(counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OPTPY_CACHE_DIR", str(tmp_path / "file" / "cache"))
    falls_back("a file stands in its path", tmp_path / "file" / "cache")


@pytest.mark.parametrize("variable", ["OPTPY_CACHE_DIR", "HOME"])
def test_without_a_home_folder(
    variable: str, counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as where there is none
    monkeypatch.delenv("OPTPY_CACHE_DIR", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: f"~/.cache/{name}")
    if variable == "OPTPY_CACHE_DIR":
        monkeypatch.setenv("OPTPY_CACHE_DIR", "~/.cache/optpy")
    monkeypatch.chdir(tmp_path)
    falls_back("there is no home folder", Path("~/.cache/optpy"))
    assert not (tmp_path / "~").exists()


@as_root
@pytest.mark.parametrize(
    ("disk", "reason"),
    [
        ("size=64k", "its disk is full"),
        ("size=16m", "its disk is full"),
        ("noexec,size=128m", "no library can be loaded from it (is it mounted noexec?"),
        ("ro", "its file system is read-only"),
    ],
    indirect=["disk"],
)
def test_disk_that_cannot_be_used(reason: str, counter: Counter, disk: Path) -> None:
    if reason == "its disk is full":
        with pytest.raises(OSError, match="space"):
            (disk / "filling").write_bytes(bytes(32 * 2**20))
    falls_back(reason, disk)
    assert not list(disk.glob("tmp.*"))


def test_disk_that_has_no_room_for_a_compiler(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler fails in its own way; that the disk is nearly full is found by us."""
    fails = tmp_path / "cc"
    fails.write_text('#!/bin/sh\n[ "$1" = --version ] && exec echo mine\necho "NoSpaceLeft" >&2; exit 1\n')
    fails.chmod(0o700)
    monkeypatch.setenv("OPTPY_CC", str(fails))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(10, 10, 0) if root in path.parents else usage(1, 0, 1))
    with (
        pytest.warns(RuntimeWarning, match="its disk is full"),
        pytest.raises(
            CompileError,
            match=rf"cannot use its cache folder {root}: its disk is full; nor .*OPTPY_CACHE_DIR.*\n.*NoSpaceLeft",
        ),
    ):
        compile_c(ADD, name="add")


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.EDQUOT, "your quota"), (errno.EACCES, "no permission"), (errno.EIO, "Input/output error")],
)
def test_whatever_else_is_wrong_with_it(
    number: int, reason: str, counter: Counter, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_text(path: Path, *args: object, **options: object) -> int:
        if root in path.parents:
            raise OSError(number, os.strerror(number))
        return write(path, *args, **options)  # type: ignore[arg-type]

    write = Path.write_text
    monkeypatch.setattr(Path, "write_text", write_text)
    falls_back(reason, root)


@pytest.mark.nvrtc
def test_images_for_a_gpu_that_cannot_be_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from optpy.kernels.toolchain.nvrtc import compile_cuda

    def write_bytes(path: Path, data: bytes) -> int:
        if root in path.parents:
            raise OSError(errno.ENOSPC, "no space")
        return write(path, data)

    write = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    source = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2.0f; }\n'
    with pytest.warns(RuntimeWarning, match="its disk is full"):
        compiled = compile_cuda(source, "sm_90")
    assert root not in compiled.path.parents
    assert compile_cuda(source, "sm_90").cache_hit
    assert not list(root.glob("tmp.*"))


def test_hits_in_a_folder_that_is_only_read_are_silent(
    counter: Counter, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_c(ADD, name="add")
    mkdir = Path.mkdir

    def refuse(path: Path, *args: object, **options: object) -> None:
        if path.parent == root and not path.exists():
            raise PermissionError(errno.EACCES, "refused")
        mkdir(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert compile_c(ADD, name="add").path == first.path  # a warning would be an error here
    with pytest.warns(RuntimeWarning, match="not writable") as warned:
        assert not compile_c(ADD, name="other").cache_hit
    assert [w.filename for w in warned] == [__file__]  # the user's own line
    assert compile_c(ADD, name="add").path == first.path


def run(program: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


COMPILING = """
import os
from optpy.kernels.toolchain.compiler import compile_c
compiled = compile_c("int add(int a, int b) { return a + b; }", name="add")
print(compiled.library.add(20, 22), compiled.path.parents[1])
"""


def test_limit_on_the_size_of_files(counter: Counter, root: Path) -> None:
    """SIGXFSZ kills compilers, which does not say why."""
    limit = 4096
    done = run(COMPILING, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert done.returncode == 1
    error = done.stderr[done.stderr.rindex("CompileError") :]
    assert f"CompileError: optpy cannot use its cache folder {root}: files may not be as large" in error
    assert "ulimit -f unlimited" in error
    assert "Set OPTPY_CACHE_DIR to a folder" in error


@contextmanager
def unprivileged() -> Iterator[None]:
    """As a user whom permissions bind."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("bits", [0o000, 0o300, 0o500])
def test_permissions(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="optpy-test-") as name:  # tmp_path is for root only
        folder, temporary = Path(name) / "cache", Path(name) / "temporary"
        Path(name).chmod(0o755)
        for made in (folder, temporary):
            made.mkdir()
            if os.geteuid() == 0:
                os.chown(made, NOBODY, NOBODY)
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        monkeypatch.setenv("OPTPY_CACHE_DIR", str(folder))
        folder.chmod(bits)
        with unprivileged():
            cache = open_cache()
            assert (cache.root, cache.size(), cache.remove_left_overs()) == (folder, (0, 0), (0, 0))
            cache.evict()
            if bits & stat.S_IWUSR:
                assert with_fallback(folder, build_in).parents[1] == folder
            else:
                with pytest.warns(RuntimeWarning, match="no permission"):
                    assert with_fallback(folder, build_in).parents[2] == temporary
        folder.chmod(0o700)


def build_in(root: Path) -> Path:
    cache = Cache(root)
    key = make_key("name")
    with cache.workspace(key) as built, cache.lock(key):
        built.source.write_text("source")
        built.library.write_text("library")
        return cache.publish(built, key).library


def test_private_folder_goes_with_its_process(counter: Counter, root: Path, tmp_path: Path) -> None:
    root.touch()
    temporary = tmp_path / "temporary"
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONWARNINGS": "ignore"}
    forked = COMPILING + "if os.fork() == 0: raise SystemExit\nos.wait(); assert compiled.path.exists()\n"
    done = run(forked, env=environment)
    assert done.stdout.startswith(f"42 {temporary}/optpy-cache-"), done.stderr
    assert list(temporary.iterdir()) == []


def test_private_folder_of_a_killed_process_goes_with_the_next(counter: Counter, root: Path, tmp_path: Path) -> None:
    root.touch()
    temporary = tmp_path / "temporary"
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONWARNINGS": "ignore"}
    counter.hang.touch()
    process = subprocess.Popen([sys.executable, "-c", COMPILING], env=environment)
    wait_for(lambda: counter.compilations() == 1)
    (left,) = temporary.glob("optpy-cache-*")
    cache_folder.private_folder()
    assert left.exists()  # its owner lives
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    cache_folder.private_folders.clear()
    cache_folder.private_folder()
    assert not left.exists()
