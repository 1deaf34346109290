"""Conjugate gradients with a factorisation of J^T J + D."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import final

import numpy as np

from optpy.errors import OptionError
from optpy.linear.assembled.assembly import Assembly
from optpy.linear.cholesky.factor import CholeskyFactor
from optpy.linear.method import LinearMethod, NoMemory, Outcome, Solved, SolveRequest, begin_anew, is_unreduced
from optpy.linear.pcg.state import PcgState
from optpy.linear.system import System
from optpy.solver.pcg import PCGScalars, dot, pcg
from optpy.solver.protocol import LinearStatus

_ENDED = -1
"""A status of the state that is none of the native loop's."""
_ANALYSED = 100_000
"""Nodes of a matrix at most whose factorisation is thought of before multigrid has failed: its pattern has to be
analysed to tell whether it is cheap, and that is lost where it is not. No benchmark has set it."""
CHEAP = 500
"""Multiplications of a factorisation, for each number of the matrix, that take as long as solving with multigrid, by
estimate: both are seen, as whole solves, in ``python -m bench.preconditioners`` with cases on meshes."""
_AFFORDED = 5e10
"""Multiplications of a factorisation at most that "auto" makes in every nonlinear iteration: a second or two.
No benchmark has set it: it is what one may be kept waiting."""


@final
class CholeskySolve(LinearMethod):
    """The textbook's loop with A^-1 as it was factored: two iterations are most of the time enough.

    Args:
        system: whose matrix may be assembled.
    """

    def __init__(self, system: System) -> None:
        self._loop = system.loop
        self._assembly = system.shared(Assembly)
        self._factored: CholeskyFactor | None = None

    @property
    def name(self) -> str:
        return "cholesky"

    @property
    def nbytes(self) -> int:
        return 0 if self._factored is None else self._factored.nbytes

    @property
    def factor(self) -> CholeskyFactor:
        """Whose pattern is analysed when it is first asked for."""
        if self._factored is None:
            self._factored = CholeskyFactor(self._assembly, self._loop.safe_work)
        return self._factored

    def is_affordable(self, first: bool) -> bool:
        """Whether "auto" may take it: at first where it is cheap, and then where it is possible."""
        if not first:
            return self.factor.operations <= _AFFORDED
        numbers = self._assembly.pattern.nnz * self._assembly.channels**2
        return self._assembly.nodes <= _ANALYSED and self.factor.operations <= CHEAP * numbers

    def solve(self, state: PcgState, request: SolveRequest) -> Solved:
        """It is given up where it does not solve a singular system, whatever the patience."""
        factor = self.factor
        try:
            factor.build(request.damped, self._loop.safe_work)
        except MemoryError:
            needed = f"{factor.needed / 2**30:.1f} GiB"
            raise NoMemory(OptionError(f"preconditioner='cholesky' needs {needed} of memory: use 'auto'")) from None
        trace: list[PCGScalars] = []
        b = -factor.gradient()
        delta, summary = pcg(factor, b, request.limits, trace)
        # In what a singular M leaves out, r.z does not see that r is as it was.
        if factor.singular and summary.status is LinearStatus.CONVERGED:
            r = factor.apply(delta) - b
            if is_unreduced({"r_squared": dot(r, r), "g_squared": dot(b, b)}):
                begin_anew(state)
                return Solved(None, Outcome.UNFIT, summary.iterations)
        factor.set_step(delta)
        state.k, state.status = summary.iterations, _ENDED
        if state.trace is not None:
            rows = np.array([dataclasses.astuple(s) for s in trace])
            ctypes.memmove(state.trace, rows.ctypes.data, rows.nbytes)
        return Solved(summary, Outcome.SERVED, summary.iterations)
