"""Compiled libraries, and programs, on disk: shared by processes that may be killed at any moment.

One entry is one folder (source, library, digest of the library). It is built in a folder of its own and
renamed into place, so an entry is there whole or not at all; what a crash of the machine may still have cut
short is found by the digest and built again (loading a truncated library would kill the process). The lock
only spares work: correctness never depends on it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from optpy.errors import CompileError
from optpy.kernels.toolchain.cache_folder import open_folder, with_fallback
from optpy.kernels.toolchain.ownership import (
    disown,
    has_lost_its_owner,
    is_unfinished,
    owned,
    remove,
    unfinished_name,
)
from optpy.kernels.toolchain.progress import reported

LIMIT_VARIABLE = "OPTPY_CACHE_MAX"

_LIMIT = 512 * 2**20
LOCK_SECONDS = 300.0  # for which another process that builds the same is waited for
_ABANDONED_SECONDS = 3600.0  # no compilation takes this long
_FRESH_SECONDS = 60.0  # within which an entry that was built, or found, is loaded
_ROOM = 64 * 2**20  # bytes: what zig's runtime takes, and a library
_PROBE = 2**20
_FAILED = "failed."  # with a dot, which no key has
# Nothing else is ever removed: the folder may be one in which a user keeps other things.
_ENTRY = re.compile(r"(failed\.)?\w+-[0-9a-f]{64}")

_Loaded = TypeVar("_Loaded")


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A library in the cache, whole when it was looked up."""

    source: Path
    library: Path


