"""`python -m bench.registers [CASE ...]`: what the kernels for GPUs take, read from their machine code; no GPU needed.

Of every kernel: registers and local memory of a thread, shared memory of a block, and how many blocks of 256 threads
the registers let a multiprocessor hold at once. Local memory is registers that were spilled (and arrays that are
indexed at run time): a kernel whose row has any reads and writes memory that the count of its bytes knows nothing of.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from rich.table import Table

from bench.__main__ import CASES, load_case
from bench.case import Case
from bench.report import show
from optpy.api.pipeline import derive_cuda
from optpy.energy.derive.linearised import linearise
from optpy.energy.derive.materialised import over_edges
from optpy.ir import Coupling, Problem, ResidualSchedule, Target
from optpy.kernels.codegen.cuda.program import CudaProgram
from optpy.kernels.codegen.layout import cuda_layout
from optpy.kernels.runtime.cuda.executor import THREADS
from optpy.kernels.toolchain.cubin import read_cubin
from optpy.kernels.toolchain.nvrtc import compile_cuda, supported_architectures
from optpy.linear.jacobi.jacobi import BLOCKS, DIAGONAL
from optpy.linear.multigrid.cuda_grid import ON_GRID
from optpy.linear.multigrid.cuda_levels import multigrid_source
from optpy.scheduling.residuals import cheapest, scatters

_REGISTERS = 65536  # of a multiprocessor, in four parts
_PARTS = 4
_WARP = 32
_GRANULARITY = 256  # registers that a warp takes at a time
_THREADS_AT_MOST = {75: 1024, 86: 1536, 87: 1536, 88: 1536, 89: 1536, 110: 1536, 120: 1536, 121: 1536}
_USUAL_THREADS = 2048

VARIANTS = (DIAGONAL, BLOCKS, ON_GRID)
FORMS = ("gather", "scatter", "all")
"""What `--form` says of residuals over graphs: gathered at each point, scattered where that costs less, or always."""


@final
@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel. The names are those of the table's columns and of the JSON."""

    case: str
    dtype: str
    form: str
    architecture: str
    index: str
    """The type of indices: "int", or "long long" for fields of more than 2^31 elements."""
    source: str
    """Which of the case's sources it is in: "routines", or "pcg" with its preconditioner and damping."""
    kernel: str
    registers: int
    local_bytes: int
    shared_bytes: int
    blocks: int
    """Of 256 threads, on a multiprocessor at once, as far as the registers go."""
    occupancy: float
    """These blocks' threads, of all that a multiprocessor can hold."""


def threads_at_most(architecture: str) -> int:
    """Threads that a multiprocessor holds: the table of compute capabilities in the CUDA C++ Programming Guide.

    Args:
        architecture: "sm_90".
    """
    return _THREADS_AT_MOST.get(int(architecture.removeprefix("sm_")), _USUAL_THREADS)


