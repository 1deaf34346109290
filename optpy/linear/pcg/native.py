"""Conjugate gradients on the CPU: the native library that loops over an energy's kernels, and its calls."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_int, c_void_p
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.energy.derive.vectors import vector
from optpy.ir import VECTOR_UPDATES, Field, Group, Preconditioning, Task, VectorKind
from optpy.kernels.codegen.pcg_structures import PCG_ITERATION, PCG_LIMITS
from optpy.kernels.codegen.program import Program
from optpy.kernels.runtime.context import Context
from optpy.kernels.runtime.cpu import team_source
from optpy.kernels.runtime.executor import CpuExecutor
from optpy.kernels.toolchain.compiler import Compiled, compile_c
from optpy.kernels.toolchain.headers import native_header
from optpy.linear.pcg.state import PCG_KERNELS, PCG_ROW, PCG_STATE, PcgKernels, PcgState, pcg_limits
from optpy.linear.pcg.status import PcgStatus, linear_summary, pcg_iteration_source
from optpy.linear.pcg.variant import Variant
from optpy.linear.safe_work import SafeWork, safe_work_source
from optpy.solver.protocol import LinearLimits, LinearSummary


def conjugate_gradients(scalars: Sequence[str]) -> Compiled:
    """The library that runs kernels, and conjugate gradients of them; see pcg.h.

    Args:
        scalars: names of the run-time scalars, in order.

    Raises:
        CompileError
    """
    compiled = compile_c(conjugate_gradients_source(scalars), name="pcg", what="conjugate gradients")
    function = compiled.library.optpy_pcg
    function.argtypes = [POINTER(Context), POINTER(PcgKernels), POINTER(PcgState), c_void_p, c_int]
    function.restype = None
    return compiled


def conjugate_gradients_source(scalars: Sequence[str]) -> str:
    """The whole C source."""
    run = native_header("kernels/c/run.h")
    state = [PCG_LIMITS.text, PCG_ITERATION.text, pcg_iteration_source(), PCG_STATE.text]
    return joined([*pcg_kernels_source(scalars), run, *state, native_header("linear/pcg/pcg.h")])


def pcg_kernels_source(scalars: Sequence[str]) -> list[str]:
    """The C text that runs the kernels of conjugate gradients: a preconditioner's library starts with it."""
    return [*team_source(scalars), safe_work_source(), PCG_KERNELS.text, native_header("linear/pcg/pcg_kernels.h")]


def joined(parts: Sequence[str]) -> str:
    """A whole source."""
    return "\n\n".join(parts) + "\n"


def solving_groups(program: Program, damped: bool, preconditioning: Preconditioning) -> list[Group]:
    """The groups that conjugate gradients run, and those before them that follow from the preconditioner.

    Args:
        program: of the energy.
        damped, preconditioning: as for ``pcg_kernels``.
    """
    tasks = (Task.GRADIENT, Task.DAMPING, *VECTOR_UPDATES, Task.SMOOTH, Task.POWER, Task.NORMS)
    made = [g for g in program.groups if g.task in tasks and g.preconditioning is preconditioning]
    return [Group.of(Task.PRODUCT, damped=damped), *made]


def pcg_kernels(
    executor: CpuExecutor,
    unknowns: Sequence[Field],
    damped: bool,
    preconditioning: Preconditioning,
    **preconditioner: Any,
) -> PcgKernels:
    """The kernels of an iteration.

    Args:
        executor: the energy's program with its memory.
        unknowns: of the energy, in order.
        damped: whether A = J^T J + D, or J^T J alone.
        preconditioning: the way in which z is made.
        preconditioner: further members of ``PcgKernels``: what makes z where the kernels do not.
    """
    executor.library.need(solving_groups(executor.program, damped, preconditioning))
    groups, fields = executor.program.groups, executor.program.symbols.fields
    apply = groups[Group.of(Task.PRODUCT, damped=damped)]
    return PcgKernels(
        grids=len(groups[Group.of(Task.START, preconditioning)]),
        applied=len(apply),
        **{task.text: ints(groups[Group.of(task, preconditioning)]) for task in VECTOR_UPDATES},
        apply=ints(apply),
        unknowns=len(unknowns),
        p=ints([fields[vector(VectorKind.P, u)] for u in unknowns]),
        delta=ints([fields[vector(VectorKind.DELTA, u)] for u in unknowns]),
        **preconditioner,
    )


def ints(values: Sequence[int]) -> Any:
    """An array of C's int."""
    return (c_int * len(values))(*values)


def address(function: ctypes._NamedFuncPointer) -> int | None:
    """Of a native function, for a structure that holds it."""
    return ctypes.cast(function, c_void_p).value


@final
class NativeLoop:
    """Runs conjugate gradients on the CPU: see ``PcgLoop``. Every call is done when it returns.

    Args:
        executor: the energy's program with its memory.
        unknowns: of the energy, in order.
    """

    device = "cpu"
    nbytes = 0
    compiles_late = False

    def __init__(self, executor: CpuExecutor, unknowns: Sequence[Field]) -> None:
        self.executor = executor
        self.unknowns = unknowns
        self.safe_work = SafeWork()
        self._kernels: dict[tuple[bool, Preconditioning], PcgKernels] = {}

    @property
    def has_blocks(self) -> bool:
        return Group.GRADIENT_BLOCKS in self.executor.program.groups

    def trace(self, iterations: int) -> tuple[NDArray[np.float64], int]:
        """See ``PcgLoop.trace``."""
        rows = np.zeros((iterations, len(PCG_ROW.fields)))
        return rows, rows.ctypes.data

    def kernels(self, damped: bool, variant: Variant) -> PcgKernels:
        """See ``PcgLoop.kernels``."""
        preconditioning = variant.preconditioning
        found = self._kernels.get((damped, preconditioning))
        if found is None:
            found = self._kernels[damped, preconditioning] = pcg_kernels(
                self.executor, self.unknowns, damped, preconditioning
            )
        return found

    def run(
        self, kernels: PcgKernels, state: PcgState, limits: LinearLimits, pause: int | None = None, ahead: object = None
    ) -> LinearSummary | None:
        """See ``PcgLoop.run``: the native loop, with a safe point after each iteration."""
        most = limits.max_iterations if pause is None else min(pause, limits.max_iterations)
        state.limits = pcg_limits(limits, most, self.executor.program.dtype)
        if state.status == 0:
            self.safe_work.run(partial(self._call, kernels, state))
        if state.status == PcgStatus.LIMIT and state.k < limits.max_iterations and pause is not None:
            state.status = 0
            return None
        return linear_summary(state, limits)

    def _call(self, kernels: PcgKernels, state: PcgState, safe_work: int) -> None:
        state.safe = safe_work
        context, threads = byref(self.executor.context), self.executor.product_threads
        pcg = self.executor.library.loops.optpy_pcg
        pcg(context, byref(kernels), byref(state), self.executor.no_scalars, threads)

    def follow(self, ahead: object) -> None:
        """Nothing need be done ahead."""
