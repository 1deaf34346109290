"""From a C source to a shared library: by the compiler's driver, or by its linker and the C library of this process.

zig's driver links with a runtime and a C library's stubs that it builds itself, at its first use on a machine, in ten
seconds. Kernels need neither: zig compiles them, and its linker binds them to the C library that is loaded here.
"""

from __future__ import annotations

import functools
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from optpy.kernels.toolchain.compiler_process import run_compiler, run_compilers
from optpy.kernels.toolchain.sections import section_flags

_COMMON_FLAGS = (
    "-std=c11",
    "-D_GNU_SOURCE",  # -std=c11 hides sched_getaffinity and pthread_sigmask, which team.h calls
    "-fPIC",
    "-pthread",
    "-O3",
    "-g0",  # zig's clang adds debug information where it is not told, a fifth of its time
    # Fast-math, flag by flag. Not -ffast-math: it brings -ffinite-math-only, which lets the compiler delete
    # the very checks that find a NaN, and in gcc 12 it links code that flushes denormals, process-wide.
    "-fno-math-errno",  # sqrt becomes an instruction; nobody reads errno
    "-fno-trapping-math",  # a select may compute both arms: what lets `where` become a vector blend
    "-fno-signed-zeros",  # needed by the next flag, and folds x + 0
    "-fassociative-math",  # a sum may be split over vector lanes; still the same result on every run
    "-ffp-contract=fast",  # a*b + c is one fused multiply-add
    "-fno-semantic-interposition",  # functions of one library may be inlined in each other in spite of -fPIC
)
_WARNING_FLAGS = (
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-pass-failed",  # clang: a loop that calls libm is not vectorised although we ask for it
    "-Wno-psabi",  # gcc: vectors are wider than the processor's, and passed otherwise elsewhere; here all are inlined
)
_X86_FLAGS = ("-march=native",)
_OTHER_FLAGS = ("-mcpu=native",)  # Arm: many compilers know -march=native on x86 only
_LINUX_LINK_FLAGS = ("-Wl,-z,defs",)  # an undefined symbol is found now, with its name, and not at load
_LINK_FLAGS = ("-lm",)
_LINKER_FLAGS = (
    "-shared",
    "-z", "defs",
    "-z", "relro",
    "-z", "now",
    "--eh-frame-hdr",  # debuggers and profilers walk the stack by it
    "--as-needed",
)  # fmt: skip
# Strength reduction of loops takes a sixth of the time of a compilation, and kernels, whose addresses are sums already,
# are no faster by it (python -m bench --parts compile throughput).
_LESS_REDUCTION = ("-mllvm", "-disable-lsr")
# The allocator of registers looks where it is best to split a value's life, in time that grows as the square of a
# function's length: seven of the ten seconds of a cost of a thousand reads. The code of kernels of usual length is the
# same with this budget, bit for bit (python -m bench.compile_growth products_of_pairs).
_BOUNDED_SPLITTING = ("-mllvm", "-grow-region-complexity-budget=300")
_ZIG_FLAGS = (*_LESS_REDUCTION, *_BOUNDED_SPLITTING)
_LIBC = re.compile(r"(libc|libm|libpthread|ld-linux[\w-]*|ld-musl[\w-]*)(-[\d.]+)?\.so[.\d]*")


@final
@dataclass(frozen=True, slots=True)
class Recipe:
    """The commands by which a compiler makes a library.

    Attributes:
        command: its driver, which compiles and links.
        linker: what links an object file in place of the driver; empty: nothing does.
        flags: further ones, which this compiler alone knows.
    """

    command: tuple[str, ...]
    linker: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    def whole(self, source: str, library: str, *, werror: bool = False) -> list[str]:
        """The one command that makes it by the driver alone."""
        return [*self.command, *compile_flags(werror=werror), *self.flags, source, "-o", library, *link_flags()]

    def run(
        self,
        root: Path,
        source: Path,
        library: Path,
        *,
        parts: Sequence[Sequence[int]] = (),
        werror: bool = False,
        seconds: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Make the library beside its source; the last process that was run, which the caller asks for its success.

        The linker may want what only the driver's runtime has: then the driver links after all.

        Args:
            root: see `run_compiler`, whose errors this raises.
            parts: the sections of the source that each compiler takes, side by side; none: one takes all.
            seconds: for each process.
        """
        folder = source.parent
        if not parts and not self.linker:
            return run_compiler(self.whole(source.name, library.name, werror=werror), root, folder, seconds)
        flags = [*self.command, *compile_flags(werror=werror), *self.flags, "-c", source.name]
        taken = [section_flags(part) for part in parts] or [[]]
        objects = [f"{source.stem}{n}.o" for n in range(len(taken))]
        commands = [[*flags, *sections, "-o", made] for sections, made in zip(taken, objects, strict=True)]
        try:
            ended = run_compilers(commands, root, folder, seconds)
            failed = [done for done in ended if done.returncode != 0]
            return failed[0] if failed else self._link(objects, root, library, seconds)
        finally:
            for made in objects:
                (folder / made).unlink(missing_ok=True)

    def _link(
        self, objects: Sequence[str], root: Path, library: Path, seconds: float | None
    ) -> subprocess.CompletedProcess[str]:
        if self.linker:
            done = run_compiler([*self.linker, *objects, "-o", library.name], root, library.parent, seconds)
            if done.returncode == 0 and library.exists():
                return done
        driver = [*self.command, *compile_flags(werror=False), *objects, "-o", library.name, *link_flags()]
        return run_compiler(driver, root, library.parent, seconds)


def compile_flags(*, werror: bool) -> tuple[str, ...]:
    """The flags before the name of the source: language, optimisation, processor, warnings."""
    x86 = platform.machine().lower() in {"x86_64", "amd64", "i686", "i386"}
    return _COMMON_FLAGS + (_X86_FLAGS if x86 else _OTHER_FLAGS) + (_WARNING_FLAGS if werror else ())


def link_flags() -> tuple[str, ...]:
    """The flags after the name of the source."""
    return ("-shared", *(_LINUX_LINK_FLAGS if sys.platform == "linux" else ()), *_LINK_FLAGS)


def zig_recipe(zig: str) -> Recipe:
    """The commands by which the compiler of the ziglang wheel makes a library."""
    loaded = loaded_c_library()
    return Recipe((zig, "cc"), (zig, "ld.lld", *_LINKER_FLAGS, *loaded) if loaded else (), _ZIG_FLAGS)


@functools.cache
def loaded_c_library() -> Sequence[str]:
    """The files of the C library, its mathematics and its loader, as this process has them; none where that is not
    known."""
    found: set[str] = set()
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = Path(line.rstrip("\n").partition("/")[2])
            if _LIBC.fullmatch(path.name):
                found.add(f"/{path}")
    has = {re.split(r"[-.]", Path(path).name)[0] for path in found}
    return sorted(found) if {"libc", "libm"} <= has else []  # not by their addresses, which are others in each process
