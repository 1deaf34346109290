"""Why a preconditioner does not apply to an energy with its graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import final

from optpy.errors import OptionError
from optpy.ir import Coupling, Dim, Graph, NormalMatrix, Uncoupled
from optpy.kernels.codegen.program import Program
from optpy.kernels.runtime.tables import Connectivity
from optpy.linear.multigrid.levels import too_long_edge
from optpy.solver.options import Preconditioner

MOST_BLOCKS = 2**28
"""Blocks that residuals add to a matrix at most, for it to be assembled: 56 bytes each while the sparsity is found."""


@final
@dataclass(frozen=True, slots=True)
class Obstacles:
    """What stands against each preconditioner, in words; None where it applies. Jacobi and block-Jacobi always do.

    Attributes:
        grid: against the multigrid of the unknowns' grid.
        matrix: against assembling J^T J, and so against a factorisation.
        multigrid: against any multigrid: that of the grid, and the algebraic one on the assembled matrix.
    """

    grid: str | None
    matrix: str | None
    multigrid: str | None

    def check(self, preconditioner: Preconditioner) -> None:
        """Nothing, if a preconditioner applies.

        Raises:
            OptionError: it does not.
        """
        obstacle = {"multigrid": self.multigrid, "cholesky": self.matrix}.get(preconditioner or "")
        if obstacle is not None:
            raise OptionError(f"preconditioner={preconditioner!r} does not apply: {obstacle}; use 'auto'")


def obstacles(program: Program, sizes: Mapping[Dim, int], graphs: Mapping[Graph, Connectivity]) -> Obstacles:
    """What stands against the preconditioners of a program.

    Args:
        sizes: of its dims.
        graphs: as they are bound; none: edges are of any length, until they are known.
    """
    coupling = program.coupling
    grid = grid_obstacle(coupling, graphs)
    matrix = _matrix_obstacle(program.normal, sizes)
    if grid is None or matrix is None:
        return Obstacles(grid, matrix, None)
    return Obstacles(grid, matrix, grid if isinstance(coupling, Coupling) else f"{grid}; and {matrix}")


def grid_obstacle(coupling: Coupling | Uncoupled, graphs: Mapping[Graph, Connectivity]) -> str | None:
    """What stands against the multigrid of the unknowns' grid; no graphs: edges are of any length."""
    if isinstance(coupling, Uncoupled):
        return coupling.reason
    return too_long_edge(coupling, graphs) if graphs else None


def _matrix_obstacle(normal: NormalMatrix | Uncoupled, sizes: Mapping[Dim, int]) -> str | None:
    if isinstance(normal, Uncoupled):
        return f"J^T J is not assembled: {normal.reason}"
    blocks = sum(prod(sizes[i.dim] for i in t.domain) * len(t.reads) ** 2 for t in normal.terms)
    return f"J^T J has up to {blocks:,} blocks, too many to assemble" if blocks > MOST_BLOCKS else None
