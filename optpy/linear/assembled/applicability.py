"""The conditions under which J^T J is assembled."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from optpy.ir import Group, Uncoupled
from optpy.kernels.runtime.cpu import CpuLibrary
from optpy.linear.assembled.native import matrix_solvers
from optpy.linear.system import System

MOST_BLOCKS = 2**28
"""Blocks that residuals add to a matrix at most, for it to be assembled: 56 bytes each while the sparsity is found,
14 GiB in all. No benchmark has set it: it is the memory of a workstation."""
PATIENCE = 10
"""Iterations with block-Jacobi after which "auto" assembles: that also makes better steps than block-Jacobi, so that it
comes sooner than by what assembling costs (23 to 175 of them in ``python -m bench.preconditioners --size 96`` on
meshes)."""


def matrix_applicability(system: System) -> str | None:
    """The reason why J^T J is not assembled; None if it may be."""
    normal = system.program.normal
    if isinstance(normal, Uncoupled):
        return f"J^T J is not assembled: {normal.reason}"
    blocks = sum(prod(system.sizes[i.dim] for i in t.domain) * len(t.reads) ** 2 for t in normal.terms)
    return f"J^T J has up to {blocks:,} blocks, too many to assemble" if blocks > MOST_BLOCKS else None


def compile_matrix(system: System, groups: Iterable[Group]) -> None:
    """Compile what assembles the matrix and works on it, and some groups of kernels besides.

    Raises:
        CompileError
    """
    library: CpuLibrary = system.executor.library
    library.need_beside([*groups, Group.NORMAL], lambda: matrix_solvers(library))
