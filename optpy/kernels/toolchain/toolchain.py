"""The C compiler that builds the kernels, its flags, and the processor that it builds for.

Order: `OPTPY_CC`, then clang, then the clang inside the `ziglang` wheel, then cc, then gcc. One that is found by
searching has to compile a small library first: many machines have a clang without the headers of the C library.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from optpy.errors import CompileError
from optpy.kernels.toolchain.build import Recipe, compile_flags, link_flags, zig_recipe
from optpy.kernels.toolchain.cache import Cache
from optpy.kernels.toolchain.cache_folder import with_fallback
from optpy.kernels.toolchain.compiler_process import CompilerStartError, run_compiler
from optpy.kernels.toolchain.ownership import remove, unfinished_name
from optpy.kernels.toolchain.progress import reported

CC_VARIABLE = "OPTPY_CC"

_PROBE_SECONDS = 60.0  # `--version` on a cold network disk is slow, but not slower than this
_TRIAL_SECONDS = 300.0  # where zig's driver links, it builds its runtime first
_TRIAL = """#include <math.h>
#include <pthread.h>
double trial(double x) { return sin(x) + (pthread_self() == 0); }
"""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A C compiler that has been seen to run."""

    recipe: Recipe
    origin: str
    version: str

    @property
    def command(self) -> tuple[str, ...]:
        """Its driver."""
        return self.recipe.command


@dataclass(frozen=True, slots=True)
class _Candidate:
    origin: str
    recipe: Recipe


class _UnusableError(Exception):
    """This candidate cannot be used; the text says why."""


def find_toolchain(root: Path) -> Toolchain:
    """The first compiler, in the order above, that makes a library; `OPTPY_CC` only has to run.

    Args:
        root: our cache folder; remembers versions and what has compiled, so that no process is started when nothing
            has changed.

    Raises:
        CompileError: `OPTPY_CC` does not run, or nothing works.
    """
    return toolchain_for(root, os.environ.get(CC_VARIABLE, "").strip(), os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=16)
def toolchain_for(root: Path, requested: str, search_path: str) -> Toolchain:
    """The compiler that is found with these values of `OPTPY_CC` and `PATH`; the process looks once."""
    if requested:
        return _requested_toolchain(root, requested, search_path)
    reasons = []
    for candidate in _candidates(search_path):
        try:
            version = _version(candidate.recipe.command, root, search_path)
            _try(candidate.recipe, root, search_path)
        except _UnusableError as reason:
            reasons.append(f"  {candidate.origin}: {reason}")
        else:
            return Toolchain(candidate.recipe, candidate.origin, version)
    raise CompileError(
        "no C compiler works on this machine\n"
        + "\n".join(reasons)
        + f"\n`pip install ziglang` brings one, or set {CC_VARIABLE} to the command of yours"
    )


def _requested_toolchain(root: Path, requested: str, search_path: str) -> Toolchain:
    try:
        command = tuple(shlex.split(requested))
        version = _version(command, root, search_path)
    except (_UnusableError, ValueError) as reason:
        raise CompileError(
            f"{CC_VARIABLE} is set to {requested!r}, which does not run: {reason}; "
            f"correct {CC_VARIABLE}, or unset it to let optpy find a compiler"
        ) from None
    return Toolchain(Recipe(command), CC_VARIABLE, version)


def _candidates(search_path: str) -> Iterator[_Candidate]:
    yield _Candidate("clang on PATH", Recipe((shutil.which("clang", path=search_path) or "clang",)))
    yield _Candidate("clang of the ziglang wheel", zig_recipe(zig_binary()))
    for name in ("cc", "gcc"):
        yield _Candidate(f"{name} on PATH", Recipe((shutil.which(name, path=search_path) or name,)))


def zig_binary() -> str:
    """The path of the compiler in the ziglang wheel; without the wheel, a text that is no path."""
    # Called directly: `python -m ziglang` would start a second interpreter for each compilation.
    spec = importlib.util.find_spec("ziglang")
    folders = spec.submodule_search_locations if spec is not None else None
    return str(Path(folders[0], "zig")) if folders else "ziglang (not installed)"


