"""What an energy's program needs to run on the CPU: its own library, and those that it shares with other energies."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import final

from optpy.ir import Coupling, NormalMatrix
from optpy.kernels.codegen.program import Program
from optpy.kernels.toolchain.compiler import Compiled, compile_c
from optpy.linear.solvers import MatrixSolvers, conjugate_gradients, grid_multigrid, matrix_solvers


@final
class CpuLibrary:
    """The loaded libraries of a program: its kernels, and what runs them, now, the others when they are first needed.

    Args:
        program: of an energy.
        scalars: names of the run-time scalars, in order.

    Raises:
        CompileError: as the others.
    """

    def __init__(self, program: Program, scalars: Sequence[str]) -> None:
        self.program = program
        self.scalars = tuple(scalars)
        self._taken: list[Compiled] = []
        count = len(program.kernels)
        what = f"{count} kernel{'s' * (count != 1)}"
        self.kernels = self._take(compile_c(program.source, name="energy", what=what))
        self.loops = self._take(conjugate_gradients(self.scalars))
        self._multigrid: ctypes.CDLL | None = None
        self._solvers: MatrixSolvers | None = None

    def multigrid(self) -> ctypes.CDLL:
        """The multigrid of a grid, for a program that has a ``Coupling``: compiled when it is first asked for."""
        if self._multigrid is None:
            coupling = self.program.coupling
            assert isinstance(coupling, Coupling)
            self._multigrid = self._take(grid_multigrid(coupling, self.program.dtype, self.scalars))
        return self._multigrid

    def solvers(self) -> MatrixSolvers:
        """What works on the assembled matrix, for a program that has a ``NormalMatrix``: likewise."""
        if self._solvers is None:
            normal = self.program.normal
            assert isinstance(normal, NormalMatrix)
            self._solvers = matrix_solvers(len(normal.elements), self.program.dtype, self.scalars)
            self._take(self._solvers.compiled)
        return self._solvers

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
