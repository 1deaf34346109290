"""Protocols of the executor of a compiled problem: routines with their memory, and a linear solver on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from optpy.ir import Extent, Field, Group, Hypergraph
from optpy.kernels.runtime.buffers import Buffers
from optpy.kernels.runtime.tables import Connectivity
from optpy.solver.options import Preconditioner
from optpy.solver.pcg import PCGScalars
from optpy.solver.protocol import LinearLimits, LinearSummary


class Executor(Protocol):
    """Runs compiled routines on their memory: ``CpuExecutor`` on the CPU, ``CudaExecutor`` on a GPU."""

    @property
    def buffers(self) -> Buffers:
        """The memory of the routines' fields."""

    @property
    def dtype(self) -> str:
        """ "float32" or "float64": that of unknowns, vectors and sums within kernels."""

    @property
    def xp(self) -> Any:
        """The module of the buffers' arrays: NumPy or CuPy."""

    @property
    def groups(self) -> Collection[Group]:
        """The groups that the program has."""

    def set_params(self, params: Mapping[str, float]) -> None:
        """Take over all params, by name."""

    def set_connectivity(self, graphs: Mapping[Hypergraph, Connectivity]) -> None:
        """Take over the tables of all graphs; their memory is shared, not copied."""

    def set_points(self, graphs: Mapping[Hypergraph, Connectivity]) -> None:
        """Find the points at which something is solved for."""

    def queue(self, group: Group, scalars: Mapping[str, float] | None = None, repeat: int = 1) -> None:
        """Run a group, at once or when the device comes to it."""

    def totals(self, group: Group) -> dict[str, float]:
        """The sums of a group's last run."""

    def wait(self) -> None:
        """Until all that is queued is done."""

    def host(self, array: Any) -> NDArray[Any]:
        """An array of the buffers in main memory."""


class Linear(Protocol):
    """Solves (J^T J + D) x = b: ``LinearSolver``."""

    trace: list[PCGScalars] | None

    @property
    def first(self) -> Preconditioner:
        """The preconditioner that "auto" begins with."""

    @property
    def blocks(self) -> bool:
        """Whether it needs the diagonal blocks of J^T J at the next linearisation, not the diagonal alone."""

    @property
    def used(self) -> str:
        """The preconditioners that took part so far, as a text."""

    @property
    def nbytes(self) -> int:
        """Bytes of what preconditioners keep: levels, assembled matrices, factors."""

    def set_preconditioner(self, preconditioner: Preconditioner) -> None:
        """Choose the preconditioner of later solves; None: none."""

    def check(self, sizes: Mapping[Extent, int], graphs: Mapping[Hypergraph, Connectivity]) -> None:
        """Raises OptionError where the preconditioner that was asked for by name does not apply to these."""

    def set_graphs(self, graphs: Mapping[Hypergraph, Connectivity]) -> None:
        """Take over the edges: the preconditioners that apply depend on them.

        Raises:
            OptionError: that which was asked for by name does not; nothing has changed then.
        """

    def data_changed(self) -> None:
        """Forget the times of preconditioners: they do not hold for other data."""

    def prepare(self, damped: bool, ahead: bool) -> None:
        """Compile what solves begin with, damped or not, and is still missing; ahead: and all that they may need."""

    def solve(self, limits: LinearLimits, damped: bool, ahead: Callable[[], None]) -> LinearSummary:
        """Solve for b = -g; x is left in the vectors DELTA of the buffers.

        Args:
            limits: when conjugate gradients end.
            damped: whether with D.
            ahead: queues what follows, called where the device works on its own.
        """

    def solve_for(self, b: Mapping[Field, Any], limits: LinearLimits, damped: bool) -> LinearSummary:
        """Solve for another right-hand side than -g."""
