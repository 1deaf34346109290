"""Routines to CUDA sources: that of the energy's own groups, and what others are put together from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import final

from optpy.ir import (
    Coupling,
    Group,
    Incidence,
    Routine,
    Task,
    Uncoupled,
    VectorSweep,
    When,
    affines_of,
    in_phases,
    loops,
)
from optpy.kernels.codegen.conventions import Conventions
from optpy.kernels.codegen.cuda.context import structures_source
from optpy.kernels.codegen.cuda.functions import device_function
from optpy.kernels.codegen.cuda.printer import CudaPrinter
from optpy.kernels.codegen.cuda.source import cuda_text, launch_bounds, shared_header
from optpy.kernels.codegen.dialect import cuda_dialect
from optpy.kernels.codegen.layout import CUDA, CUDALayout
from optpy.kernels.codegen.lower import Kernel
from optpy.kernels.codegen.numbering import AbstractProgram, Numbered, Numbers
from optpy.kernels.toolchain.headers import native_header
from optpy.kernels.toolchain.nvrtc import BOUNDS
from optpy.symbolic.affine import Affine


@final
@dataclass(frozen=True, slots=True)
class Phase:
    """Kernels that one launch runs side by side, and the sums that it leaves.

    Attributes:
        work: of which group, and the number among its phases: "applyJTJ_0".
        kernels: their numbers.
        sums: names of the sums, each with whether it is a maximum.
        first: where the sums go among all totals.
    """

    work: str
    kernels: tuple[int, ...]
    sums: tuple[tuple[str, bool], ...]
    first: int

    @property
    def name(self) -> str:
        """Of the device function."""
        return f"phase_{self.work}"

    @property
    def launch(self) -> str:
        """The name of the kernel that launches it alone."""
        return f"run_{self.work}"


@final
@dataclass(frozen=True, slots=True)
class CudaProgram(AbstractProgram):
    """Everything needed to compile and launch the kernels of an energy.

    Attributes:
        numbers: by which the kernels are called.
        kernels: lowered.
        phases: of each group, in order; each needs what the one before has stored.
        loops: the device function of each kernel, as it is printed.
        functions: its text.
        totals: how many sums there are in all.
        dtype: the solver's precision.
        scalars: names of the run-time scalars, in order.
        coupling: of the unknowns where they stand on one grid; else why there is none.
        layout: of its fields in memory.
    """

    numbers: Numbers
    kernels: tuple[Kernel, ...]
    phases: dict[Group, tuple[Phase, ...]]
    loops: tuple[tuple[loops.Function], ...]
    functions: tuple[str, ...]
    totals: int
    dtype: str
    scalars: tuple[str, ...]
    coupling: Coupling | Uncoupled
    layout: CUDALayout

    def routine(self, kernel: int) -> Routine:
        """The routine that a kernel, given by its number, has been lowered from."""
        return self.kernels[kernel].border

    @property
    def affines(self) -> set[Affine]:
        """The affine indices in all kernels."""
        leaves = {a for k in self.kernels for key in k.border.keys for a in affines_of(key)}
        loops = (x for k in self.kernels for local in k.border.locals for x in local.loops)
        return leaves.union(*(x.at for x in loops if isinstance(x, Incidence)))

    @property
    def source(self) -> str:
        """The text of all that is generated."""
        return self.text("int", [p for found in self.phases.values() for p in found], self._launchers)

    def routines_source(self, index: str) -> str:
        """The kernels of all groups but the vector updates of conjugate gradients, which launch their own phases.

        Args:
            index: the type of indices, "int" or "long long".
        """
        return self.text(index, [p for _, p in self._launched], self._launchers)

    @property
    def _launched(self) -> list[tuple[Group, Phase]]:
        groups = {group: found for group, found in self.phases.items() if group.task.when is not When.ITERATION}
        return [(group, p) for group, found in groups.items() for p in found]

    @property
    def _launchers(self) -> list[str]:
        return [_launcher(p, group.task is Task.PRODUCT) for group, p in self._launched]

    def text(self, index: str, phases: Sequence[Phase], parts: Sequence[str]) -> str:
        """A source with the device functions of some phases.

        Args:
            index: the type of indices, "int" or "long long".
            phases: of any groups.
            parts: the kernels that call them.
        """
        numbers = dict.fromkeys(n for p in phases for n in p.kernels)
        return cuda_text(
            index,
            [
                shared_header("kernels/c/vecmath.h"),
                structures_source(self.symbols, self.scalars, len(self.kernels)),
                native_header("kernels/cuda/reduce.cuh"),
                native_header("kernels/cuda/divisor.cuh"),
                native_header("kernels/cuda/tiles.cuh"),
                *(self.functions[n] for n in numbers),
                *(self._phase_function(p) for p in phases),
                *parts,
            ],
        )

    def _phase_function(self, phase: Phase) -> str:
        calls = [f"    {self.kernels[n].name}(c, scalar, sum, on_delta);" for n in phase.kernels]
        head = f"OPTPY_FN void {phase.name}(const Context *c, const double *scalar, double *sum, bool on_delta) {{"
        return "\n".join([head, *calls, "}"])


def cuda_program(
    numbered: Numbered,
    dtype: str,
    solver_scalars: tuple[str, ...],
    coupling: Coupling | Uncoupled,
    sweeps: Sequence[VectorSweep] = (),
    layout: CUDALayout = CUDA,
) -> CudaProgram:
    """Print all kernels as device functions; the other arguments are those of ``c_program``.

    Args:
        sweeps: of the kernels whose threads take several points at a time.
        layout: of the fields in memory.
    """
    points = {sweep.routine: sweep.points for sweep in sweeps}
    numbers = numbered.numbers
    conventions = Conventions(numbers.symbols, cuda_dialect(dtype), layout, solver_scalars)
    phases: dict[Group, tuple[Phase, ...]] = {}
    found_loops: dict[int, loops.Function] = {}
    totals = 0
    for group, members in numbers.groups.items():
        found = []
        for position, together in enumerate(_together(numbered, members)):
            sums = _sums(numbered, together)
            found.append(Phase(f"{group}_{position}", together, tuple(sums), totals))
            totals += len(sums)
            for n in together:
                kernel = numbered.kernels[n]
                own = tuple(list(sums).index((r.name, r.maximum)) for r in kernel.border.reductions)
                mask = numbers.solved.get(tuple(i.dim for i in kernel.domain)) if _skips(numbered, n) else None
                found_loops[n] = device_function(kernel, conventions, n, own, mask, points.get(kernel.name))
        phases[group] = tuple(found)
    ordered = [found_loops[n] for n in range(len(numbered.kernels))]
    functions = tuple(map(CudaPrinter(conventions).function, ordered))
    single = tuple((f,) for f in ordered)
    return CudaProgram(
        numbers, numbered.kernels, phases, single, functions, totals, dtype, solver_scalars, coupling, layout
    )


def _together(numbered: Numbered, numbers: Sequence[int]) -> list[tuple[int, ...]]:
    """The kernels of a group, cut where one must wait for all points of earlier ones."""
    left = iter(numbers)
    return [tuple(islice(left, len(x))) for x in in_phases(numbered.kernels[n].border for n in numbers)]


def _sums(numbered: Numbered, kernels: Sequence[int]) -> dict[tuple[str, bool], None]:
    return dict.fromkeys(s for n in kernels for s in numbered.numbers.sums[n])


def _skips(numbered: Numbered, kernel: int) -> bool:
    """Whether a kernel may leave out points where nothing is solved for."""
    return list(numbered.numbers.symbols.lists)[numbered.numbers.lists[kernel]].solved_only


def _launcher(phase: Phase, high_occupancy: bool) -> str:
    n = max(len(phase.sums), 1)
    maxima = sum(1 << k for k, (_, maximum) in enumerate(phase.sums) if maximum)
    lines = [
        *launch_bounds(phase.launch, "OPTPY_OCCUPANCY" if high_occupancy else "OPTPY_THREADS"),
        f'extern "C" __global__ void __launch_bounds__({BOUNDS}{phase.launch}) {phase.launch}'
        "(const __grid_constant__ Context context) {",
        "    const Context *c = &context;",
        "    if (c->ahead && *(volatile long long *)&c->pcg->status == 0) return;",
        f"    double scalar[OPTPY_SCALARS], sum[{n}] = {{0}};",
        "#pragma unroll",
        "    for (int n = 0; n < OPTPY_SCALARS; ++n) scalar[n] = c->scalar[n];",
        f"    {phase.name}(c, scalar, sum, false);",
        *([f"    optpy_finish<{n}>(c, sum, {phase.first}, {maxima}u);"] if phase.sums else []),
        "}",
    ]
    return "\n".join(lines)
