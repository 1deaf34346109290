"""Ownership of what a process is making in a shared folder, for as long as it lives."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_OWNER = "owner"


def unfinished_name() -> str:
    """A name that nobody else has, for what is renamed when it is finished."""
    return f"tmp.{uuid.uuid4().hex}"


def is_unfinished(path: Path) -> bool:
    """Whether the path has such a name."""
    return re.fullmatch(r"tmp\.[0-9a-f]{32}", path.name) is not None


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """The folder belongs to this process: until the end of the block, or until it dies, however it dies.

    Told by a lock on a file in it, which holds across containers and computers, where the number of a process does not.
    """
    file = folder / f"{_OWNER}.new"
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with suppress(OSError):  # no locks here: then nobody can tell
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.rename(folder / _OWNER)  # seen by others only now, when it is locked
        yield
    finally:
        os.close(descriptor)


def disown(folder: Path) -> None:
    """The folder is finished, and nobody's."""
    for name in (_OWNER, f"{_OWNER}.new"):
        (folder / name).unlink(missing_ok=True)


def has_lost_its_owner(folder: Path) -> bool | None:
    """Whether the process to which the folder belonged is gone; None where that cannot be told."""
    try:
        descriptor = os.open(folder / _OWNER, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return True


def remove(path: Path) -> None:
    """Remove a file or a folder, as far as that is possible."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
