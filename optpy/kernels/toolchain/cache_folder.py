"""The folder of compiled kernels, and the private one in its place where it cannot be used.

A folder that cannot be used (full, read-only, not ours to write, mounted so that nothing in it can be run) is replaced
by a private one, with one warning. Where that cannot be used either, there is a CompileError.
"""

from __future__ import annotations

import atexit
import errno
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

from optpy.errors import CompileError, warn
from optpy.kernels.toolchain.ownership import has_lost_its_owner, owned, remove

CACHE_VARIABLE = "OPTPY_CACHE_DIR"

_PRIVATE = "optpy-cache-"
CURE = f"set {CACHE_VARIABLE} to a folder that you can write to, that has space, and from which libraries can be loaded"
_REASONS = {
    errno.ENOSPC: "its disk is full",
    errno.EDQUOT: "your quota on its disk is used up",
    errno.EFBIG: "files may not be as large as a compiler's (raise the limit: `ulimit -f unlimited`)",
    errno.EROFS: "it is not writable (its file system is read-only)",
    errno.EACCES: "it is not writable (no permission)",
    errno.EPERM: "it is not writable (not permitted)",
    errno.EEXIST: "it is a file, or a link to nothing",
    errno.ENOTDIR: "a file stands in its path",
}

_Made = TypeVar("_Made")

refused_folders: dict[Path, str] = {}
"""Folders that could not be used, and why: not tried again, and not warned of again, by this process."""


class NothingLoadsError(OSError):
    """No library can be loaded from a folder."""


def cache_folder() -> Path:
    """The folder of the cache, whether or not it exists yet; begins with ~ where there is no such home folder."""
    requested = os.environ.get(CACHE_VARIABLE, "").strip()
    if not requested:
        import platformdirs

        requested = platformdirs.user_cache_dir("optpy")
    folder = os.path.expanduser(requested)
    return Path(folder) if folder.startswith("~") else Path(folder).absolute()


def open_folder() -> Path:
    """The user's cache folder, see `make_folder`, or, with a warning, a private one.

    Raises:
        CompileError: other users could put code into the folder; or neither can be used.
    """
    root = cache_folder()
    try:
        make_folder(root)  # one that was refused too: what is in it can still be used
    except OSError as error:
        _refuse(root, reason_of(error))
        return _in_private(root, lambda private: private)
    return root


def make_folder(root: Path) -> None:
    """Make the cache folder where it is not there.

    It is readable by its owner only; the platform's folder is made so again where it has become readable by others,
    while one that `OPTPY_CACHE_DIR` names keeps its permissions, since its user may share it, or keep other things
    there.

    Raises:
        CompileError: other users could put code into the folder.
        OSError: it cannot be made.
    """
    if not root.is_absolute():
        raise FileNotFoundError(errno.ENOENT, "there is no home folder")
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = root.stat()
    _refuse_foreign(root, status)
    requested = os.environ.get(CACHE_VARIABLE, "").strip()
    if not requested and status.st_uid == os.geteuid() and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        with suppress(OSError):
            root.chmod(0o700)
    with suppress(OSError):  # made here, since compilers make theirs with the permissions of the umask
        (root / "zig").mkdir(mode=0o700, exist_ok=True)


def with_fallback(root: Path, work: Callable[[Path], _Made]) -> _Made:
    """Does `work` in the cache folder; where the folder refuses, with one warning, in a private one.

    Args:
        work: raises OSError where the folder that it is given cannot be used.

    Raises:
        CompileError: neither folder can be used; or of `work`.
    """
    if root not in refused_folders and root not in private_folders.values():
        try:
            return work(root)
        except OSError as error:
            _refuse(root, reason_of(error))
    return _in_private(root, work)


def _in_private(root: Path, work: Callable[[Path], _Made]) -> _Made:
    private: Path | str = "a temporary folder"
    try:
        private = private_folder()
        return work(private)
    except OSError as error:
        first = cache_folder() if root == private else root
        refusal = (
            f"optpy cannot use its cache folder {first}: {refused_folders.get(first, 'see the warning')}; nor "
            f"{private} in its place: {reason_of(error)}. {CURE[0].upper()}{CURE[1:]}"
        )
        raise CompileError("\n".join([refusal, *getattr(error, "__notes__", [])])) from error


def reason_of(error: OSError) -> str:
    """The reason why a folder cannot be used, as the part of a sentence."""
    if isinstance(error, NothingLoadsError):
        return str(error)
    return _REASONS.get(error.errno or 0, error.strerror or str(error))


def _refuse(root: Path, reason: str) -> None:
    if root in refused_folders:
        return
    warn(
        f"optpy cannot use its cache folder {root}: {reason}. Kernels are compiled again in every process; {CURE}",
        RuntimeWarning,
    )
    refused_folders[root] = reason


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


private_folders: dict[int, Path] = {}
"""By process: one that was forked has its own, since its parent's goes with the parent."""


def private_folder() -> Path:
    """The folder of this process alone; removed when it ends, or, where it was killed, by the next that needs one."""
    process = os.getpid()
    if process not in private_folders:
        for left in Path(tempfile.gettempdir()).glob(f"{_PRIVATE}*"):
            with suppress(OSError):
                if left.lstat().st_uid == os.geteuid() and has_lost_its_owner(left):
                    remove(left)
        folder = Path(tempfile.mkdtemp(prefix=_PRIVATE))
        held = ExitStack()
        atexit.register(_remove_private, process, folder, held)
        held.enter_context(owned(folder))
        private_folders[process] = folder
    return private_folders[process]


def _remove_private(process: int, folder: Path, held: ExitStack) -> None:
    if os.getpid() == process:  # what was forked inherits this too
        remove(folder)
        held.close()
