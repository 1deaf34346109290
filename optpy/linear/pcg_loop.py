"""The protocol of the loop of conjugate gradients on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from optpy.ir import Field
from optpy.linear.pcg.state import PcgState
from optpy.linear.pcg.variant import Variant
from optpy.linear.safe_work import SafeWork
from optpy.solver.protocol import LinearLimits, LinearSummary


class PcgLoop(Protocol):
    """Runs conjugate gradients on a device: ``NativeLoop`` on the CPU, ``QueuedLoop`` on a GPU."""

    safe_work: SafeWork
    """Of the present solve: where its work may be cut short."""

    @property
    def device(self) -> str:
        """ "cpu" or "cuda"."""

    @property
    def executor(self) -> Any:
        """The energy's program with its memory: ``CpuExecutor`` or ``CudaExecutor``."""

    @property
    def unknowns(self) -> Sequence[Field]:
        """Of the energy, in order."""

    @property
    def has_blocks(self) -> bool:
        """Whether the program computes blocks of J^T J: it does not where they are all diagonal."""

    @property
    def nbytes(self) -> int:
        """Of memory beside the vectors."""

    @property
    def compiles_late(self) -> bool:
        """Whether what may take over from another preconditioner is compiled only when it does."""

    def trace(self, iterations: int) -> tuple[Any, int]:
        """Memory for the scalars of so many iterations, a ``PCG_ROW`` each, and its address."""

    def kernels(self, damped: bool, variant: Variant) -> Any:
        """The kernels of an iteration whose preconditioner is part of them.

        Args:
            damped: whether A = J^T J + D, or J^T J alone.
            variant: by its preconditioning; on a GPU, also by its kernels.
        """

    def run(
        self,
        kernels: Any,
        state: PcgState,
        limits: LinearLimits,
        pause: int | None = None,
        ahead: Callable[[], None] | None = None,
    ) -> LinearSummary | None:
        """Iterate until a test of the loop ends it.

        Args:
            kernels: of an iteration, as the device has them.
            state: begins a solve where ``rho_0`` is negative, begins anew from the last delta where ``resume`` is set,
                and else goes on.
            limits: ``max_iterations`` count from the begin of the solve.
            pause: iterations, from the begin of the solve, after which another preconditioner goes on; None: none does.
            ahead: queues what follows, where the device may go on before the host knows how the solve has ended.

        Returns:
            None at the pause; ``state.status`` is 0 then, and nothing of what follows has been done.
        """

    def follow(self, ahead: Callable[[], None]) -> None:
        """Queue what follows a solve that has ended, where that need not wait for the host."""