def blocks_by_registers(registers: int, architecture: str, threads: int = THREADS) -> int:
    """Blocks that a multiprocessor holds at once, by its registers and its threads, as CUDA's occupancy calculator.

    Args:
        registers: of each thread.
    """
    of_warp = -(-registers * _WARP // _GRANULARITY) * _GRANULARITY
    warps = _PARTS * (_REGISTERS // _PARTS // of_warp) if registers else threads_at_most(architecture) // _WARP
    return min(warps // (threads // _WARP), threads_at_most(architecture) // threads)


def sources(program: CudaProgram, index: str) -> Iterator[tuple[str, str]]:
    """Everything that a solve could need to compile: a name, and the text."""
    yield "routines", program.routines_source(index)
    for variant in VARIANTS:
        if variant.start in program.phases:
            for damped in (False, True):
                yield (
                    f"pcg{variant.preconditioning}{' damped' if damped else ''}",
                    variant.source(program, damped, index),
                )
    if isinstance(program.coupling, Coupling):
        yield "multigrid", multigrid_source(program.coupling, program.dtype)


def _all_scattered(problem: Problem, form: str) -> tuple[ResidualSchedule, ...]:
    edges = [r for r in problem.residuals if form == "all" and over_edges(r)]
    return tuple(cheapest(linearise(r), scatters(r.label)) for r in edges)


def measure(case: Case, dtype: str, form: str, architecture: str, index: str = "int") -> Iterator[KernelRow]:
    """All kernels of a case.

    Raises:
        CompileError: NVRTC is not there.
    """
    target = Target.DETERMINISTIC_GPU if form == "gather" else Target.GPU
    scattered = _all_scattered(case.energy.problem, form)
    program = derive_cuda(case.energy.problem, dtype, scattered, target, cuda_layout(architecture)).listing
    for name, text in sources(program, index):
        image = compile_cuda(text, architecture).image
        for kernel, r in sorted(read_cubin(image).items()):
            blocks = blocks_by_registers(r.registers, architecture)
            yield KernelRow(
                case=case.name,
                dtype=dtype,
                form=form,
                architecture=architecture,
                index=index,
                source=name,
                kernel=kernel,
                registers=r.registers,
                local_bytes=r.local_bytes,
                shared_bytes=r.shared_bytes,
                blocks=blocks,
                occupancy=blocks * THREADS / threads_at_most(architecture),
            )


def table(rows: Sequence[KernelRow]) -> Table:
    """One line for each kernel."""
    first = rows[0]
    title = f"{first.case}, {first.dtype}, {first.form}, {first.architecture}, indices {first.index}"
    drawn = Table(title=title)
    for name in ("source", "kernel"):
        drawn.add_column(name)
    for name in ("registers", "local bytes", "shared bytes", "blocks of 256", "occupancy"):
        drawn.add_column(name, justify="right")
    for row in rows:
        numbers = (row.registers, row.local_bytes, row.shared_bytes, row.blocks)
        style = "red" if row.local_bytes else None
        drawn.add_row(row.source, row.kernel, *map(str, numbers), f"{row.occupancy:.0%}", style=style)
    return drawn


def spilled(rows: Iterable[KernelRow]) -> list[str]:
    """A line for each kernel with local memory."""
    return [
        f"{row.case} {row.dtype} {row.form} {row.architecture} {row.kernel} ({row.source}): {row.local_bytes} bytes"
        for row in rows
        if row.local_bytes
    ]


def as_records(rows: Iterable[KernelRow]) -> list[dict[str, Any]]:
    """For JSON."""
    return [asdict(row) for row in rows]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.registers", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; all if none is named")
    parser.add_argument("--architecture", nargs="+", default=["sm_90"], metavar="SM", help="such as sm_80 sm_90")
    parser.add_argument("--dtype", nargs="+", choices=("float32", "float64"), default=["float32"])
    parser.add_argument("--form", nargs="+", choices=FORMS, default=["scatter"], help="of residuals over graphs")
    parser.add_argument("--index", nargs="+", choices=("int", "long"), default=["int"], help="the type of indices")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("results") / "registers.json")
    settings = parser.parse_args(arguments)
    unknown = [name for name in settings.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are: {', '.join(CASES)}")
    settings.cases = settings.cases or list(CASES)
    settings.index = ["long long" if name == "long" else name for name in settings.index]
    known = [f"sm_{number}" for number in supported_architectures()]
    strange = [name for name in settings.architecture if name not in known]
    if strange:
        parser.error(f"NVRTC makes no machine code for {strange[0]!r}; there are: {', '.join(known)}")
    return settings


def main(arguments: list[str] | None = None) -> list[KernelRow]:
    """Compiles, prints the tables, writes the JSON."""
    settings = parse(arguments)
    everything: list[KernelRow] = []
    for case in map(load_case, settings.cases):
        # Where there is no graph, nothing can be scattered.
        forms = settings.form if case.energy.graphs else settings.form[:1]
        for dtype in settings.dtype:
            for form in forms:
                for architecture in settings.architecture:
                    for index in settings.index:
                        rows = list(measure(case, dtype, form, architecture, index))
                        show(table(rows))
                        everything += rows
    found = spilled(everything)
    print("\n".join(["kernels with local memory:", *found]) if found else "no kernel has local memory")
    settings.output.parent.mkdir(parents=True, exist_ok=True)
    settings.output.write_text(json.dumps(as_records(everything), indent=1))
    print(settings.output)
    return everything


if __name__ == "__main__":
    main()
