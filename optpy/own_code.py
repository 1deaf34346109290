"""The files of optpy itself: a fingerprint of the code that this process runs.

What is kept on disk and follows from optpy's code has the fingerprint in its key, so that edited code never meets what
other code has made. This module is imported before all others: what it sees then is what the process has loaded.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_SUFFIXES = (".py", ".h", ".cuh")

_Files = tuple[tuple[str, int, int, int, int], ...]


def _files(folder: str) -> Iterator[tuple[str, int, int, int, int]]:
    """The path of each file, with what changes whenever the file does."""
    for item in os.scandir(folder):
        if item.is_dir():
            if item.name != "__pycache__":
                yield from _files(item.path)
        elif item.name.endswith(_SUFFIXES):
            status = item.stat()
            yield item.path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _seen() -> _Files:
    with suppress(OSError):  # packed otherwise, or just being installed
        found = tuple(sorted(_files(_PACKAGE)))
        if any(path == os.path.join(_PACKAGE, "own_code.py") for path, *_ in found):  # not bytecode alone
            return found
    return ()


_LOADED = _seen()


def fingerprint() -> str | None:
    """A hash of all files of optpy; None where they have changed since this process loaded them, or cannot be read,
    as where bytecode alone is installed."""
    with suppress(OSError):
        found = _hash(_LOADED)
        if _LOADED and _seen() == _LOADED:  # asked every time: who edits files may load modules again
            return found
    return None


@functools.cache
def _hash(files: _Files) -> str:
    found = hashlib.sha256()
    for path, *_ in files:
        with open(path, "rb") as file:
            text = file.read()
        found.update(f"{os.path.relpath(path, _PACKAGE)}:{len(text)}:".encode())
        found.update(text)
    return found.hexdigest()
