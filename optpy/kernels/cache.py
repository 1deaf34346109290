"""The folder of compiled libraries: shared by processes that may be killed at any moment.

One entry is one folder (source, library, digest of the library). It is built in a folder of its own and
renamed into place, so an entry is there whole or not at all; what a crash of the machine may still have cut
short is found by the digest and built again (loading a truncated library would kill the process). The lock
only spares work: correctness never depends on it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import stat
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from optpy.errors import CompileError

CACHE_VARIABLE = "OPTPY_CACHE_DIR"
SIZE_LIMIT = 512 * 2**20  # bytes of entries; what was used longest ago goes first

_LOCK_SECONDS = 300.0
_ABANDONED_SECONDS = 3600.0  # no compilation takes this long: whoever made the workspace is gone
# With a dot, which no key has.
_WORKSPACE = "tmp."
_FAILED = "failed."
_OWN_FILES = frozenset({"zig", "locks", "compilers.json"})

_Loaded = TypeVar("_Loaded")


@dataclass(frozen=True, slots=True)
class Entry:
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

    def find(self, key: str) -> Entry | None:
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

    def is_writable(self) -> bool:
        """Whether an entry could be added; asked by trying, since a disk may be full or read-only."""
        try:
            probe = self.root / _unique_name()
            probe.mkdir(mode=0o700)
            probe.rmdir()
        except OSError:
            return False
        return True

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Held while `key` is built, so that of many processes one compiles; ends with its process."""
        from filelock import FileLock  # not needed for a hit, and a hit should be fast

        folder = self.root / "locks"
        folder.mkdir(mode=0o700, exist_ok=True)
        # 256 files at most, never removed: a file removed while another process waits for it locks nothing.
        bucket = hashlib.sha256(key.encode()).hexdigest()[:2]
        lock = FileLock(folder / f"{bucket}.lock", timeout=_LOCK_SECONDS, mode=0o600)
        # A disk without locks, or a holder that hangs: then both compile, and the first to finish is kept.
        with suppress(OSError, NotImplementedError):
            lock.acquire(poll_interval=0.01)
        try:
            yield
        finally:
            lock.release()

    def workspace(self, key: str) -> Entry:
        """An empty folder to build `key` in: write to the two paths, then `publish` or `keep_failed`."""
        folder = self.root / _unique_name()
        folder.mkdir(mode=0o700)
        return self._entry(folder, _name(key))

    def publish(self, built: Entry, key: str) -> Entry:
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
                    _remove(built.library.parent)
                    return entry
                if not target.exists():
                    raise
                self._retire(target)
            else:
                return self._entry(target)

    def keep_failed(self, built: Entry, key: str) -> Path:
        """Keeps a source that did not compile for its author to read; returns where."""
        target = self.root / (_FAILED + key)
        if target.exists():
            self._retire(target)
        os.rename(built.source.parent, target)
        return target / built.source.name

    def discard(self, key: str) -> None:
        """Removes the entry; a process that has loaded it keeps its own view of it."""
        with suppress(FileNotFoundError):
            self._retire(self.root / key)

    def evict(self, limit: int = SIZE_LIMIT) -> None:
        """Removes abandoned workspaces, and the entries used longest ago beyond `limit` bytes."""
        total = 0
        for used, folder in sorted(self._folders(), reverse=True):
            if folder.name.startswith(_WORKSPACE):
                if time.time() - used > _ABANDONED_SECONDS:
                    _remove(folder)
                continue
            total += _size(folder)
            if total > limit:
                with suppress(FileNotFoundError):
                    self._retire(folder)

    def size(self) -> tuple[int, int]:
        """Number of entries and their bytes together."""
        sizes = [_size(folder) for _, folder in self._folders() if not folder.name.startswith(_WORKSPACE)]
        return len(sizes), sum(sizes)

    def _entry(self, folder: Path, name: str | None = None) -> Entry:
        name = _name(folder.name) if name is None else name
        return Entry(source=folder / (name + self.source_suffix), library=folder / (name + self.library_suffix))

    def _folders(self) -> list[tuple[float, Path]]:
        found = []
        for item in self.root.iterdir():
            if item.name not in _OWN_FILES:
                with suppress(FileNotFoundError):
                    found.append((item.stat().st_mtime, item))
        return found

    def _retire(self, folder: Path) -> None:
        # Renamed first: nobody must find an entry that is half removed.
        away = self.root / _unique_name()
        os.rename(folder, away)
        _remove(away)


