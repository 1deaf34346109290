"""Kernels to one C source: the kernels of an energy alone; what runs them is compiled once for all."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import final

from optpy.ir import Coupling, Extent, Group, LoopVariable, NormalMatrix, Routine, Uncoupled, loops
from optpy.kernels.codegen.conventions import Conventions
from optpy.kernels.codegen.dialect import Dialect, c_dialect
from optpy.kernels.codegen.functions import cpu_functions
from optpy.kernels.codegen.kernel_header import KERNEL, kernel_header
from optpy.kernels.codegen.layout import CPU
from optpy.kernels.codegen.lower import Kernel
from optpy.kernels.codegen.normal_rows import row_source
from optpy.kernels.codegen.numbering import AbstractProgram, Numbered, Numbers
from optpy.kernels.codegen.printer import CPrinter, kernel_declaration
from optpy.kernels.codegen.symbol_table import SymbolTable
from optpy.kernels.toolchain.headers import native_header
from optpy.kernels.toolchain.sections import ALL_SECTIONS, in_sections


@final
@dataclass(frozen=True, slots=True)
class Program(AbstractProgram):
    """Everything needed to compile and call the kernels of an energy. No expressions: it can be pickled.

    Attributes:
        numbers: by which the kernels are called.
        source: the whole C source. Its last section is of the kernels that are compiled late, and enters them in the
            table of all kernels.
        sections: the lengths of the others, see `toolchain.sections`.
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
    late = numbers.late
    solving = [n for n in range(len(functions)) if n not in late]
    sections = [*(functions[n] for n in solving), _tables(numbered, solving, normal)]
    last = "\n\n".join([*(functions[n] for n in sorted(late)), _completion(numbered, late)])
    source = f"{_head(dialect)}\n\n{in_sections([*sections, last])}\n"
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
            ALL_SECTIONS,
        ]
    )


def _tables(numbered: Numbered, solving: Sequence[int], normal: NormalMatrix | Uncoupled) -> str:
    """The description of all kernels, in which those that solves do not run are still missing."""
    here, numbers = set(solving), numbered.numbers
    table = []
    for m, (k, n, r) in enumerate(zip(numbered.kernels, numbers.lists, numbers.reductions, strict=True)):
        kernel = KERNEL.initialiser(
            range=k.name if m in here else 0,
            list=n,
            reduction=r,
            reductions=len(k.border.reductions),
            maximum=_maximum(k.border),
            prepares=int(k.border.prepares),
        )
        table.append(f"    {kernel},")
    kernels = "\n".join(f"OPTPY_KERNEL {kernel_declaration(numbered.kernels[m].name)};" for m in solving)
    tables = [kernels, "OPTPY_EXPORT Kernel optpy_kernels[] = {\n" + "\n".join(table) + "\n};"]
    if isinstance(normal, NormalMatrix):
        tables.append(row_source(normal, numbers.symbols))
    return "\n\n".join(tables)


def _completion(numbered: Numbered, late: Set[int]) -> str:
    """The function that enters late kernels in the table."""
    entered = "\n".join(f"    kernels[{n}].range = {numbered.kernels[n].name};" for n in sorted(late))
    return f"OPTPY_EXPORT void optpy_complete(Kernel *kernels) {{\n{entered}\n}}"


def _maximum(routine: Routine) -> int:
    return int(any(r.maximum for r in routine.reductions))


def _traffic(routine: Routine) -> tuple[int, tuple[tuple[Extent, ...], ...]]:
    loops = tuple(tuple(i.dim for i in x.loops if isinstance(i, LoopVariable)) for x in routine.locals)
    return len(routine.accesses()) + len(routine.assignments) + len(routine.atomic_adds), loops
