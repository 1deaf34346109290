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
from optpy.ir import Group
from optpy.kernels.codegen.program import Program
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


BEGUN_WITH = Program.begun_with
"""As users have it: see ``compiled_with``."""
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
        whole = [[n for part in parts for n in part]] if parts else ()  # by one compiler: it takes no time
        with _PATCHING, flags_behind(*more()):
            return compile_c(source, name=name, parts=whole, werror=werror, what=what)

    def begun_with(program: Program, damped: bool | None) -> list[Group]:
        return [group for group in program.groups if group is not Group.RESIDUALS]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "begun_with", begun_with)  # one library takes less time than several
        patch.setattr(plan, "COMPILED", _KEPT.setdefault(more, WeakKeyDictionary()))
        for module in (cpu, solvers, multigrid):
            patch.setattr(module, "compile_c", compile_with_them)
        yield