@dataclass(frozen=True, slots=True)
class Cache:
    """Compiled libraries under `root`, by key. A key starts with the name of its kernel: `NAME-HASH`.

    Caches of other files may share a folder; their keys must differ.
    """

    root: Path
    source_suffix: str = ".c"
    library_suffix: str = ".so"
    limit: int = _LIMIT
    """Bytes of entries; what was used longest ago goes first."""

    def find(self, key: str) -> CacheEntry | None:
        """The entry, or None where there is none or its library is not, byte for byte, what was built."""
        entry = self._entry(self.root / key)
        try:
            expected = _digest_file(entry).read_text()
            if _digest(entry.library) != expected:
                return None
        except (OSError, UnicodeDecodeError):
            return None
        with suppress(OSError):  # a read-only cache is still a cache
            os.utime(entry.library.parent)
        return entry

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Held while `key` is built, so that of many processes one compiles; ends with its process."""
        from filelock import FileLock  # not needed for a hit, and a hit should be fast

        folder = self.root / "locks"
        folder.mkdir(mode=0o700, exist_ok=True)
        # 256 files at most, never removed: a file removed while another process waits for it locks nothing.
        bucket = hashlib.sha256(key.encode()).hexdigest()[:2]
        lock = FileLock(folder / f"{bucket}.lock", timeout=LOCK_SECONDS, mode=0o600)
        # A disk without locks, or a holder that hangs: then both compile, and the first to finish is kept.
        with suppress(OSError, NotImplementedError):
            try:
                lock.acquire(timeout=0)
            except TimeoutError:
                with reported("waiting for another process that compiles"):
                    lock.acquire(poll_interval=0.01)
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def workspace(self, key: str) -> Iterator[CacheEntry]:
        """An empty folder to build `key` in: write to the two paths, then `publish` or `keep_failed`.

        It goes at the end, or, where this process is killed, by the `evict` of another.
        """
        folder = self.root / unfinished_name()
        folder.mkdir(mode=0o700)
        try:
            with owned(folder):
                yield self._entry(folder, _name(key))
        finally:
            remove(folder)

    def publish(self, built: CacheEntry, key: str) -> CacheEntry:
        """Moves a finished build into place in one step; if another process was first, returns its entry."""
        _digest_file(built).write_text(_digest(built.library))
        for file in built.library.parent.iterdir():
            file.chmod(0o600)
        target = self.root / key
        while True:
            try:
                os.rename(built.library.parent, target)
            except OSError:
                if (entry := self.find(key)) is not None:
                    remove(built.library.parent)
                    return entry
                if not target.exists():
                    raise
                with suppress(FileNotFoundError):  # another process was as fast
                    self.retire(target)
            else:
                disown(target)
                return self._entry(target)

    def keep_failed(self, built: CacheEntry, key: str) -> Path:
        """Keeps a source that did not compile for its author to read; returns where."""
        target = self.root / (_FAILED + key)
        while True:
            with suppress(FileNotFoundError):
                self.retire(target)
            try:
                os.rename(built.source.parent, target)
                break
            except OSError:
                if not target.exists():  # another process was not as fast
                    raise
        disown(target)
        return target / built.source.name

    def discard(self, key: str) -> None:
        """Removes the entry; a process that has loaded it keeps its own view of it."""
        with suppress(FileNotFoundError):
            self.retire(self.root / key)

    def evict(self) -> None:
        """Removes what killed compilations have left, and the entries used longest ago beyond the limit."""
        self.remove_left_overs()
        total = 0
        for used, folder in sorted(self._used(_is_entry), reverse=True):
            total += _size(folder)
            if total > self.limit and abs(time.time() - used) > _FRESH_SECONDS:
                with suppress(OSError):
                    self.retire(folder)

    def remove_left_overs(self) -> tuple[int, int]:
        """Removes the workspaces that no living process owns: how many, and their bytes together."""
        left = [folder for used, folder in self._used(is_unfinished) if _is_abandoned(folder, used)]
        size = sum(_size(folder) for folder in left)
        for folder in left:
            remove(folder)
        return len(left), size

    def check_room(self, said: str = "") -> None:
        """Raises the OSError that a compiler meets which writes here, of which it tells in its own words if at all.

        Args:
            said: those words; they are put with the error.
        """
        try:
            self._check_room()
        except OSError as error:
            error.add_note(said)
            raise

    def _check_room(self) -> None:
        if shutil.disk_usage(self.root).free < _ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        longest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        if longest != resource.RLIM_INFINITY and longest < _ROOM:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        probe = self.root / unfinished_name()
        try:
            probe.write_bytes(bytes(_PROBE))  # quotas and permissions
        finally:
            remove(probe)

    def size(self) -> tuple[int, int]:
        """Number of entries and their bytes together."""
        sizes = [_size(folder) for _, folder in self._used(_is_entry)]
        return len(sizes), sum(sizes)

    def _entry(self, folder: Path, name: str | None = None) -> CacheEntry:
        name = _name(folder.name) if name is None else name
        return CacheEntry(source=folder / (name + self.source_suffix), library=folder / (name + self.library_suffix))

    def _used(self, is_meant: Callable[[Path], bool]) -> list[tuple[float, Path]]:
        """The time when each was used last, and its path."""
        found: list[tuple[float, Path]] = []
        with suppress(OSError), os.scandir(self.root) as items:  # a build will say what is wrong with the folder
            for item in items:
                path = Path(item.path)
                with suppress(OSError):  # just removed by another process
                    if is_meant(path):
                        found.append((item.stat().st_mtime, path))
        return found

    def retire(self, folder: Path) -> None:
        """Remove a folder of the cache, which is renamed first: nobody must find an entry that is half removed."""
        away = self.root / unfinished_name()
        os.rename(folder, away)
        remove(away)


def make_key(name: str, *parts: str) -> str:
    """The key of what is made from the parts, in their order."""
    # Each part with its length: ["ab", "c"] and ["a", "bc"] are different keys.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()}"


def find_or_build(
    cache: Cache, key: str, load: Callable[[CacheEntry], _Loaded], build: Callable[[Cache], CacheEntry]
) -> tuple[_Loaded, bool]:
    """Loads an entry, which is built if it is not there or does not load; also whether it was there.

    Of many processes one builds while the others wait. Where nothing can be written or loaded, the entry is built in
    a private cache, with a warning.

    Args:
        load: raises CompileError for an entry that is damaged, or that has gone; OSError where the folder is at fault.
        build: makes the entry in the cache that it is given; raises OSError where the folder is at fault.

    Raises:
        CompileError: of `build`, or of `load` for the entry that was built; or there is no folder to build in.
    """
    with suppress(OSError):
        if (loaded := _load_found(cache, key, load)) is not None:
            return loaded, True
    return with_fallback(cache.root, lambda root: _build_once(replace(cache, root=root), key, load, build))


def _build_once(
    cache: Cache, key: str, load: Callable[[CacheEntry], _Loaded], build: Callable[[Cache], CacheEntry]
) -> tuple[_Loaded, bool]:
    with cache.lock(key):
        loaded = _load_found(cache, key, load)  # another process may have built it while this one waited
        if loaded is not None:
            return loaded, True
        cache.discard(key)  # damaged, or of a C library that is no longer there
        cache.evict()  # before, so that there is room
        return load(build(cache)), False


def _load_found(cache: Cache, key: str, load: Callable[[CacheEntry], _Loaded]) -> _Loaded | None:
    entry = cache.find(key)
    if entry is not None:
        with suppress(CompileError):  # for example evicted since, or its C library was upgraded: built again
            return load(entry)
    return None


def open_cache() -> Cache:
    """The user's cache, see `open_folder`.

    Raises:
        CompileError: other users could put code into its folder, or OPTPY_CACHE_MAX is no size.
    """
    return Cache(open_folder(), limit=_limit())


def _limit() -> int:
    text = os.environ.get(LIMIT_VARIABLE, "").strip()
    if not text:
        return _LIMIT
    match = re.fullmatch(r"(\d+)([KMGT]?)", text.upper())
    if match is None:
        raise CompileError(f"{LIMIT_VARIABLE} is a number of bytes, 2G or 500M for short, and not {text!r}; correct it")
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")


def _is_entry(folder: Path) -> bool:
    return _ENTRY.fullmatch(folder.name) is not None


def _is_abandoned(workspace: Path, used: float) -> bool:
    lost = has_lost_its_owner(workspace)
    # Where it cannot be told (no locks on this disk), its age tells; a clock may have been wrong by years.
    return abs(time.time() - used) > _ABANDONED_SECONDS if lost is None else lost


def _name(key: str) -> str:
    return key.rpartition("-")[0]


def _digest_file(entry: CacheEntry) -> Path:
    return entry.library.with_suffix(".sha256")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(folder: str | Path) -> int:
    """Bytes of the files in a folder, and in those within; every build asks this of every entry."""
    with suppress(OSError), os.scandir(folder) as files:
        return sum(
            _size(file.path) if file.is_dir(follow_symlinks=False) else file.stat(follow_symlinks=False).st_size
            for file in files
        )
    return 0
