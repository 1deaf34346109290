"""Conjugate gradients with one preconditioner: its preconditioning, and the source of its kernels on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from optpy.ir import VECTOR_UPDATES, Group, Preconditioning, Task
from optpy.kernels.codegen.cuda.program import CudaProgram, Phase
from optpy.kernels.codegen.cuda.source import LaunchBounds, launch_bounds
from optpy.kernels.runtime.cuda.device import LoadedKernel
from optpy.kernels.runtime.cuda.executor import CudaLibrary
from optpy.kernels.toolchain.headers import native_header
from optpy.linear.pcg.status import pcg_iteration_source

_KERNELS = ("go_on", "direction", "flush", "apply", "product", "start", "update", "restart")
"""Of pcg.cuh and of every preconditioner, each behind "pcg_"; beside those that prepare a product."""


@final
@dataclass(frozen=True, slots=True)
class Variant:
    """Conjugate gradients with one preconditioner, and what that adds to pcg.cuh on a GPU.

    Attributes:
        preconditioning: the way in which z is made.
        header: the path of its kernels in the package.
        kernels: their names behind "pcg_", beyond those that every preconditioner has.
        further: tasks beside the vector updates that all have.
        in_one_kernel: whether one of its kernels has all iterations in it.
        batches: iterations that are queued before the host looks whether an earlier batch was the last; the last number
            repeats.
    """

    preconditioning: Preconditioning
    header: str
    kernels: tuple[str, ...]
    further: tuple[Task, ...] = ()
    in_one_kernel: bool = False
    batches: tuple[int, ...] = (4, 8, 16)

    @property
    def start(self) -> Group:
        """The group of its first vector update: whether a program has it says whether it has the others."""
        return Group.of(Task.START, self.preconditioning)

    def source(self, program: CudaProgram, damped: bool, index: str) -> str:
        """The whole text.

        Args:
            program: of the energy.
            damped: whether A = J^T J + D, or J^T J alone.
            index: the type of indices, "int" or "long long".
        """
        products = program.phases[Group.of(Task.PRODUCT, damped=damped)]
        updates: dict[str, Phase] = {}
        for task in (*VECTOR_UPDATES, *self.further):
            (updates[task.text],) = program.phases[Group.of(task, self.preconditioning)]
        named = updates | {f"apply_{n}": p for n, p in enumerate(products)}
        defined = [f"#define phase_{name} {p.name}" for name, p in named.items()]
        prepare = (f"prepare_{n}" for n in range(len(products) - 1))
        kernels = (f"pcg_{name}" for name in (*prepare, *_KERNELS, *self.kernels))
        bounds = [line for kernel in kernels for line in launch_bounds(kernel, _bounds(kernel))]
        text = [
            "\n".join([*defined, *_passes(products), *bounds]),
            pcg_iteration_source(),
            native_header("linear/pcg/pcg.cuh"),
            (_products(len(products)) if self.in_one_kernel else "") + native_header(self.header),
        ]
        return program.text(index, [*named.values()], text)

    def kernel(self, library: CudaLibrary, name: str, damped: bool, index: str) -> LoadedKernel:
        """One of its kernels, compiled with the others when the first is asked for; see ``source``."""
        key = ("pcg", self.preconditioning, "damped" if damped else "", index)
        return library.kernel(key, lambda: self.source(library.program, damped, index), name)


def _bounds(kernel: str) -> LaunchBounds:
    return "OPTPY_OCCUPANCY_OF_ALL" if kernel == "pcg_solve" else "OPTPY_OCCUPANCY"


def _passes(products: Sequence[Phase]) -> list[str]:
    """A p as kernels: those that prepare, each with what it adds to p.Ap, and the last."""
    *before, _ = products
    summed = any(p.sums for p in before)
    kernels = []
    for n in range(len(before)):
        call = f"PCG_STATUS, phase_apply_{n}(c, scalar, sum, false), 0"
        after = f"c->pcg->prepared = total[0] + {'PCG_NOW(prepared)' if n else '0'}"
        kernels.append(
            f"PCG_STAGE_SUM(pcg_prepare_{n}, {call}, {after})" if summed else f"PCG_STAGE(pcg_prepare_{n}, {call})"
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
