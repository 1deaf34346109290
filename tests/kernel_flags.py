"""The compiler's flags for the kernels of energies in tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from optpy.kernels.runtime import cpu
from optpy.kernels.toolchain import compiler
from optpy.kernels.toolchain.compiler import Compiled, compile_c
from optpy.kernels.toolchain.toolchain import compile_flags
from optpy.linear import solvers

QUICK = ("-O0", "-fno-sanitize=all")  # zig's clang adds checks of its own where nothing is optimised
CHECKED = ("-O1", "-fsanitize=undefined", "-fsanitize-trap=all")
"""What C leaves undefined ends the process."""


@contextmanager
def compiled_with(*flags: str) -> Iterator[None]:
    """Energies, and the solvers made for their blocks, are compiled by these in place of -O3.

    Without optimisation they compute the same, and are compiled in a tenth of the time. Conjugate gradients, one library
    for all, stay as for users.
    """

    def chosen(*, werror: bool) -> tuple[str, ...]:
        return tuple(flag for flag in compile_flags(werror=werror) if flag != "-O3") + flags

    def compile_chosen(source: str, *, name: str, werror: bool = False, what: str = "1 kernel") -> Compiled:
        with pytest.MonkeyPatch.context() as inner:
            if name != "pcg":
                inner.setattr(compiler, "compile_flags", chosen)
            return compile_c(source, name=name, werror=werror, what=what)

    with pytest.MonkeyPatch.context() as patch:
        for module in (cpu, solvers):
            patch.setattr(module, "compile_c", compile_chosen)
        yield
