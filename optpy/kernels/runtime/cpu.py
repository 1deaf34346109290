"""The libraries of an energy on the CPU: its own, and those that it shares with other energies."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from ctypes import POINTER, Array, c_int64, c_void_p
from pathlib import Path
from typing import final

from optpy.ir import Group
from optpy.kernels.codegen.dialect import c_dialect
from optpy.kernels.codegen.kernel_header import kernel_header
from optpy.kernels.codegen.numbering import Numbers
from optpy.kernels.codegen.program import Program
from optpy.kernels.codegen.structures import scalar_numbers
from optpy.kernels.runtime.context import Context, KernelEntry
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
    """The loaded libraries of a program: what runs its kernels, and these as they are asked for.

    Args:
        program: of an energy.
        scalars: names of the run-time scalars, in order.
        loops: compiles the library that loops over kernels, whatever the energy; kernels/c/run.h is in it, so that
            single kernels and loops share their threads.

    Attributes:
        kernels: all of them, by their numbers, for native code; those that are not compiled yet have no address.

    Raises:
        CompileError: as the others.
    """

    def __init__(self, program: Program, scalars: Sequence[str], loops: Callable[[Sequence[str]], Compiled]) -> None:
        self.program = program
        self.scalars = tuple(scalars)
        self._taken: list[Compiled] = []
        self._companions: dict[str, ctypes.CDLL] = {}
        self._compiling = threading.Lock()  # threads that need the same kernels at once compile once
        self._sections: dict[int, ctypes.CDLL] = {}
        self.kernels = _uncompiled(program.numbers)
        self.loops = self._take(loops(self.scalars))
        self.loops.optpy_run.argtypes = [POINTER(Context), c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p]
        self.loops.optpy_run.restype = None

    def need(self, groups: Iterable[Group]) -> None:
        """See to it that some groups of kernels are compiled; those of them that are not become one library.

        Raises:
            CompileError
        """
        with self._compiling:
            missing = [n for n in self.program.sections_of(groups) if n not in self._sections]
            if not missing:
                return
            program, names = self.program, self.program.numbers.names
            parts = shares(missing, program.sections, min(available_cores(), _COMPILERS))
            what = f"{len(missing)} kernel{'s' * (len(missing) != 1)}"
            name = "late" if self._sections else "energy"
            library = self._take(compile_c(program.source, name=name, parts=parts, what=what))
            for n in missing:
                self._sections[n] = library
                if n < len(names):
                    self.kernels[n].range = ctypes.cast(library[names[n]], c_void_p)

    def need_beside(self, groups: Iterable[Group], other: Callable[[], object]) -> None:
        """As ``need``, while something else is compiled on a thread of its own.

        Raises:
            CompileError
        """
        with ThreadPoolExecutor(1) as thread:
            made = thread.submit(copy_context().run, other)  # with the progress that is asked for
            self.need(groups)
            made.result()

    def function(self, name: str, group: Group) -> ctypes._NamedFuncPointer:
        """A further function of the energy's, which is compiled with a group of kernels.

        Raises:
            CompileError
        """
        self.need([group])
        return self._sections[self.program.sections_of([group])[-1]][name]

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

    @property
    def files(self) -> tuple[Path, ...]:
        """The libraries that the energy's kernels have been compiled into so far."""
        return tuple(dict.fromkeys(Path(library._name) for library in self._sections.values()))

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


def _uncompiled(numbers: Numbers) -> Array[KernelEntry]:
    """The kernels as they are run, but for their addresses."""
    described = zip(numbers.lists, numbers.reductions, numbers.sums, numbers.prepares, strict=True)
    entries = [
        KernelEntry(None, of, reduction, len(sums), any(maximum for _, maximum in sums), prepares)
        for of, reduction, sums, prepares in described
    ]
    return (KernelEntry * len(entries))(*entries)
