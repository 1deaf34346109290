"""The cache of libraries: races, kills, damage, permissions."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import pytest

from optpy.errors import CompileError
from optpy.kernels.toolchain import toolchain
from optpy.kernels.toolchain.cache import Cache, CacheEntry, find_or_build, make_key, open_cache
from optpy.kernels.toolchain.compiler import compile_c
from optpy.kernels.toolchain.ownership import unfinished_name
from tests.support.compilers import ADD, Counter, wait_for

pytestmark = pytest.mark.native


def compile_and_add(answers: SimpleQueue[tuple[int, bool]], folders: Sequence[Path] = (), times: int = 1) -> None:
    for folder in folders or [Path(os.environ["OPTPY_CACHE_DIR"])]:
        os.environ["OPTPY_CACHE_DIR"] = str(folder)
        for _ in range(times):
            compiled = compile_c(ADD, name="add")
            answers.put((compiled.library.add(20, 22), compiled.cache_hit))


def place(built: CacheEntry, content: bytes = b"library") -> CacheEntry:
    built.source.write_text("source")
    built.library.write_bytes(content)
    return built


def key_of(name: str) -> str:
    return make_key("name", name)


KEY = key_of("one")


def build(cache: Cache, key: str, content: bytes = b"library", used: float | None = None) -> CacheEntry:
    """An entry without any compiler."""
    with cache.workspace(key) as built:
        entry = cache.publish(place(built, content), key)
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
    monkeypatch.setattr("optpy.kernels.toolchain.compiler.processor_identity", lambda: "another processor")
    assert not compile_c(ADD, name="add").cache_hit
    script = Path(os.environ["OPTPY_CC"])
    script.write_text(script.read_text().replace("exec", "echo patched; exec", 1))
    toolchain.toolchain_for.cache_clear()
    assert not compile_c(ADD, name="add").cache_hit
    assert counter.compilations() == 3


def test_of_many_processes_one_compiles(counter: Counter, root: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers: SimpleQueue[tuple[int, bool]] = context.SimpleQueue()
    counter.hang.touch()  # until all are there
    processes = [context.Process(target=compile_and_add, args=(answers,)) for _ in range(3)]
    for process in processes:
        process.start()
    wait_for(lambda: counter.compilations() == 1)
    time.sleep(0.3)  # time for a second one to make the mistake
    counter.hang.unlink()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 3
    results = [answers.get() for _ in processes]
    assert [total for total, _ in results] == [42] * 3
    assert sorted(hit for _, hit in results) == [False, True, True]
    assert counter.compilations() == 1


def test_killed_in_the_middle_of_a_compilation(counter: Counter, root: Path) -> None:
    context = multiprocessing.get_context("spawn")
    counter.hang.touch()
    answers: SimpleQueue[tuple[int, bool]] = context.SimpleQueue()
    process = context.Process(target=compile_and_add, args=(answers,))
    process.start()
    wait_for(lambda: counter.compilations() == 1)
    (workspace,) = root.glob("tmp.*")
    open_cache().evict()
    assert workspace.exists()  # its owner is at work
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    counter.hang.unlink()
    assert workspace.exists()
    compiled = compile_c(ADD, name="add")  # its lock went with it
    assert not compiled.cache_hit
    assert compiled.library.add(20, 22) == 42
    assert not list(root.glob("tmp.*"))
    assert compile_c(ADD, name="add").cache_hit


@pytest.mark.parametrize("years", [-40, 40])
def test_left_overs_go_and_owned_ones_stay_whatever_the_clock_says(
    years: int, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = open_cache()
    left = root / unfinished_name()
    left.mkdir()
    now = time.time()
    assert cache.remove_left_overs() == (0, 0)  # young, and of a disk without locks for all we know
    with cache.workspace(KEY) as built:
        built.source.write_text("source")
        monkeypatch.setattr("time.time", lambda: now + years * 365.25 * 86400)
        assert cache.remove_left_overs()[0] == 1
        assert built.source.exists()
        cache.publish(place(built), KEY)
    assert not left.exists()
    assert cache.find(KEY) is not None


def test_what_fails_while_it_is_built_leaves_nothing(root: Path) -> None:
    cache = open_cache()
    with pytest.raises(FileNotFoundError), cache.workspace(KEY) as built:
        cache.publish(built, KEY)  # without a library
    assert [item.name for item in root.iterdir()] == ["zig"]


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


def test_damaged_entries_are_built_again(counter: Counter, root: Path) -> None:
    # In other processes, since none must have the library loaded.
    context = multiprocessing.get_context("spawn")
    damages = (truncate, flip, lose_digest, lose_library, replace_by_text)
    folders = [root / damage.__name__ for damage in damages]

    def run(times: int) -> list[tuple[int, bool]]:
        answers: SimpleQueue[tuple[int, bool]] = context.SimpleQueue()
        process = context.Process(target=compile_and_add, args=(answers, folders, times))
        process.start()
        process.join(60)
        assert process.exitcode == 0
        return [answers.get() for _ in range(times * len(folders))]

    assert run(1) == [(42, False)] * len(folders)
    for damage, folder in zip(damages, folders, strict=True):
        (entry,) = folder.glob("add-*")
        damage(entry)
    assert run(2) == [(42, False), (42, True)] * len(folders)
    assert counter.compilations() == 2 * len(folders)


def test_only_the_owner_can_enter(counter: Counter, root: Path) -> None:
    before = os.umask(0)
    try:
        compiled = compile_c(ADD, name="add")
    finally:
        os.umask(before)
    assert mode(root) == mode(root / "zig") == mode(root / "locks") == mode(compiled.path.parent) == 0o700
    assert {mode(file) for file in compiled.path.parent.iterdir()} == {0o600}
    assert mode(root / "compilers.json") == 0o600


def test_first_of_two_builds_is_kept(root: Path) -> None:
    cache = open_cache()
    with cache.workspace(KEY) as late:
        place(late, b"late")
        first = build(cache, KEY, b"first")
        assert cache.publish(late, KEY) == first
    assert first.library.read_bytes() == b"first"
    assert not list(root.glob("tmp.*"))


def test_publish_replaces_a_damaged_entry(root: Path) -> None:
    cache = open_cache()
    build(cache, KEY, b"first").library.write_bytes(b"fir")
    assert cache.find(KEY) is None
    entry = build(cache, KEY, b"second")
    assert entry.library.read_bytes() == b"second"
    assert cache.find(KEY) is not None
    assert sorted(file.suffix for file in entry.library.parent.iterdir()) == [".c", ".sha256", ".so"]
    assert not list(root.glob("tmp.*"))


def test_eviction_takes_what_was_used_longest_ago(root: Path) -> None:
    cache = open_cache()
    now = time.time()
    keys = [key_of(str(age)) for age in range(5)]
    for age, key in enumerate(keys):
        build(cache, key, bytes(1000), used=now - 100 * age)
    (root / "of the user").write_bytes(bytes(10_000))  # who may keep other things here
    assert cache.find(keys[4]) is not None  # used now
    replace(cache, limit=3300).evict()
    assert {folder.name for folder in root.glob("name-*")} == {keys[4], keys[0], keys[1]}
    assert (root / "zig").exists()
    assert (root / "of the user").exists()
    count, size = cache.size()
    assert count == 3
    assert 3000 < size <= 3300


@pytest.mark.parametrize(("text", "limit"), [("", 512 * 2**20), ("0", 0), ("70000", 70000), ("2g", 2**31), ("5 K", 0)])
def test_the_limit_is_the_users(text: str, limit: int, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTPY_CACHE_MAX", text)
    if " " in text:
        with pytest.raises(CompileError, match=r"OPTPY_CACHE_MAX is a number of bytes, .* not '5 K'"):
            open_cache()
    else:
        assert open_cache().limit == limit


def test_a_cache_beyond_its_limit_keeps_what_was_just_compiled(
    counter: Counter, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTPY_CACHE_MAX", "1")
    first = compile_c(ADD, name="add")
    os.utime(first.path.parent, (0, 0))
    second, third = compile_c(ADD, name="other"), compile_c(ADD, name="third")
    assert not first.path.exists()
    assert first.library.add(20, 22) == 42  # what is loaded stays so
    assert second.path.exists()  # other processes may be about to load what is as new as this
    assert third.path.exists()
    assert compile_c(ADD, name="other").cache_hit


def build_again_and_again(root: Path, process: int, answers: SimpleQueue[int]) -> None:
    """With entries that are no longer fresh, and no room for any."""
    cache = Cache(root, limit=0)
    built = 0
    for turn in range(60):
        key = key_of(f"{process} {turn % 3}")
        content, hit = find_or_build(cache, key, read, partial(build, key=key, content=b"whole" * 1000))
        assert content == b"whole" * 1000
        built += not hit
        with suppress(FileNotFoundError):
            os.utime(root / key, (0, 0))
    answers.put(built)


def read(entry: CacheEntry) -> bytes:
    try:
        return entry.library.read_bytes()
    except OSError as error:
        raise CompileError("it has gone") from error


def test_many_processes_evict_what_others_use(root: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers: SimpleQueue[int] = context.SimpleQueue()
    folder = open_cache().root
    processes = [context.Process(target=build_again_and_again, args=(folder, k, answers)) for k in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sum(answers.get() for _ in processes) > 9  # some had gone
    assert not list(root.glob("tmp.*"))


def test_failed_source_is_kept_once(root: Path) -> None:
    cache = open_cache()
    for text in ("first", "second"):
        with cache.workspace(KEY) as built:
            built.source.write_text(text)
            kept = cache.keep_failed(built, KEY)
    assert kept.read_text() == "second"
    assert cache.find(KEY) is None
    assert [folder.name for folder in root.glob("*name*")] == [f"failed.{KEY}"]


def test_a_failed_source_that_others_keep_or_remove_meanwhile(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = open_cache()
    retire, left = Cache.retire, iter((True, False))

    def retire_as_another_does(self: Cache, folder: Path) -> None:
        retire(self, folder)
        if next(left, False):  # and keeps its own at once
            folder.mkdir()
            (folder / "theirs").touch()

    (root / f"failed.{KEY}").mkdir(parents=True)
    monkeypatch.setattr(Cache, "retire", retire_as_another_does)
    with cache.workspace(KEY) as built:
        built.source.write_text("mine")
        assert cache.keep_failed(built, KEY).read_text() == "mine"


def test_lock_keeps_others_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from filelock import FileLock, Timeout

    cache = open_cache()
    with cache.lock(KEY):
        (file,) = (root / "locks").iterdir()
        with pytest.raises(Timeout):
            FileLock(file, timeout=0.05).acquire()
    with suppress(Timeout), FileLock(file, timeout=5):
        monkeypatch.setattr("optpy.kernels.toolchain.cache.LOCK_SECONDS", 0.05)
        with cache.lock(KEY):  # a holder that hangs delays, and does not stop
            entered = True
    assert entered


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
