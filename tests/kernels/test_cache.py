"""The cache of libraries: races, kills, damage, permissions."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

import pytest

from optpy.errors import CompileError
from optpy.kernels import toolchain
from optpy.kernels.cache import Cache, Entry, open_cache
from optpy.kernels.compiler import compile_c
from optpy.kernels.toolchain import compiler_environment, find_toolchain

ADD = "int add(int a, int b) { return a + b; }\n"
NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Counter:
    """A compiler that writes down each compilation, and can be made to hang."""

    log: Path
    hang: Path  # while this file exists, compilations do not come to an end

    def compilations(self) -> int:
        return len(self.processes())

    def processes(self) -> list[int]:
        """Process identifiers of the compilers, in the order in which they began."""
        return [int(line.split()[-1]) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of its own for the test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("OPTPY_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter:
    """The compiler of this machine behind a script. Before `root`: its runtime is built already."""
    user_cache = open_cache().root
    command = " ".join(f"'{word}'" for word in find_toolchain(user_cache).command)
    zig_cache = compiler_environment(user_cache, user_cache)["ZIG_GLOBAL_CACHE_DIR"]
    made = Counter(tmp_path / "log", tmp_path / "hang")
    script = tmp_path / "counting-cc"
    script.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = --version ]; then exec {command} --version; fi\n'
        f"echo compiled by $$ >> '{made.log}'\n"
        f"while [ -e '{made.hang}' ]; do sleep 0.02; done\n"
        f"ZIG_GLOBAL_CACHE_DIR='{zig_cache}' exec {command} \"$@\"\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("OPTPY_CC", str(script))
    return made


def compile_and_add(answers: Queue[tuple[int, bool]]) -> None:
    compiled = compile_c(ADD, name="add")
    answers.put((compiled.library.add(20, 22), compiled.cache_hit))


def build(cache: Cache, key: str, content: bytes = b"library", used: float | None = None) -> Entry:
    """An entry without any compiler."""
    built = cache.workspace(key)
    built.source.write_text("source")
    built.library.write_bytes(content)
    entry = cache.publish(built, key)
    if used is not None:
        os.utime(entry.library.parent, (used, used))
    return entry


def test_second_time_is_a_hit(counter: Counter, root: Path) -> None:
    first, second = compile_c(ADD, name="add"), compile_c(ADD, name="add")
    assert (first.cache_hit, second.cache_hit) == (False, True)
    assert first.path == second.path
    assert counter.compilations() == 1
    assert not compile_c(ADD + "\n", name="add").cache_hit
    assert not compile_c(ADD, name="other").cache_hit
    assert not compile_c(ADD, name="add", werror=True).cache_hit
    assert counter.compilations() == 4
    assert not list(root.glob("tmp.*"))


def test_change_of_processor_or_compiler_is_a_miss(
    counter: Counter, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_c(ADD, name="add")
    monkeypatch.setattr("optpy.kernels.compiler.processor_identity", lambda: "another processor")
    assert not compile_c(ADD, name="add").cache_hit
    script = Path(os.environ["OPTPY_CC"])
    script.write_text(script.read_text().replace("exec", "echo patched; exec", 1))
    toolchain._find_toolchain.cache_clear()
    assert not compile_c(ADD, name="add").cache_hit
    assert counter.compilations() == 3


def test_of_many_processes_one_compiles(counter: Counter, root: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers: Queue[tuple[int, bool]] = context.Manager().Queue()
    counter.hang.touch()  # until all are there
    processes = [context.Process(target=compile_and_add, args=(answers,)) for _ in range(4)]
    for process in processes:
        process.start()
    wait_for(lambda: counter.compilations() == 1)
    time.sleep(0.3)  # time for a second one to make the mistake
    counter.hang.unlink()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    results = [answers.get() for _ in processes]
    assert [total for total, _ in results] == [42] * 4
    assert sorted(hit for _, hit in results) == [False, True, True, True]
    assert counter.compilations() == 1


def test_killed_in_the_middle_of_a_compilation(counter: Counter, root: Path) -> None:
    context = multiprocessing.get_context("spawn")
    counter.hang.touch()
    process = context.Process(target=compile_and_add, args=(context.Manager().Queue(),))
    process.start()
    wait_for(lambda: counter.compilations() == 1)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    # The compiler with it, as where a whole machine or a job's group goes: alone, it would still write its library.
    (compiler,) = counter.processes()
    os.kill(compiler, signal.SIGKILL)
    process.join(60)
    counter.hang.unlink()
    compiled = compile_c(ADD, name="add")  # its lock went with it
    assert not compiled.cache_hit
    assert compiled.library.add(20, 22) == 42
    (abandoned,) = root.glob("tmp.*")
    open_cache().evict()
    assert abandoned.exists()  # for all we know its owner is still at work
    long_ago = time.time() - 7200
    os.utime(abandoned, (long_ago, long_ago))
    open_cache().evict()
    assert not abandoned.exists()
    assert compile_c(ADD, name="add").cache_hit


def truncate(entry: Path) -> None:
    library = entry / "add.so"
    library.write_bytes(library.read_bytes()[:2000])


def flip(entry: Path) -> None:
    library = entry / "add.so"
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.write_bytes(content)


def lose_digest(entry: Path) -> None:
    (entry / "add.sha256").unlink()


def lose_library(entry: Path) -> None:
    (entry / "add.so").unlink()


def replace_by_text(entry: Path) -> None:
    """Whole by its digest, and still not a library."""
    import hashlib

    (entry / "add.so").write_bytes(b"not a library")
    (entry / "add.sha256").write_text(hashlib.sha256(b"not a library").hexdigest())


@pytest.mark.parametrize("damage", [truncate, flip, lose_digest, lose_library, replace_by_text])
def test_damaged_entry_is_built_again(damage: object, counter: Counter, root: Path) -> None:
    # In another process, since this one must not have the library loaded.
    context = multiprocessing.get_context("spawn")
    answers: Queue[tuple[int, bool]] = context.Manager().Queue()

    def run() -> tuple[int, bool]:
        process = context.Process(target=compile_and_add, args=(answers,))
        process.start()
        process.join(60)
        assert process.exitcode == 0
        return answers.get()

    assert run() == (42, False)
    (entry,) = root.glob("add-*")
    assert callable(damage)
    damage(entry)
    assert run() == (42, False)
    assert run() == (42, True)
    assert counter.compilations() == 2


def test_only_the_owner_can_enter(counter: Counter, root: Path) -> None:
    before = os.umask(0)
    try:
        compiled = compile_c(ADD, name="add")
    finally:
        os.umask(before)
    assert mode(root) == mode(root / "zig") == mode(root / "locks") == mode(compiled.path.parent) == 0o700
    assert {mode(file) for file in compiled.path.parent.iterdir()} == {0o600}
    assert mode(root / "compilers.json") == 0o600


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


def test_folder_that_cannot_be_made_gives_a_warning_and_works(
    counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OPTPY_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(RuntimeWarning, match=r"cannot use its cache folder .*file/cache.*OPTPY_CACHE_DIR"):
        compiled = compile_c(ADD, name="add")
    assert compiled.library.add(20, 22) == 42
    assert mode(compiled.path.parents[1]) == 0o700


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


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache its owner may not write to; not under tmp_path, which only root can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="optpy-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        cache = folder / "cache"
        cache.mkdir(mode=0o500)
        if os.geteuid() == 0:
            os.chown(cache, NOBODY, NOBODY)
        monkeypatch.setenv("OPTPY_CACHE_DIR", str(cache))
        yield cache
        cache.chmod(0o700)


def test_read_only_folder_is_told_from_a_writable_one(read_only: Path) -> None:
    with unprivileged():
        assert not Cache(read_only).is_writable()
        read_only.chmod(0o700)
        assert Cache(read_only).is_writable()
        assert list(read_only.iterdir()) == []


def test_read_only_folder_gives_hits_silently_and_misses_with_a_warning(
    counter: Counter, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_c(ADD, name="add")
    monkeypatch.setattr(Cache, "is_writable", lambda self: self.root != root)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_c(ADD, name="add").path == first.path
    other = ADD.replace("+", "-")
    with pytest.warns(RuntimeWarning, match="not writable"):
        missed = compile_c(other, name="subtract")
    assert missed.library.add(5, 3) == 2
    assert root not in missed.path.parents
    with pytest.warns(RuntimeWarning, match="not writable"):
        assert compile_c(other, name="subtract").cache_hit  # within this process


def test_first_of_two_builds_is_kept(root: Path) -> None:
    cache = open_cache()
    late = cache.workspace("name-1")
    late.source.write_text("source")
    late.library.write_bytes(b"late")
    first = build(cache, "name-1", b"first")
    assert cache.publish(late, "name-1") == first
    assert first.library.read_bytes() == b"first"
    assert not list(root.glob("tmp.*"))


def test_publish_replaces_a_damaged_entry(root: Path) -> None:
    cache = open_cache()
    build(cache, "name-1", b"first").library.write_bytes(b"fir")
    assert cache.find("name-1") is None
    assert build(cache, "name-1", b"second").library.read_bytes() == b"second"
    assert cache.find("name-1") is not None
    assert not list(root.glob("tmp.*"))


def test_eviction_takes_what_was_used_longest_ago(root: Path) -> None:
    cache = open_cache()
    now = time.time()
    for age in range(5):
        build(cache, f"name-{age}", bytes(1000), used=now - 100 * age)
    assert cache.find("name-4") is not None  # used now
    cache.evict(limit=3300)
    assert {folder.name for folder in root.glob("name-*")} == {"name-4", "name-0", "name-1"}
    assert (root / "zig").exists()
    count, size = cache.size()
    assert count == 3
    assert 3000 < size <= 3300


def test_failed_source_is_kept_once(root: Path) -> None:
    cache = open_cache()
    for text in ("first", "second"):
        built = cache.workspace("name-1")
        built.source.write_text(text)
        kept = cache.keep_failed(built, "name-1")
    assert kept.read_text() == "second"
    assert cache.find("name-1") is None
    assert [folder.name for folder in root.glob("*name*")] == ["failed.name-1"]


def test_lock_keeps_others_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from filelock import FileLock, Timeout

    cache = open_cache()
    with cache.lock("name-1"):
        (file,) = (root / "locks").iterdir()
        with pytest.raises(Timeout):
            FileLock(file, timeout=0.05).acquire()
    with suppress(Timeout), FileLock(file, timeout=5):
        monkeypatch.setattr("optpy.kernels.cache._LOCK_SECONDS", 0.05)
        with cache.lock("name-1"):  # a holder that hangs delays, and does not stop
            entered = True
    assert entered


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def wait_for(condition: object, seconds: float = 60) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
