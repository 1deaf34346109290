"""The compiler's flags for the kernels of energies in tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakKeyDictionary

import pytest

from optpy.api import plan
from optpy.energy.energy import Energy
from optpy.kernels.runtime import cpu
from optpy.kernels.toolchain import build, compiler
from optpy.kernels.toolchain.build import compile_flags
from optpy.kernels.toolchain.cache import open_cache
from optpy.kernels.toolchain.compiler import Compiled, compile_c
from optpy.kernels.toolchain.toolchain import find_toolchain
from optpy.linear.assembled import native as solvers
from optpy.linear.multigrid import native as multigrid

SHORT_VECTORS = "-DOPTPY_WIDTH=2"
"""Interiors are whole vectors: with short ones, small grids have an interior, too."""

Flags = Callable[[], tuple[str, ...]]

_KEPT: dict[Flags, WeakKeyDictionary[Energy, plan.CompiledCode]] = {}
"""What energies have been compiled to, by the flags: one that several tests share has solvers of each."""

_PATCHING = threading.Lock()
"""Libraries that are compiled side by side take turns at it."""


def quick() -> tuple[str, ...]:
    """Nothing is optimised: kernels compute the same, and are compiled in a tenth of the time."""
    by_zig = Path(find_toolchain(open_cache().root).command[0]).name == "zig"
    return (
        SHORT_VECTORS,
        *(("-Xclang", "-O0") if by_zig else ("-O0",)),
    )  # -O0 for zig itself would have it build another runtime


def checked() -> tuple[str, ...]:
    """What C leaves undefined ends the process."""
    return (SHORT_VECTORS, "-O1", "-fsanitize=undefined", "-fsanitize-trap=all")


@contextmanager
def flags_behind(*more: str) -> Iterator[None]:
    """Everything is compiled with these behind the flags that users have."""

    def flags(*, werror: bool) -> tuple[str, ...]:
        return compile_flags(werror=werror) + more

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "compile_flags", flags)  # for the key
        patch.setattr(build, "compile_flags", flags)
        yield


@contextmanager
def compiled_with(more: Flags) -> Iterator[None]:
    """Energies, and the solvers made for their blocks, are compiled with these behind the flags that users have.

    Conjugate gradients are one library for all energies, and stay as for users.
    """

    def compile_with_them(
        source: str, *, name: str, parts: Sequence[Sequence[int]] = (), werror: bool = False, what: str = "1 kernel"
    ) -> Compiled:
        if name == "pcg":
            return compile_c(source, name=name, werror=werror, what=what)
        # All sections at once, whichever are asked for: starting a compiler takes longer than compiling them. What is
        # asked for later is in the cache by then.
        with _PATCHING, flags_behind(*more()):
            return compile_c(source, name="energy" if parts else name, werror=werror, what=what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "COMPILED", _KEPT.setdefault(more, WeakKeyDictionary()))
        for module in (cpu, solvers, multigrid):
            patch.setattr(module, "compile_c", compile_with_them)
        yield
