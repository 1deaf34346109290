"""A solve as the loop of iterations sees it, and the result that becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from optpy.solver.iteration import IterationRecord
from optpy.solver.options import SolveOptions
from optpy.solver.protocol import Cost
from optpy.solver.result import SolveResult, Status, Timing


@final
@dataclass(frozen=True, slots=True)
class Summary:
    """The scalars of a solve; the unknowns themselves stay in the problem."""

    initial: Cost
    final: Cost
    status: Status
    message: str
    iterations: tuple[IterationRecord, ...]
    timing: Timing

    @property
    def nit(self) -> int:
        """Nonlinear iterations, rejected ones included."""
        return self.iterations[-1].iteration

    def result(
        self, x: dict[str, Any], timing: Timing, device: str, options: SolveOptions, facts: Mapping[str, str]
    ) -> SolveResult:
        """With what only those know who compiled and bound the problem."""
        return SolveResult(
            x=x,
            cost=self.final.total,
            initial_cost=self.initial.total,
            cost_by_term=dict(self.final.by_term),
            initial_cost_by_term=dict(self.initial.by_term),
            success=self.status.success,
            status=self.status,
            message=self.message,
            nit=self.nit,
            iterations=self.iterations,
            timing=timing,
            device=device,
            options=options,
            facts=facts,
        )
