"""Kernels to one C source: the kernels of an energy alone; what runs them is compiled once for all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final

from optpy.ir import Coupling, Extent, Group, LoopVariable, NormalMatrix, Preconditioning, Routine, Uncoupled, loops
from optpy.kernels.codegen.conventions import Conventions
from optpy.kernels.codegen.dialect import Dialect, c_dialect
from optpy.kernels.codegen.functions import cpu_functions
from optpy.kernels.codegen.kernel_header import kernel_header
from optpy.kernels.codegen.layout import CPU
from optpy.kernels.codegen.lower import Kernel
from optpy.kernels.codegen.normal_rows import row_source
from optpy.kernels.codegen.numbering import AbstractProgram, Numbered, Numbers
from optpy.kernels.codegen.printer import CPrinter
from optpy.kernels.codegen.symbol_table import SymbolTable
from optpy.kernels.toolchain.headers import native_header
from optpy.kernels.toolchain.sections import in_sections


@final
@dataclass(frozen=True, slots=True)
class Program(AbstractProgram):
    """Everything needed to compile and call the kernels of an energy. No expressions: it can be pickled.

    Attributes:
        numbers: by which the kernels are called.
        source: the whole C source: a section for each kernel, see `toolchain.sections`, and a last one that adds up the
            rows of the assembled J^T J, where there is one.
        sections: their lengths.
        dtype: the solver's precision.
        coupling: of the unknowns where they stand on one grid; else why there is none.
        normal: the assembled J^T J, where there is one; else why there is none.
        traffic: of each kernel: loads and stores at each point, and the dims of its loops within a point. Counted once,
            as large expressions are walked through for it.
    """

    numbers: Numbers
    source: str
    sections: tuple[int, ...]
    dtype: str
    coupling: Coupling | Uncoupled
    normal: NormalMatrix | Uncoupled
    traffic: tuple[tuple[int, tuple[tuple[Extent, ...], ...]], ...]

    def begun_with(self, damped: bool | None) -> list[Group]:
        """The groups that solves begin with, as long as no preconditioner is asked for by name.

        Args:
            damped: whether steps are damped; None: not known.
        """
        on_grid = isinstance(self.coupling, Coupling) or Group.GRADIENT_BLOCKS not in self.groups
        first = Preconditioning.DIAGONAL if on_grid else Preconditioning.BLOCKS
        return [group for group in self.groups if group.begins(first, damped)]

    def sections_of(self, groups: Iterable[Group]) -> list[int]:
        """The numbers of the sections with some groups; with that of J^T J, also that which adds up its rows."""
        groups = set(groups)
        rows = Group.NORMAL in groups and isinstance(self.normal, NormalMatrix)
        found = sorted({n for group in groups for n in self.groups.get(group, ())})
        return [*found, len(self.numbers.names)] if rows else found


@final
@dataclass(frozen=True, slots=True)
class ProgramListing:
    """A program with the stages that its kernels went through, for looking inside.

    Attributes:
        program: of all kernels.
        kernels: lowered.
        loops: the functions of each kernel, as they are printed.
        functions: the C text of each kernel.
    """

    program: Program
    kernels: tuple[Kernel, ...]
    loops: tuple[tuple[loops.Function, ...], ...]
    functions: tuple[str, ...]

    @property
    def symbols(self) -> SymbolTable:
        """Those of the program."""
        return self.program.symbols

    @property
    def groups(self) -> dict[Group, tuple[int, ...]]:
        """The numbers of the kernels of each group."""
        return self.program.groups

    @property
    def source(self) -> str:
        """The C source of all kernels."""
        return self.program.source

    @property
    def dtype(self) -> str:
        """ "float32" or "float64"."""
        return self.program.dtype

    def routine(self, kernel: int) -> Routine:
        """The routine that a kernel, given by its number, has been lowered from."""
        return self.kernels[kernel].border


def c_program(
    numbered: Numbered,
    dtype: str,
    solver_scalars: tuple[str, ...],
    coupling: Coupling | Uncoupled,
    normal: NormalMatrix | Uncoupled,
) -> ProgramListing:
    """Print all kernels into one source.

    Args:
        numbered: the kernels, with their numbers.
        dtype: the solver's precision: "float32" or "float64".
        solver_scalars: names of the run-time scalars, in the order in which they are passed.
        coupling: of the unknowns where they stand on one grid; else why there is none.
        normal: where there is one, the source has the function that adds up its rows.
    """
    dialect, numbers = c_dialect(dtype), numbered.numbers
    found: list[tuple[loops.Function, ...]] = []
    functions: list[str] = []
    for k, n, r in zip(numbered.kernels, numbers.lists, numbers.reductions, strict=True):
        conventions = Conventions(numbers.symbols, _dialect(k, dialect), CPU, solver_scalars)
        found.append(cpu_functions(k, conventions, n, r))
        functions.append("\n\n".join(map(CPrinter(conventions).function, found[-1])))
    rows = [row_source(normal, numbers.symbols)] if isinstance(normal, NormalMatrix) else []
    sections = [*functions, *rows]
    source = f"{_head(dialect)}\n\n{in_sections(sections)}\n"
    traffic = tuple(_traffic(k.border) for k in numbered.kernels)
    program = Program(numbers, source, tuple(map(len, sections)), dtype, coupling, normal, traffic)
    return ProgramListing(program, numbered.kernels, tuple(found), tuple(functions))


def _dialect(kernel: Kernel, dialect: Dialect) -> Dialect:
    """In which a kernel computes: in double where all that it stores is, whatever the solver's precision."""
    stored = {s.target.field.dtype for s in kernel.border.assignments}
    return replace(c_dialect("float64"), types=dialect.types) if stored == {"float64"} else dialect


def _head(dialect: Dialect) -> str:
    return "\n\n".join(
        [
            "/* Generated by optpy from an energy; do not edit. */",
            native_header("kernels/c/prelude.h"),
            native_header("kernels/c/vecmath.h"),
            kernel_header(),
            f"#ifndef OPTPY_WIDTH\n#define OPTPY_WIDTH {dialect.lanes}\n#endif",
            native_header("kernels/c/loops.h"),
        ]
    )


def _traffic(routine: Routine) -> tuple[int, tuple[tuple[Extent, ...], ...]]:
    loops = tuple(tuple(i.dim for i in x.loops if isinstance(i, LoopVariable)) for x in routine.locals)
    return len(routine.accesses()) + len(routine.assignments) + len(routine.atomic_adds), loops
