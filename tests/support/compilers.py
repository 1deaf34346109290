"""Compilers for tests: that of this machine behind a script, which counts its compilations and can be slow."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from optpy.kernels.toolchain.cache import open_cache
from optpy.kernels.toolchain.compiler_process import compiler_environment
from optpy.kernels.toolchain.toolchain import find_toolchain

ADD = "int add(int a, int b) { return a + b; }\n"


@dataclass(frozen=True, slots=True)
class Counter:
    """A compiler that writes down each compilation, and can be made to hang."""

    log: Path
    hang: Path  # while this file exists, compilations do not come to an end

    def compilations(self) -> int:
        """How many there were."""
        return len(self.processes())

    def processes(self) -> list[int]:
        """Process identifiers of the compilers, in the order in which they began."""
        return [int(line.split()[-1]) for line in self.log.read_text().splitlines()] if self.log.exists() else []


def make_counter(folder: Path) -> tuple[Counter, Path]:
    """The compiler of the user's cache, whose runtime is built already, and the script that it is behind."""
    user_cache = open_cache().root
    command = " ".join(f"'{word}'" for word in find_toolchain(user_cache).command)
    zig_cache = compiler_environment(user_cache, user_cache)["ZIG_GLOBAL_CACHE_DIR"]
    made = Counter(folder / "log", folder / "hang")
    script = folder / "counting-cc"
    script.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = --version ]; then exec {command} --version; fi\n'
        f"echo compiled by $$ >> '{made.log}'\n"
        f"while [ -e '{made.hang}' ]; do sleep 0.02; done\n"
        f"ZIG_GLOBAL_CACHE_DIR='{zig_cache}' exec {command} \"$@\"\n"
    )
    script.chmod(0o755)
    return made, script


def wait_for(condition: object, seconds: float = 60) -> None:
    """Return when a condition has come true."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
