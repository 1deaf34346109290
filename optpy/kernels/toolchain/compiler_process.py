"""Runs a compiler that ends with this process, in whatever way this process ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

# The pipe's other end is in this process alone: it is closed when this process dies, by SIGKILL too. Group 0 is the
# group of who asks.
_KILLS_ITS_GROUP_IN_THE_END = "read _; kill -KILL 0"


class CompilerStartError(Exception):
    """It could not be started; the text says why."""


def run_compiler(
    command: Sequence[str], root: Path, folder: Path, seconds: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a compiler in a folder to its end; see `run_compilers`."""
    (done,) = run_compilers([command], root, folder, seconds)
    return done


def run_compilers(
    commands: Sequence[Sequence[str]], root: Path, folder: Path, seconds: float | None = None
) -> list[subprocess.CompletedProcess[str]]:
    """Run compilers side by side to their end, which Ctrl-C, SIGTERM and SIGKILL of this process bring about at once.

    Args:
        commands: one of each.
        root: our cache folder, see `compiler_environment`.
        folder: where they run; what they leave there besides their output is removed.
        seconds: how long each may take at most, once those before it have ended.

    Raises:
        CompilerStartError: there is no such command, or no memory is left.
        subprocess.TimeoutExpired: it took longer.
        OSError: nothing can be written in the folder.
    """
    scratch = folder / "scratch"
    scratch.mkdir(mode=0o700)
    try:
        with _mortal_group() as group, ExitStack() as stack:
            environment = compiler_environment(root, scratch)
            started = []
            for command in commands:
                process = stack.enter_context(_start(command, folder, environment, group))
                stack.callback(process.kill)  # before it is waited for; nothing, once it has ended
                started.append(process)
            return [_ended(process, seconds) for process in started]
    except OSError as error:
        raise CompilerStartError(str(error)) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], group: int | None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=group,
    )


def _ended(process: subprocess.Popen[str], seconds: float | None) -> subprocess.CompletedProcess[str]:
    stdout, stderr = process.communicate(timeout=seconds)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def compiler_environment(root: Path, scratch: Path) -> dict[str, str]:
    """The environment for a compiler process.

    Args:
        root: our cache folder; zig keeps there what it builds for itself, if it does.
        scratch: where compilers may leave their intermediate files; the caller removes it.
    """
    zig = {"ZIG_GLOBAL_CACHE_DIR": str(root / "zig"), "ZIG_LOCAL_CACHE_DIR": str(scratch / "zig")}
    # LC_ALL: errors in English, whoever reads the report.
    return {**os.environ, **zig, "TMPDIR": str(scratch), "LC_ALL": "C"}


@contextmanager
def _mortal_group() -> Iterator[int | None]:
    """A process group that is killed at the end of the block, and where this process dies within it.

    A compiler starts others (clang its linker, a script the compiler itself), so that it is not enough to kill the
    one that was started. A terminal's Ctrl-C does not reach the group. None where there is no shell to watch over it.
    """
    shell = shutil.which("sh", path=os.defpath)
    if shell is None:
        yield None
        return
    watcher = subprocess.Popen(
        [shell, "-c", _KILLS_ITS_GROUP_IN_THE_END],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    with watcher:
        try:
            yield watcher.pid
        finally:
            with suppress(ProcessLookupError):
                os.killpg(watcher.pid, signal.SIGKILL)
