"""The preconditioned conjugate gradient method, as the textbook states it.

Native loops are the same lines with the vector updates fused; `trace` gives the scalars to compare them by.

References:
    N&W, algorithm 5.3 (its y is our z, its x our delta, its r = A x - b).
    Nash and Sofer, Assessing a search direction within a truncated Newton method, Oper. Res. Lett. 9, 1990.
    Ceres, conjugate_gradients_solver.h (order of the tests, residual reset).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from optpy.solver.protocol import LinearLimits, LinearStatus, LinearSummary

FloatArray: TypeAlias = NDArray[np.floating[Any]]

PATIENCE = 100
"""Iterations without progress."""


class LinearOperator(Protocol):
    """A symmetric positive (semi)definite A with a preconditioner M ~ A, neither of them formed."""

    def apply(self, p: FloatArray) -> FloatArray:
        """A p."""

    def precondition(self, r: FloatArray) -> FloatArray:
        """z with M z = r."""


@final
@dataclass(frozen=True, slots=True)
class PCGScalars:
    """The scalars of iteration k = 1, 2, ...: everything a fused loop can be compared by.

    rho: r_{k-1}.z_{k-1}, pAp: p_{k-1}.A p_{k-1}, alpha = rho / pAp, Q: Q_k, zeta = k (Q_k - Q_{k-1}) / Q_k,
    rho_next: r_k.z_k.
    """

    k: int
    rho: float
    pAp: float  # noqa: N815 - the name the literature gives it
    alpha: float
    Q: float
    zeta: float
    rho_next: float


def pcg(
    A: LinearOperator, b: FloatArray, limits: LinearLimits, trace: list[PCGScalars] | None = None
) -> tuple[FloatArray, LinearSummary]:
    """Solve A delta = b from delta = 0.

    Minimises Q(delta) = 1/2 delta.A delta - b.delta; each iteration lowers it by exactly alpha rho / 2.

    Args:
        A: the operator and its preconditioner.
        b: any shape, float32 or float64; the vectors keep its dtype, the sums are float64.
        limits: when to stop.
        trace: if given, one `PCGScalars` is appended for each iteration.

    Returns:
        delta, of b's shape, and how the solve ended.
    """
    limits = limits.decided()
    delta, r = np.zeros_like(b), -b  # r_0 = A delta_0 - b
    z = A.precondition(r)  # M z_0 = r_0
    p = -z  # p_0 = -z_0
    rho = rho_0 = dot(r, z)
    Q, k = 0.0, 0
    if ending := _no_start(rho):
        return delta, ending
    progress = Progress(rho, float(np.finfo(b.dtype).eps))
    while True:
        Ap = A.apply(p)
        pAp = dot(p, Ap)
        if ending := _no_progress(k, rho, pAp):
            return delta, ending._replace(gain=-Q)
        alpha = rho / pAp  # alpha_k = r_k.z_k / p_k.A p_k
        delta = delta + alpha * p  # delta_{k+1} = delta_k + alpha_k p_k
        k += 1
        if limits.residual_reset_period and k % limits.residual_reset_period == 0:
            r = A.apply(delta) - b  # the recurrence below drifts with rounding
        else:
            r = r + alpha * Ap  # r_{k+1} = r_k + alpha_k A p_k
        z = A.precondition(r)  # M z_{k+1} = r_{k+1}
        rho_next = dot(r, z)
        Q = Q - 0.5 * alpha * rho  # Q_{k+1} = Q_k - alpha_k rho_k / 2
        scalars = PCGScalars(k, rho, pAp, alpha, Q, _zeta(k, alpha, rho, Q), rho_next)
        if trace is not None:
            trace.append(scalars)
        if ending := _ending(scalars, rho_0, limits, progress):
            return delta, ending._replace(gain=-Q)
        beta = rho_next / rho  # beta_{k+1} = r_{k+1}.z_{k+1} / r_k.z_k
        p = -z + beta * p  # p_{k+1} = -z_{k+1} + beta_{k+1} p_k
        rho = rho_next


@final
class Progress:
    """Whether iterations still come nearer to the solution, or are moved by rounding alone.

    There is progress where r.z has come to half of what it was at the last one, or Q has fallen by more than the
    rounding of the vectors. r.z may well rise for a while, though not where all that while nothing is gained: it has
    ceased after a hundred iterations without, if they are a fifth of all. Where r.z falls by orders in all of them, it
    is halved in a fifth of them, however slow that is.

    Args:
        rho: r_0.z_0.
        precision: the rounding of the vectors.
    """

    def __init__(self, rho: float, precision: float) -> None:
        self._k, self._rho, self._Q = 0, rho, 0.0
        self._precision = precision

    def has_ceased(self, s: PCGScalars) -> bool:
        """After an iteration."""
        if 2 * s.rho_next < self._rho or abs(s.Q - self._Q) > self._precision * abs(s.Q):
            self._k, self._rho, self._Q = s.k, s.rho_next, s.Q
            return False
        return s.k - self._k >= PATIENCE and 5 * (s.k - self._k) >= s.k


def dot(u: FloatArray, v: FloatArray) -> float:
    """u.v, accumulated in float64."""
    return float(np.vdot(u.astype(np.float64, copy=False), v.astype(np.float64, copy=False)))


def _zeta(k: int, alpha: float, rho: float, Q: float) -> float:
    """k (Q_k - Q_{k-1}) / Q_k: this iteration's gain, against the average of the iterations so far."""
    return k * (-0.5 * alpha * rho) / Q if Q else 0.0


