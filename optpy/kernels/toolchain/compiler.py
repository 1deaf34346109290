"""C source in, loaded library out: compiled once on this machine, then read from the cache."""

from __future__ import annotations

import ctypes
import platform
import re
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from optpy.errors import CompileError
from optpy.kernels.toolchain.build import compile_flags, link_flags
from optpy.kernels.toolchain.cache import Cache, CacheEntry, find_or_build, make_key, open_cache
from optpy.kernels.toolchain.cache_folder import NothingLoadsError
from optpy.kernels.toolchain.compiler_process import CompilerStartError
from optpy.kernels.toolchain.progress import reported
from optpy.kernels.toolchain.toolchain import Toolchain, find_toolchain, processor_identity

# Part of every key. Raise it when old libraries must no longer be used although their source is the same, for
# example because the way they are called has changed.
NATIVE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Compiled:
    """A library in this process, and what it took to get it.

    `seconds` is the whole time of `compile_c`, hit or miss.
    """

    path: Path
    library: ctypes.CDLL
    seconds: float
    cache_hit: bool
    source_path: Path


def compile_c(
    source: str,
    *,
    name: str,
    parts: Sequence[Sequence[int]] = (),
    werror: bool = False,
    what: str = "1 kernel",
) -> Compiled:
    """Compiles C11 into a shared library and loads it; the second time, on this machine, only loads it.

    Args:
        source: everything, headers of ours included; only the standard headers may be `#include`d.
        name: of the files; letters, digits and underscores.
        parts: the sections of the source (see `toolchain.sections`) that each of several compilers takes, which run
            side by side; none: one compiler takes all.
        werror: all warnings, as errors (for the tests).
        what: is in it, to be told if it has to be compiled.

    Raises:
        CompileError: no compiler runs, it refuses the source, or the library does not load. The text has the
            compiler's own message, the command, and the path of the source, which is kept.
    """
    if not re.fullmatch(r"\w+", name, re.ASCII):
        raise ValueError(f"the name of a library is letters, digits and underscores, not {name!r}")
    started = time.perf_counter()
    cache = open_cache()
    toolchain = find_toolchain(cache.root)
    key = _key(source, name, parts, toolchain, werror)

    def build(writable: Cache) -> CacheEntry:
        with reported(f"compiling {what} for the CPU"):
            return _build(writable, key, toolchain, source, parts, werror)

    (entry, library), hit = find_or_build(cache, key, load_library, build)
    return Compiled(entry.library, library, time.perf_counter() - started, hit, entry.source)


def describe_toolchain() -> dict[str, str]:
    """The rows of `optpy doctor` on the compiler: command, flags, processor; an error is under "error", not raised."""
    described = {"processor": processor_identity().splitlines()[0]}
    try:
        toolchain = find_toolchain(open_cache().root)
    except CompileError as error:
        return {**described, "error": str(error)}
    return {
        **described,
        "compiler": toolchain.version.splitlines()[0],
        "compiler command": shlex.join(toolchain.command),
        "compiler found as": toolchain.origin,
        "compiler flags": shlex.join([*compile_flags(werror=False), *toolchain.recipe.flags, *link_flags()]),
    }


def _key(source: str, name: str, parts: Sequence[Sequence[int]], toolchain: Toolchain, werror: bool) -> str:
    return make_key(
        name,
        str(NATIVE_VERSION),
        source,
        " ".join(str(n) for part in parts for n in part),  # however many compilers share them
        *toolchain.command,
        toolchain.version,
        *compile_flags(werror=werror),
        *link_flags(),
        *toolchain.recipe.linker,
        *toolchain.recipe.flags,
        sys.platform,
        platform.machine(),
        processor_identity(),
    )


def load_library(entry: CacheEntry) -> tuple[CacheEntry, ctypes.CDLL]:
    """The library of an entry, in this process.

    Raises:
        NothingLoadsError: its folder is at fault.
        CompileError: the library is.
    """
    try:
        return entry, ctypes.CDLL(str(entry.library))
    except OSError as error:
        if "failed to map segment" in str(error):  # whole, as its digest says, and still the system refuses it
            raise NothingLoadsError(f"no library can be loaded from it (is it mounted noexec? {error})") from error
        raise CompileError(f"the library compiled from {entry.source} does not load: {error}") from error


def _build(
    cache: Cache, key: str, toolchain: Toolchain, source: str, parts: Sequence[Sequence[int]], werror: bool
) -> CacheEntry:
    with cache.workspace(key) as built:
        built.source.write_text(source, encoding="utf-8")
        try:
            done = toolchain.recipe.run(cache.root, built.source, built.library, parts=parts, werror=werror)
        except CompilerStartError as error:  # removed since it told its version, or no memory is left
            raise CompileError(f"the compiler {toolchain.command[0]} cannot be started: {error}") from error
        if done.returncode == 0 and built.library.exists():
            return cache.publish(built, key)
        said = done.stderr.strip() or done.stdout.strip() or "(it printed nothing)"
        cache.check_room(said)
        command = toolchain.recipe.whole(built.source.name, built.library.name, werror=werror)
        kept = cache.keep_failed(built, key)
        raise CompileError(
            f"{shlex.join(toolchain.command)} ended with status {done.returncode} on {kept}\n"
            f"{said}\n"
            f"command, in {kept.parent}: {shlex.join(command)}"
        )
