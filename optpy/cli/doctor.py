"""`optpy doctor`: compiler, cache and CUDA: what works, what does not, and why."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

import optpy
from optpy.cli.screen import new_console, plain_table
from optpy.errors import CompileError
from optpy.kernels.runtime.cuda.available import describe_cuda, find_device
from optpy.kernels.toolchain.cache import LIMIT_VARIABLE, Cache, open_cache
from optpy.kernels.toolchain.cache_folder import CACHE_VARIABLE, CURE, cache_folder, make_folder, reason_of
from optpy.kernels.toolchain.compiler import Compiled, compile_c, describe_toolchain, load_library

_TRIAL = "double optpy_doctor(double x) { return 2.0 * x; }\n"
_CUDA_TRIAL = """struct Context { double *x; };
extern "C" __global__ void optpy_doctor(const __grid_constant__ Context context) { *context.x *= 2.0; }
"""


class Verdict(Enum):
    """The verdict of a row of the table."""

    WORKS = "[green]works[/]"
    ABSENT = "[yellow]absent[/]"
    """Not there, and optpy does without."""
    LIMITED = "[yellow]limited[/]"
    """It works, but not as well as it could."""
    BROKEN = "[red]broken[/]"
    FACT = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One row."""

    subject: str
    verdict: Verdict
    detail: str


@click.command()
@click.pass_context
def doctor(context: click.Context) -> None:
    """Show what works here, what does not, and why; ends with status 1 if optpy cannot solve."""
    console = new_console()
    findings: list[Finding] = []
    places = ["the CPU"]
    for title, examine in _SECTIONS.items():
        rows = list(examine())
        findings += rows
        if title == "CUDA" and any(row.verdict is Verdict.WORKS for row in rows):
            places.append("the GPU")
        console.print(_table(title, rows))
        console.print()
    broken = [row.subject for row in findings if row.verdict is Verdict.BROKEN]
    if broken:
        console.print(f"[red]optpy cannot solve here: see {', '.join(broken)}.[/]")
        context.exit(1)
    console.print(f"[green]optpy can solve here, on {' and '.join(places)}.[/]")


def _table(title: str, rows: list[Finding]) -> Table:
    table = plain_table(title)
    for column in range(3):
        table.add_column(overflow="fold", no_wrap=column < 2)
    for row in rows:
        table.add_row(row.subject, row.verdict.value, Text(row.detail))
    return table


def _examine_versions() -> Iterator[Finding]:
    yield Finding("Python", Verdict.FACT, f"{platform.python_version()} on {platform.platform()}")
    place = Path(optpy.__file__).parent
    yield Finding("optpy", Verdict.FACT, f"{optpy.__version__} in {place}")
    for package in ("numpy", "scipy", "sympy", "ziglang"):
        yield Finding(package, Verdict.FACT, _version(package))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # ziglang may be replaced by another compiler
        return "not installed"


def _examine_compiler() -> Iterator[Finding]:
    with _cache_warnings_ignored():
        described = describe_toolchain()
    error = described.pop("error", None)
    for subject, detail in described.items():
        yield Finding(subject, Verdict.FACT, detail)
    if error is not None:
        yield Finding("compiler", Verdict.BROKEN, error)
    else:
        yield _try_to_compile()


@contextmanager
def _cache_warnings_ignored() -> Iterator[None]:
    """That the cache cannot be used is a warning elsewhere; here it is a row of its own, once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def _compile_trial() -> Compiled:
    with _cache_warnings_ignored():
        return compile_c(_TRIAL, name="doctor")


def _try_to_compile() -> Finding:
    try:
        compiled = _compile_trial()
    except CompileError as error:
        return Finding("trial", Verdict.BROKEN, str(error))
    how = "found in the cache" if compiled.cache_hit else "compiled"
    return Finding("trial", Verdict.WORKS, f"{how} and loaded in {compiled.seconds:.2f} s")


def _examine_cache() -> Iterator[Finding]:
    folder = cache_folder()
    yield Finding("folder", Verdict.FACT, f"{folder} (another one: {CACHE_VARIABLE})")
    try:
        make_folder(folder)
        cache = open_cache()
    except CompileError as error:
        yield Finding("access", Verdict.BROKEN, str(error))
        return
    except OSError as error:
        yield _refused("access", reason_of(error))
        return
    yield Finding("free space", Verdict.FACT, _mebibytes(shutil.disk_usage(folder).free))
    yield _examine_access(cache)
    yield _examine_loading(cache)
    entries, size = cache.size()
    limit = f"of at most {_mebibytes(cache.limit)} (another limit: {LIMIT_VARIABLE})"
    yield Finding("size", Verdict.FACT, f"{entries} libraries and programs, {_mebibytes(size)} {limit}")
    left, size = cache.remove_left_overs()
    yield Finding(
        "left over", Verdict.FACT, f"{left} of killed compilations, {_mebibytes(size)}, removed" if left else "nothing"
    )


def _refused(subject: str, reason: str) -> Finding:
    return Finding(subject, Verdict.LIMITED, f"{reason}. Every process compiles again; {CURE}")


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def _examine_access(cache: Cache) -> Finding:
    permissions = stat.filemode(cache.root.stat().st_mode)
    try:
        os.listdir(cache.root)
        cache.check_room()
    except OSError as error:
        return _refused("access", f"{permissions}: {reason_of(error)}")
    return Finding("access", Verdict.WORKS, f"{permissions}: readable and writable")


def _examine_loading(cache: Cache) -> Finding:
    """Loads a library from this folder, where those that are compiled may be in a private one."""
    try:
        compiled = _compile_trial()
        with cache.workspace("trial-0") as place:
            shutil.copyfile(compiled.path, place.library)
            load_library(place)
    except CompileError:
        return Finding("loading", Verdict.FACT, "not tried, since nothing could be compiled")
    except OSError as error:
        return _refused("loading", reason_of(error))
    return Finding("loading", Verdict.WORKS, "a library was loaded from it")


def _examine_cuda() -> Iterator[Finding]:
    described = describe_cuda()
    error = described.pop("error", None)
    for subject, detail in described.items():
        yield Finding(subject, Verdict.FACT, detail)
    if error is not None:
        yield Finding("device", Verdict.ABSENT, error)
    else:
        yield _try_to_compile_for_the_gpu()


def _try_to_compile_for_the_gpu() -> Finding:
    try:
        device = find_device()
        module = device.load(_CUDA_TRIAL)
        module.kernel("optpy_doctor")
    except Exception as error:  # CuPy's own and the driver's: whatever it is, it is the answer
        return Finding("trial", Verdict.LIMITED, f"{type(error).__name__}: {error}")
    how = "found in the cache" if module.cache_hit else "compiled"
    return Finding("trial", Verdict.WORKS, f"{how} and loaded on {device.name} in {module.seconds:.2f} s")


_SECTIONS: dict[str, Callable[[], Iterator[Finding]]] = {
    "Versions": _examine_versions,
    "Compiler": _examine_compiler,
    "Cache": _examine_cache,
    "CUDA": _examine_cuda,
}