def _no_start(rho: float) -> LinearSummary | None:
    if rho == 0:
        return LinearSummary(0, LinearStatus.CONVERGED, "b = 0, so the solution is 0.")
    if not (math.isfinite(rho) and rho > 0):
        return LinearSummary(0, LinearStatus.FAILURE, f"r.z = {rho:.3e} before the first iteration.")
    return None


def _no_progress(k: int, rho: float, pAp: float) -> LinearSummary | None:
    """A p_k without positive, finite curvature, or so small that alpha overflows."""
    if math.isfinite(pAp) and pAp > 0 and math.isfinite(rho / pAp):
        return None
    status = LinearStatus.BREAKDOWN if k else LinearStatus.FAILURE
    return LinearSummary(k, status, f"The matrix is not positive definite along p: p.Ap = {pAp:.3e}.")


def _ending(s: PCGScalars, rho_0: float, limits: LinearLimits, progress: Progress) -> LinearSummary | None:
    """The tests after iteration k: the quadratic model's, the residual's, whether there is progress, the limits."""
    limits.safe_point.poll()
    if not (math.isfinite(s.rho_next) and s.rho_next >= 0):
        return LinearSummary(s.k, LinearStatus.BREAKDOWN, f"r.z = {s.rho_next:.3e} is not positive.")
    reduction = math.sqrt(s.rho_next / rho_0)
    assert limits.eta is not None
    if s.k >= limits.min_iterations and s.zeta < limits.eta:
        message = f"k (Q_k - Q_k-1) / Q_k = {s.zeta:.3e} < eta = {limits.eta:.3e}."
        return LinearSummary(s.k, LinearStatus.CONVERGED, message, reduction, suited=limits.suited)
    if s.rho_next == 0:
        return LinearSummary(s.k, LinearStatus.CONVERGED, "r.z = 0.")
    if s.k >= limits.min_iterations and reduction < limits.r_tolerance:
        message = f"sqrt(r.z / r0.z0) = {reduction:.3e} < r_tolerance = {limits.r_tolerance:.3e}."
        return LinearSummary(s.k, LinearStatus.CONVERGED, message, reduction)
    if progress.has_ceased(s):
        message = f"Rounding keeps r.z = {s.rho_next:.3e} from falling further."
        return LinearSummary(s.k, LinearStatus.BREAKDOWN, message, reduction)
    if s.k >= limits.max_iterations:
        return LinearSummary(s.k, LinearStatus.MAX_ITERATIONS, f"{s.k} iterations done.", reduction)
    if limits.safe_point.is_late:
        return LinearSummary(s.k, LinearStatus.TIME_LIMIT, f"Out of time after {s.k} iterations.", reduction)
    return None
