"""Builds the native programs beside this file; they are measuring tools, not part of optpy."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import final

NATIVE = Path(__file__).with_name("native")


@final
class BuildError(RuntimeError):
    """No compiler, or it refused; the text has its message."""


def c_compiler() -> tuple[str, ...]:
    """A C compiler of this machine, or the clang of the ziglang wheel."""
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found is not None:
            return (found,)
    return (sys.executable, "-m", "ziglang", "cc")


def build(command: Sequence[str], source: str, target: Path, *arguments: str) -> Path:
    """Compiles `native/source` to `target`.

    Raises:
        BuildError: the compiler is not there or refuses.
    """
    line = [*command, "-O3", "-march=native", "-o", str(target), str(NATIVE / source), *arguments]
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"{' '.join(line)}: {error}") from error
    if done.returncode:
        raise BuildError(f"{' '.join(line)}:\n{done.stderr.strip()}")
    return target