def make_key(name: str, *parts: str) -> str:
    """The key of what is made from the parts, in their order."""
    # Each part with its length: ["ab", "c"] and ["a", "bc"] are different keys.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()}"


def find_or_build(
    cache: Cache, key: str, load: Callable[[Entry], _Loaded], build: Callable[[Cache], Entry]
) -> tuple[_Loaded, bool]:
    """What is loaded from an entry, which is built if it is not there or does not load; whether it was there.

    Of many processes one builds while the others wait. Where nothing can be written, the entry is built in a private
    cache, with a warning.

    Args:
        load: raises CompileError for an entry that is damaged, or that has gone.
        build: makes the entry in the cache that it is given.

    Raises:
        CompileError: of `build`, or of `load` for the entry that was built.
    """
    loaded = _load_found(cache, key, load)
    if loaded is None and not cache.is_writable():
        cache = replace(cache, root=temporary_cache(cache.root).root)
        loaded = _load_found(cache, key, load)
    if loaded is not None:
        return loaded, True
    with cache.lock(key):
        loaded = _load_found(cache, key, load)  # another process may have built it while this one waited
        hit = loaded is not None
        if loaded is None:
            cache.discard(key)  # damaged, or of a C library that is no longer there
            loaded = load(build(cache))
    cache.evict()
    return loaded, hit


def _load_found(cache: Cache, key: str, load: Callable[[Entry], _Loaded]) -> _Loaded | None:
    entry = cache.find(key)
    if entry is not None:
        with suppress(CompileError):  # for example evicted since, or its C library was upgraded: built again
            return load(entry)
    return None


def open_cache() -> Cache:
    """The user's cache: the folder `OPTPY_CACHE_DIR`, else the platform's cache folder for optpy.

    It is made readable by its owner only; the platform's folder is made so again where it has become readable by
    others, while one that `OPTPY_CACHE_DIR` names keeps its permissions, since its user may share it, or keep other
    things there. A folder that cannot be made is replaced, with a warning, by one that lasts as long as this process.

    Raises:
        CompileError: other users could put code into the folder.
    """
    root = cache_folder()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = root.stat()
    except OSError as error:
        return temporary_cache(root, str(error))
    _refuse_foreign(root, status)
    if not _requested_folder() and status.st_uid == os.geteuid() and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        with suppress(OSError):
            root.chmod(0o700)
    with suppress(OSError):  # made here, since compilers make theirs with the permissions of the umask
        (root / "zig").mkdir(mode=0o700, exist_ok=True)
    return Cache(root)


def cache_folder() -> Path:
    """Where the cache is, whether or not it exists yet."""
    if requested := _requested_folder():
        return Path(requested).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("optpy"))


def _requested_folder() -> str:
    return os.environ.get(CACHE_VARIABLE, "").strip()


def temporary_cache(instead_of: Path, reason: str = "it is not writable") -> Cache:
    """A private cache for this process alone, removed when the process ends; says so in a warning."""
    warnings.warn(
        f"optpy cannot use its cache folder {instead_of}: {reason}. Kernels are compiled again in every "
        f"process; set {CACHE_VARIABLE} to a folder you can write to",
        RuntimeWarning,
        stacklevel=3,
    )
    return Cache(Path(_temporary_folder().name))


@functools.cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="optpy-", ignore_cleanup_errors=True)


def _refuse_foreign(root: Path, status: os.stat_result) -> None:
    # What lies in this folder is loaded into the process and run.
    if status.st_uid not in (os.geteuid(), 0):
        raise CompileError(
            f"the cache folder {root} belongs to another user (uid {status.st_uid}), who could put code into "
            f"it; set {CACHE_VARIABLE} to a folder of your own"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CompileError(
            f"the cache folder {root} can be written by other users ({stat.filemode(status.st_mode)}), who "
            f"could put code into it; `chmod go-w {root}`, or set {CACHE_VARIABLE} to another folder"
        )


def _name(key: str) -> str:
    return key.rpartition("-")[0]


def _digest_file(entry: Entry) -> Path:
    return entry.library.with_suffix(".sha256")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unique_name() -> str:
    return _WORKSPACE + uuid.uuid4().hex


def _size(folder: Path) -> int:
    with suppress(OSError):
        return sum(file.stat().st_size for file in folder.iterdir())
    return 0


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
