"""Jacobi and block-Jacobi in the registry."""

from __future__ import annotations

from collections.abc import Callable

from optpy.linear.jacobi.jacobi import BLOCKS, DIAGONAL, JacobiSolve
from optpy.linear.pcg.native import solving_groups
from optpy.linear.record import Implementation, Record
from optpy.linear.system import System


def _always(system: System) -> None:
    """They apply to every energy."""
    return


def _kernels_on_cpu(blocks: bool) -> Callable[[System, bool], None]:
    def compiled(system: System, damped: bool) -> None:
        preconditioning = (BLOCKS if blocks and system.loop.has_blocks else DIAGONAL).preconditioning
        system.executor.library.need(solving_groups(system.program, damped, preconditioning))

    return compiled


def _solve_in_one(blocks: bool) -> Callable[[System, bool], None]:
    """Compiles the kernel that has all iterations in it, so that the first solve need not."""

    def compiled(system: System, damped: bool) -> None:
        executor = system.executor
        variant = BLOCKS if blocks and system.loop.has_blocks else DIAGONAL
        variant.kernel(executor.library, "pcg_solve", damped, executor.index)

    return compiled


def _record(option: str, other_names: tuple[str, ...] = (), *, blocks: bool) -> Record:
    def make(system: System) -> JacobiSolve:
        return JacobiSolve(system.loop, blocks)

    gpu = Implementation(make, _solve_in_one(blocks))
    return Record(option, Implementation(make, _kernels_on_cpu(blocks)), gpu, _always, other_names, takes_blocks=blocks)


JACOBI = _record("jacobi", ("diagonal",), blocks=False)
BLOCK_JACOBI = _record("block_jacobi", blocks=True)
