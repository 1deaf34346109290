"""Routines to CUDA sources: one for the energy's own groups, one for each kind of conjugate gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import final

from optpy.ir import LINES, Coupling, Group, Incidence, Sweeps, Task, Uncoupled, affines_of, in_phases, loops
from optpy.kernels.codegen.cuda.context import structures_source
from optpy.kernels.codegen.cuda.functions import device_function
from optpy.kernels.codegen.cuda.printer import CudaPrinter
from optpy.kernels.codegen.cuda.source import cuda_text, launch_bounds, shared_header
from optpy.kernels.codegen.dialect import cuda_dialect
from optpy.kernels.codegen.endings import endings_source
from optpy.kernels.codegen.layout import CUDA
from optpy.kernels.codegen.numbering import AbstractProgram, Numbered
from optpy.kernels.codegen.target import Target
from optpy.kernels.toolchain.headers import native_header
from optpy.kernels.toolchain.nvrtc import BOUNDS
from optpy.symbolic.affine import Affine

_MULTIGRID_LINES = (*LINES, Task.SMOOTH, Task.POWER)
_KERNELS = ("go_on", "direction", "flush", "apply", "product", "start", "update", "restart")
_JACOBI_KERNELS = (*_KERNELS, "resume", "solve")
_MULTIGRID_KERNELS = (*_KERNELS, "begin", "smooth_start", "smooth_update", "smooth_resume", "power")
"""Of pcg.cuh with pcg_jacobi.cuh or pcg_multigrid.cuh, each behind pcg_; beside what prepares a product."""


@final
@dataclass(frozen=True, slots=True)
class Phase:
    """Kernels that one launch runs side by side, and the sums that it leaves.

    Attributes:
        name: of the device function, "phase_applyJTJ_0"; the kernel that launches it alone is "run_...".
        kernels: their numbers.
        sums: names of the sums, each with whether it is a maximum.
        first: where the sums go among all totals.
    """

    name: str
    kernels: tuple[int, ...]
    sums: tuple[tuple[str, bool], ...]
    first: int

    @property
    def launch(self) -> str:
        return self.name.replace("phase_", "run_", 1)


@final
@dataclass(frozen=True, slots=True)
class CudaProgram(AbstractProgram):
    """Everything needed to compile and launch the kernels of an energy.

    Attributes:
        numbered: the kernels, their groups and slots.
        phases: of each group, in order; each needs what the one before has stored.
        loops: the device function of each kernel, as it is printed.
        functions: its text.
        totals: how many sums there are in all.
        dtype: the solver's precision.
        scalars: names of the run-time scalars, in order.
        coupling: of the unknowns, where they have a multigrid on their grid.
    """

    numbered: Numbered
    phases: dict[Group, tuple[Phase, ...]]
    loops: tuple[tuple[loops.Function], ...]
    functions: tuple[str, ...]
    totals: int
    dtype: str
    scalars: tuple[str, ...]
    coupling: Coupling | Uncoupled

    @property
    def affines(self) -> set[Affine]:
        """The affine indices in all kernels."""
        leaves = {a for k in self.kernels for key in k.border.keys for a in affines_of(key)}
        loops = (x for k in self.kernels for local in k.border.locals for x in local.loops)
        return leaves.union(*(x.at for x in loops if isinstance(x, Incidence)))

    @property
    def source(self) -> str:
        """The text: the groups' kernels, and conjugate gradients once, without multigrid."""
        sweeps = Sweeps.BLOCKS if Group.START_BLOCKS in self.phases else Sweeps.DIAGONAL
        return self.routines_source("int") + "\n" + self.pcg_source(sweeps, True, "int")

    def routines_source(self, index: str) -> str:
        """The kernels of all groups but the sweeps of conjugate gradients.

        Args:
            index: the type of indices, "int" or "long long".
        """
        groups = {group: found for group, found in self.phases.items() if group.task not in _MULTIGRID_LINES}
        launchers = [_launcher(p, group.task is Task.PRODUCT) for group, found in groups.items() for p in found]
        return self._text(index, [p for found in groups.values() for p in found], launchers)

    def pcg_source(self, sweeps: Sweeps, damped: bool, index: str) -> str:
        """Conjugate gradients with one preconditioner.

        Args:
            sweeps: by the way in which z is made.
            damped: whether A = J^T J + D, or J^T J alone.
            index: the type of indices.
        """
        products = self.phases[Group.of(Task.PRODUCT, damped=damped)]
        multigrid = sweeps is Sweeps.MULTIGRID
        tasks = _MULTIGRID_LINES if multigrid else LINES
        lines = {task.text: self.phases[Group.of(task, sweeps)] for task in tasks}
        defined = []
        for name, phases in {**lines, "apply": products}.items():
            assert name == "apply" or len(phases) == 1
            defined += [
                f"#define phase_{name}{f'_{n}' if name == 'apply' else ''} {p.name}" for n, p in enumerate(phases)
            ]
        kernels = _MULTIGRID_KERNELS if multigrid else _JACOBI_KERNELS
        prepare = (f"prepare_{n}" for n in range(len(products) - 1))
        bounds = [line for k in (*prepare, *kernels) for line in launch_bounds(f"pcg_{k}", True)]
        text = [
            "\n".join([*defined, *_passes(products), *bounds]),
            endings_source(),
            native_header("linear/pcg/pcg.cuh"),
            native_header("linear/multigrid/pcg_multigrid.cuh")
            if multigrid
            else _products(len(products)) + native_header("linear/jacobi/pcg_jacobi.cuh"),
        ]
        return self._text(index, [*(p for ps in lines.values() for p in ps), *products], text)

    def _text(self, index: str, phases: Sequence[Phase], parts: Sequence[str]) -> str:
        numbers = dict.fromkeys(n for p in phases for n in p.kernels)
        return cuda_text(
            index,
            [
                shared_header("kernels/c/vecmath.h"),
                structures_source(self.slots, self.scalars, len(self.kernels)),
                native_header("kernels/cuda/reduce.cuh"),
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
    numbered: Numbered, dtype: str, solver_scalars: tuple[str, ...], coupling: Coupling | Uncoupled
) -> CudaProgram:
    """Print all kernels as device functions; the arguments are those of ``c_program``."""
    target = Target(numbered.slots, cuda_dialect(dtype), CUDA, solver_scalars)
    masks = numbered.solved
    phases: dict[Group, tuple[Phase, ...]] = {}
    found_loops: dict[int, loops.Function] = {}
    totals = 0
    for group, numbers in numbered.groups.items():
        found = []
        for position, together in enumerate(_together(numbered, numbers)):
            sums = _sums(numbered, together)
            found.append(Phase(f"phase_{group}_{position}", together, tuple(sums), totals))
            totals += len(sums)
            for n in together:
                kernel = numbered.kernels[n]
                own = tuple(list(sums).index((r.name, r.maximum)) for r in kernel.border.reductions)
                mask = masks.get(tuple(i.dim for i in kernel.domain)) if _skips(numbered, n) else None
                found_loops[n] = device_function(kernel, target, n, own, mask)
        phases[group] = tuple(found)
    ordered = [found_loops[n] for n in range(len(numbered.kernels))]
    functions = tuple(map(CudaPrinter(target).function, ordered))
    single = tuple((f,) for f in ordered)
    return CudaProgram(numbered, phases, single, functions, totals, dtype, solver_scalars, coupling)


def _together(numbered: Numbered, numbers: Sequence[int]) -> list[tuple[int, ...]]:
    """The kernels of a group, cut where one must wait for all points of earlier ones."""
    left = iter(numbers)
    return [tuple(islice(left, len(x))) for x in in_phases(numbered.kernels[n].border for n in numbers)]


def _sums(numbered: Numbered, kernels: Sequence[int]) -> dict[tuple[str, bool], None]:
    return dict.fromkeys((r.name, r.maximum) for n in kernels for r in numbered.kernels[n].border.reductions)


def _skips(numbered: Numbered, kernel: int) -> bool:
    """Whether a kernel may leave out points where nothing is solved for."""
    return list(numbered.slots.lists)[numbered.lists[kernel]].solved_only


def _launcher(phase: Phase, crowded: bool) -> str:
    n = max(len(phase.sums), 1)
    maxima = sum(1 << k for k, (_, maximum) in enumerate(phase.sums) if maximum)
    lines = [
        *launch_bounds(phase.launch, crowded),
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


def _passes(products: Sequence[Phase]) -> list[str]:
    """A p as kernels: those that prepare, each with what it adds to p.Ap, and the last."""
    *before, _ = products
    summed = any(p.sums for p in before)
    kernels = []
    for n in range(len(before)):
        call = f"PCG_STATUS, phase_apply_{n}(c, scalar, sum, false), 0"
        after = f"c->pcg->prepared = total[0] + {'PCG_NOW(prepared)' if n else '0'}"
        kernels.append(
            f"PCG_LINE(pcg_prepare_{n}, {call}, {after})" if summed else f"PCG_SWEEP(pcg_prepare_{n}, {call})"
        )
    return [
        f"#define PCG_PREPARE {' '.join(kernels)}",
        f"#define PCG_PREPARES_SUM {int(summed)}",
        f"#define PCG_LAST_APPLY phase_apply_{len(before)}",
    ]


def _products(phases: int) -> str:
    """A p in all its phases, within one kernel."""
    lines = ["#define pcg_products(c, scalar, sum, on_delta) \\", "    { \\"]
    for n in range(phases):
        lines += ["        optpy_barrier(c); \\"] if n else []
        lines.append(f"        phase_apply_{n}(c, scalar, sum, on_delta); \\")
    return "\n".join([*lines, "    }", "", ""])
