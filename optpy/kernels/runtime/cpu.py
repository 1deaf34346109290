"""The libraries of an energy on the CPU: its own, and those that it shares with other energies."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_char, c_int64, c_void_p
from typing import final

from optpy.kernels.codegen.dialect import c_dialect
from optpy.kernels.codegen.kernel_header import kernel_header
from optpy.kernels.codegen.program import Program
from optpy.kernels.codegen.structures import scalar_numbers
from optpy.kernels.runtime.context import Context
from optpy.kernels.runtime.threads import available_cores
from optpy.kernels.toolchain.compiler import Compiled, compile_c
from optpy.kernels.toolchain.headers import native_header
from optpy.kernels.toolchain.sections import shares

_COMPILERS = 16
"""At most so many run side by side: each takes some 100 MB."""


def team_source(scalars: Sequence[str]) -> list[str]:
    """The C text that runs an energy's kernels on a team of threads: what every library around them starts with.

    Args:
        scalars: names of the run-time scalars, in order.
    """
    return [
        native_header("kernels/c/prelude.h"),
        native_header("kernels/c/team.h"),
        kernel_header(),
        scalar_numbers(scalars),
        native_header("kernels/c/team_kernel.h"),
    ]


def precision_source(dtype: str) -> str:
    """The C text that the code of a precision starts with: the type of its numbers, and signs that look random."""
    return f"#define OPTPY_REAL {c_dialect(dtype).real}\n\n" + native_header("kernels/c/signs.h")


@final
class CpuLibrary:
    """The loaded libraries of a program: its kernels, and what runs them, now, the others when they are first needed.

    Args:
        program: of an energy.
        scalars: names of the run-time scalars, in order.
        loops: compiles the library that loops over kernels, whatever the energy; kernels/c/run.h is in it, so that
            single kernels and loops share their threads.

    Raises:
        CompileError: as the others.
    """

    def __init__(self, program: Program, scalars: Sequence[str], loops: Callable[[Sequence[str]], Compiled]) -> None:
        self.program = program
        self.scalars = tuple(scalars)
        self._taken: list[Compiled] = []
        self._companions: dict[str, ctypes.CDLL] = {}
        self._complete = False
        count = len(program.numbers.lists) - len(program.numbers.late)
        what = f"{count} kernel{'s' * (count != 1)}"
        parts = shares(program.sections, min(available_cores(), _COMPILERS))
        self.kernels = self._take(compile_c(program.source, name="energy", parts=parts, what=what))
        self.loops = self._take(loops(self.scalars))
        self.loops.optpy_run.argtypes = [POINTER(Context), c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p]
        self.loops.optpy_run.restype = None

    def complete(self) -> None:
        """See to it that the kernels that run on request only are there, too.

        Raises:
            CompileError
        """
        if not self._complete:
            program = self.program
            last = range(len(program.sections), len(program.sections) + 1)
            late = self._take(compile_c(program.source, name="late", parts=[last], what="kernels that show residuals"))
            late.optpy_complete(ctypes.byref(c_char.in_dll(self.kernels, "optpy_kernels")))
            self._complete = True

    def companion(self, name: str, compiled: Callable[[], Compiled]) -> ctypes.CDLL:
        """A further library, compiled when it is first asked for.

        Args:
            name: what it is asked for by.
            compiled: makes it.

        Raises:
            CompileError
        """
        found = self._companions.get(name)
        if found is None:
            found = self._companions[name] = self._take(compiled())
        return found

    def _take(self, compiled: Compiled) -> ctypes.CDLL:
        self._taken.append(compiled)
        return compiled.library

    @property
    def seconds(self) -> float:
        """That compiling and loading have taken so far."""
        return sum(c.seconds for c in self._taken)

    @property
    def cache_hit(self) -> bool:
        """Whether nothing had to be compiled so far."""
        return all(c.cache_hit for c in self._taken)
