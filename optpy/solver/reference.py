"""The problem protocol in plain NumPy: residuals and Jacobians from callables, J formed.

Small problems can be solved with it as they stand; compiled problems are compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from optpy.errors import DataError
from optpy.solver.pcg import FloatArray, PCGScalars, pcg
from optpy.solver.protocol import Cost, Damping, Hidden, LinearLimits, LinearStatus, LinearSummary, Rounding, Step
from optpy.solver.rounding import (
    CAREFUL,
    PROBES,
    Changes,
    Real,
    changes_by_rounding,
    cosine,
    largest_changes,
    nearly_undamped,
    random_signs,
    rounded_gradient,
    rounding,
)
from optpy.solver.safe_point import SafePoint

Indices: TypeAlias = NDArray[np.intp]


@final
@dataclass(frozen=True, slots=True)
class ReferenceTerm:
    """A term: from x (n,) its residuals (m,) and their Jacobian (m, n), an array or a SciPy sparse matrix."""

    residual: Callable[[Real], Real]
    jacobian: Callable[[Real], Any]


@final
class ReferenceProblem:
    """A `NonlinearProblem` over one float64 vector x.

    Args:
        terms: name to term.
        x: (n,) the starting point; copied.
        preconditioner: None, "jacobi", or "block_jacobi" with `blocks`.
        blocks: for "block_jacobi": the indices of each unknown element's components; together range(n).

    Attributes:
        x: (n,) the current point.
        g: (n,) the gradient J^T F where it was linearised last.
        delta: (n,) the step of the last linear solve.
        trace: the scalars of the last linear solve, one record for each iteration.
    """

    def __init__(
        self,
        terms: Mapping[str, ReferenceTerm],
        x: Any,
        *,
        preconditioner: Literal["jacobi", "block_jacobi"] | None = "jacobi",
        blocks: Sequence[Sequence[int] | Indices] | None = None,
    ) -> None:
        if (preconditioner == "block_jacobi") != (blocks is not None):
            raise DataError("blocks belong to preconditioner='block_jacobi', and it needs them")
        self.x: Real = np.array(x, np.float64)
        self.trace: list[PCGScalars] = []
        self._terms = dict(terms)
        self._preconditioner = preconditioner
        self._blocks = [] if blocks is None else [np.asarray(block, np.intp) for block in blocks]
        self.delta: Real = np.zeros_like(self.x)
        self._saved: Real = self.x
        self._before: Real = self.x

    is_fit = False
    reweights = False

    @property
    def size(self) -> int:
        """See `NonlinearProblem.size`."""
        return len(self.x) + sum(len(term.residual(self.x)) for term in self._terms.values())

    def evaluate(self) -> Cost:
        """See `NonlinearProblem.evaluate`."""
        for name, term in self._terms.items():
            if len(bad := np.flatnonzero(~np.isfinite(term.residual(self.x)))):
                raise DataError(f"term '{name}': residual {bad[0]} is not finite")
        return self._cost(self.x)

    def linearise(self) -> float:
        """See `NonlinearProblem.linearise`."""
        self._F = [np.asarray(term.residual(self.x), np.float64) for term in self._terms.values()]
        self._J = [term.jacobian(self.x) for term in self._terms.values()]
        self.g: Real = sum((J.T @ F for J, F in zip(self._J, self._F, strict=True)), np.zeros_like(self.x))
        self._c: Real = sum((_column_squares(J) for J in self._J), np.zeros_like(self.x))
        return float(np.max(np.abs(self.g)))

    def damp(self, damping: Damping) -> None:
        """See `NonlinearProblem.damp`."""
        self._D: Real = damping.diagonal(self._c)
        diagonal = self._c + self._D
        self._inverse: Real = 1 / np.where(diagonal > 0, diagonal, 1)
        self._block_inverses = [self._block_inverse(block) for block in self._blocks]

    def rounding(self, cost: float) -> Rounding:
        """See `NonlinearProblem.rounding`."""
        return rounding(self.g, self._c, self.delta, self._changes(cost))

    def _changes(self, cost: float) -> Changes:
        return changes_by_rounding(self._c, np.abs(self.x), cost, self._apply_jtj)

    def curvature(self) -> float:
        """See `NonlinearProblem.curvature`."""
        return float(self._c.max(initial=0.0))

    def sensitivities(self) -> dict[str, float]:
        """See `NonlinearProblem.sensitivities`."""
        return {}

    def is_stiff(self) -> bool:
        """See `NonlinearProblem.is_stiff`."""
        return False

    @property
    def hidden_is_exact(self) -> bool:
        """See `NonlinearProblem.hidden_is_exact`."""
        return False

    def hidden(self, cost: float, unit: float, safe_point: SafePoint, *, of_rounding: bool) -> Hidden:
        """See `NonlinearProblem.hidden`."""
        n = rounded_gradient(self._c, self._changes(cost))
        self.damp(nearly_undamped(unit, self.curvature()))
        e, solved = pcg(self, unit * n, CAREFUL._replace(safe_point=safe_point), [])
        told = solved.status is LinearStatus.CONVERGED
        return Hidden(0.5 * float(e @ self._apply_jtj(e)) if told else math.inf)

    def change_by_rounding(self, unit: float) -> dict[str, float]:
        """See `NonlinearProblem.change_by_rounding`."""
        x = self.x
        rounded = (x + unit * random_signs(len(x), probe) * np.abs(x) for probe in range(PROBES))
        return largest_changes(self._cost(x), map(self._cost, rounded))

    def cosine(self, cost: float) -> float:
        """See `NonlinearProblem.cosine`."""
        return cosine(self.g, self._c, cost)

    def solve_linear(self, limits: LinearLimits) -> LinearSummary:
        """See `NonlinearProblem.solve_linear`."""
        self.trace = []
        self.delta, summary = pcg(self, -self.g, limits, self.trace)  # type: ignore[assignment]
        return summary

    def model_cost_change(self) -> float:
        """See `NonlinearProblem.model_cost_change`."""
        J_delta = [J @ self.delta for J in self._J]
        return float(-sum(Jd @ (F + Jd / 2) for Jd, F in zip(J_delta, self._F, strict=True)))

    def promised_change(self) -> float:
        """See `NonlinearProblem.promised_change`."""
        return float(-self.delta @ (self.g + self._apply_jtj(self.delta) / 2))

    def try_step(self) -> Step:
        """See `NonlinearProblem.try_step`."""
        return Step(
            self._cost(self.x + self.delta),
            float(np.linalg.norm(self.delta)),
            float(np.linalg.norm(self.x)),
            float(self._D @ self.delta**2),
        )

    def accept(self) -> None:
        """See `NonlinearProblem.accept`."""
        self._before, self.x = self.x, self.x + self.delta

    def withdraw(self) -> None:
        """See `NonlinearProblem.withdraw`."""
        self.x = self._before

    def save(self) -> None:
        """See `NonlinearProblem.save`."""
        self._saved = self.x.copy()

    def restore(self) -> None:
        """See `NonlinearProblem.restore`."""
        self.x = self._saved.copy()

    def apply(self, p: FloatArray) -> FloatArray:
        """(J^T J + D) p."""
        return self._apply_jtj(p) + self._D * p

    def _apply_jtj(self, p: Any) -> Real:
        found: Real = sum((J.T @ (J @ p) for J in self._J), np.zeros_like(self.x))
        return found

    def precondition(self, r: FloatArray) -> FloatArray:
        """M^-1 r."""
        if self._preconditioner == "jacobi":
            return self._inverse * r
        if self._preconditioner is None:
            return r.copy()
        z = np.zeros_like(r)
        for block, inverse in zip(self._blocks, self._block_inverses, strict=True):
            z[block] = inverse @ r[block]
        return z

    def _cost(self, x: Real) -> Cost:
        with np.errstate(all="ignore"):  # a candidate may be anywhere
            F = {name: np.asarray(term.residual(x), np.float64) for name, term in self._terms.items()}
            by_term = {name: 0.5 * float(np.vdot(f, f)) for name, f in F.items()}
        return Cost(sum(by_term.values()), by_term)

    def _block_inverse(self, block: Indices) -> Real:
        columns = [J[:, block] for J in self._J]
        A = sum((_dense(C.T @ C) for C in columns), np.diag(self._D[block]))
        A[np.diag_indices_from(A)] += np.where(np.diag(A) > 0, 0, 1)
        return np.asarray(np.linalg.inv(A), np.float64)


def _column_squares(J: Any) -> Real:
    """diag(J^T J), dense or sparse."""
    squares = J.multiply(J) if hasattr(J, "multiply") else J * J
    return np.asarray(squares.sum(axis=0), np.float64).ravel()


def _dense(A: Any) -> Real:
    return np.asarray(A.toarray() if hasattr(A, "toarray") else A, np.float64)
