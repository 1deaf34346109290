"""Files that a program leaves: whole, or as they were before. Used by `optpy` and by the programs of `problems`."""

from __future__ import annotations

import os
import secrets
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import click


class OutputFile(click.Path):
    """The type of an option that names a file to be written: whether it can be is found out now, not after a solve.

    The path is absolute: an energy's file, which is run, may go to another folder.
    """

    def __init__(self) -> None:
        super().__init__(readable=False, path_type=Path)
        self.name = "file"  # what the help calls it

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        try:
            target_of(path)
        except OSError as error:
            self.fail(str(error), param, ctx)
        return path.absolute()


def target_of(path: Path) -> Path:
    """The file that a name leads to, through symbolic links; it may still have to be made.

    Raises:
        OSError: it cannot be written, and why.
    """
    target = Path(os.path.realpath(path))
    mode = _mode(path)
    if mode is not None and not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device, a pipe or a socket"
        raise OSError(f"{path} is {kind}, and no file")
    if not target.parent.is_dir():
        raise OSError(f"there is no folder {target.parent}")
    if mode is not None and not os.access(path, os.W_OK):
        raise OSError(f"{path} is write-protected")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OSError(f"no file can be made in the folder {target.parent}: it is write-protected")
    return target


def _mode(path: Path) -> int | None:
    """Kind and permissions of what a name leads to; None: nothing is there."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to; when all is written it takes the place of what `path` leads to, and its permissions.

    It lies in the same folder meanwhile, and is removed if the writing fails or is ended by Ctrl-C or SIGTERM.

    Raises:
        OSError: the folder or the disk does not take it; what was there before is whole.
    """
    target = target_of(path)
    partial = target.with_name(f".optpy-{secrets.token_hex(8)}")
    try:
        with _sigterm_as_exit():
            try:
                with open(partial, "x+b") as file:
                    mode = _mode(target)
                    if mode is not None:  # before anything is in it
                        partial.chmod(stat.S_IMODE(mode))
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(target)
            except BaseException:
                with suppress(OSError):
                    partial.unlink()
                raise
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}") from error


@contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    """SIGTERM, which ends a process on the spot, as an exception, so that what was begun is tidied away."""
    theirs = threading.current_thread() is not threading.main_thread()
    if theirs or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