def _version(command: tuple[str, ...], root: Path, search_path: str) -> str:
    """The output of `command --version`; remembered on disk for as long as its files stay the same."""
    store = root / "compilers.json"
    key = json.dumps([_file_identity(word, search_path) for word in command])
    known = _read_versions(store)
    if key not in known:
        known[key] = _ask_version(command)
        _write_versions(store, known)
    return known[key]


def _file_identity(word: str, search_path: str) -> list[str | int]:
    path = shutil.which(word, path=search_path)
    if path is None:
        return [word]
    status = os.stat(path)
    return [word, os.path.realpath(path), status.st_mtime_ns, status.st_size]


def _ask_version(command: tuple[str, ...]) -> str:
    try:
        # Not in our folder, which may be one that is only read.
        with tempfile.TemporaryDirectory(prefix="optpy-", ignore_cleanup_errors=True) as name, _unusable():
            done = run_compiler([*command, "--version"], Path(name), Path(name), _PROBE_SECONDS)
    except OSError as error:
        raise _UnusableError(f"`--version` cannot run in a temporary folder: {error}") from error
    if done.returncode != 0:
        said = f": {done.stderr.strip()}" if done.stderr.strip() else ""
        raise _UnusableError(f"`--version` ended with status {done.returncode}{said}")
    return done.stdout.strip()


@contextmanager
def _unusable() -> Iterator[None]:
    """Tells an error that keeps a process from running as the reason why a candidate cannot be used."""
    try:
        yield
    except (CompilerStartError, subprocess.TimeoutExpired) as error:
        raise _UnusableError(str(error)) from error


def _try(recipe: Recipe, root: Path, search_path: str) -> None:
    """Compile a library; a success is remembered on disk, a failure may be mended by installing headers."""
    store = root / "compilers.json"
    command, flags = recipe.command, [*compile_flags(werror=False), *link_flags(), *recipe.linker]
    key = json.dumps(["compiles", [_file_identity(word, search_path) for word in command], flags])
    if key not in _read_versions(store):
        with reported(f"trying the compiler {shlex.join(command)}"):
            with_fallback(root, lambda usable: _compile_trial(Cache(usable), recipe))
        _write_versions(store, {**_read_versions(store), key: "yes"})


def _compile_trial(cache: Cache, recipe: Recipe) -> None:
    with cache.workspace("trial-0") as place:
        place.source.write_text(_TRIAL)
        with _unusable():
            done = recipe.run(cache.root, place.source, place.library, seconds=_TRIAL_SECONDS)
        if done.returncode != 0 or not place.library.exists():
            said = done.stderr.strip() or done.stdout.strip() or "nothing"
            cache.check_room(said)
            raise _UnusableError(f"it compiles no library (status {done.returncode}), and says: {said}")


def _read_versions(store: Path) -> dict[str, str]:
    with suppress(OSError, ValueError):
        known = json.loads(store.read_text())
        if isinstance(known, dict):
            return {str(key): str(value) for key, value in known.items()}
    return {}


def _write_versions(store: Path, known: dict[str, str]) -> None:
    # Only a memory: where it cannot be written, the next process asks the compiler again.
    with suppress(OSError):
        unfinished = store.with_name(unfinished_name())
        try:
            unfinished.touch(mode=0o600)
            unfinished.write_text(json.dumps(known))
            unfinished.replace(store)
        finally:
            remove(unfinished)


@functools.cache
def processor_identity() -> str:
    """The model and instruction sets of the processor, on which `-march=native` depends."""
    text = f"{platform.system()} {platform.machine()}"
    if sys.platform != "linux":
        return f"{text} {platform.processor()}"
    lines = []
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if not line.strip():
                break  # the first processor is enough, and the whole file is slow on large machines
            # Not the lines that change from moment to moment (clock, bogomips) or from core to core.
            if line.split("\t")[0].strip() in _CPUINFO_FIELDS:
                lines.append(" ".join(line.split()))
    return "\n".join([text, *lines])


_CPUINFO_FIELDS = frozenset(
    {
        "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
        "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features", "isa",
    }
)  # fmt: skip
