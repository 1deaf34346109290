"""Sweeps on GPUs: the neighbouring points that a thread takes at a time where a kernel touches nothing beside its own.

On the CPU there is nothing to decide: a loop over points is as wide as its vector registers (``OPTPY_WIDTH``).
"""

from __future__ import annotations

from typing import Final

from optpy.ir import Schedule, Target, VectorSweep
from optpy.kernels.codegen.conventions import Conventions
from optpy.kernels.codegen.dialect import cuda_dialect
from optpy.kernels.codegen.layout import CUDA, widest_load
from optpy.kernels.codegen.numbering import Numbered
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.guard_reads import guard_reads
from optpy.kernels.codegen.passes.in_vectors import is_elementwise, numbers_at_a_point
from optpy.kernels.codegen.symbol_table import Dims
from optpy.scheduling.given import completed

_NUMBERS: Final = 64
_NUMBERS_BESIDE_GATHERS: Final = 48
"""Read and stored at the points that a thread takes at a time, padding included: all are in registers, of which a GPU
has 255 for a thread, and 64 where four blocks are to fit beside one another. Fewer on grids that graphs point into: the
one kernel that sweeps and gathers has as many registers as its hungriest part needs, and gathers wait less the more
warps fit beside one another (``python -m bench.registers`` shows the registers of each kernel)."""


def schedule_sweeps(numbered: Numbered, dtype: str, target: Target, given: Schedule) -> tuple[VectorSweep, ...]:
    """The sweeps of a target, each the given one, or with as many points at a time as a load and registers hold.

    Args:
        numbered: all kernels.
        dtype: the solver's precision.
        target: where they run.
        given: by hand.

    Raises:
        OptionError: a given one cannot be.
    """
    if not target.gpu:
        return completed((), given.sweeps, given, lambda sweep: None)
    conventions = Conventions(numbered.numbers.symbols, cuda_dialect(dtype), CUDA, ())
    numbers: dict[str, tuple[Dims, int]] = {}
    for kernel in numbered.kernels:
        if not kernel.border.locals and not kernel.border.atomic_adds:
            function = guard_reads(build_loops(kernel))
            if is_elementwise(function, conventions.symbols):
                dims = tuple(i.dim for i in kernel.border.domain)
                numbers[kernel.name] = dims, numbers_at_a_point(function, conventions)
    widest = widest_load(8 if dtype == "float64" else 4)
    gathered = conventions.symbols.interleaved
    decided = [_sweep(name, n, widest, dims in gathered) for name, (dims, n) in numbers.items()]
    others = {k.name: "its kernel touches more than its own point" for k in numbered.kernels if k.name not in numbers}
    return completed(decided, given.sweeps, given, lambda sweep: _refusal(sweep, widest), others)


def _sweep(kernel: str, numbers: int, widest: int, beside_gathers: bool) -> VectorSweep:
    room = _NUMBERS_BESIDE_GATHERS if beside_gathers else _NUMBERS
    points = next((w for w in (4, 2) if w <= widest and w * numbers <= room), 1)
    reason = f"each has {numbers} numbers, and {room} may be in registers; a load brings {widest} at most"
    return VectorSweep(kernel, points, reason)


def _refusal(sweep: VectorSweep, widest: int) -> str | None:
    if sweep.points in (1, 2, 4) and sweep.points <= widest:
        return None
    return f"a load brings {widest}, and threads take 1, 2 or 4 points"
