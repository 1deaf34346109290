"""The rounding in a gradient, and in a cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, final

import numpy as np
from numpy.typing import NDArray

from optpy.solver.protocol import Cost, Damping, LinearLimits, Rounding

Real = NDArray[np.float64]

DOUBLE: Final = 1e-12
"""A precision finer than this is that of float64."""
NOTABLE: Final = 1e-3
"""No more of the cost may be left at a success, as far as that can be told."""
WIDE: Final = 0.1
"""A trust region of so many units of 1 / precision damps by less than rounding changes the diagonal of J^T J."""
CAREFUL: Final = LinearLimits(max_iterations=500, eta=1e-3, residual_reset_period=50)
"""The limits of a linear solve that measures what is left. It ends by its gains: where little changes the residuals,
most is to be gained, and least is seen of it in the rest of the equations."""
_RESOLVED: Final = 10
"""||J v||^2 is more than rounding where it is so many times what a unit of rounding in each of v makes of it."""
_BY_CHANCE: Final = 30
"""Times the mean, which a square of a normal variable is by chance once in 1e7."""
PROBES: Final = 8
"""So many roundings of x are tried: by the largest of them hardly an entry is thought far more exact than it is."""


def nearly_undamped(precision: float, curvature: float) -> Damping:
    """D of a step without notable damping, which is finite where J^T J is singular.

    Args:
        precision: of the arithmetic.
        curvature: see `NonlinearProblem.curvature`.
    """
    return Damping(WIDE / precision, least_damping(1e-6, curvature), 1e32, jacobi_scaling=True)


def least_damping(floor: float, curvature: float) -> float:
    """The least entry of D's numerator: a floor for residuals of order 1, and as much less where all are smaller.

    Without that, what is damped would depend on the units of the residuals.
    """
    return floor * curvature if 0 < curvature < 1 else floor


@final
@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that rounding x makes, in units of the precision, and of its square.

    Attributes:
        gradient: n, the largest of each entry.
        cost: the largest.
    """

    gradient: Real
    cost: float


def changes_by_rounding(c: Real, x: Real, cost: float, apply: Callable[[Real], Real], xp: Any = np) -> Changes:
    """The changes of the gradient and of the cost by rounding x:

        n_i = max_s |J^T J (s x)|_i + sqrt(c_i) ||F|| / sqrt(n)        s: a few vectors of random signs

    With s the signs of its errors, x rounded is x + precision s x. That changes F by ``precision J (s x)``, and so the
    gradient by ``precision J^T J (s x)``. The second summand is for the rounding of F and of its products with J.
    Where F is nothing but rounding, as where J is singular and F = 0 can be reached, the ratio is of the order of the
    precision, too.

    The change of the cost is the largest 1/2 ||J (s x)||^2 = 1/2 (s x).J^T J (s x).

    Args:
        c: the diagonal of J^T J, (n,). Where it is 0, nothing depends on the unknown.
        x: the magnitude of the unknown along each coordinate, (n,).
        cost: 1/2 ||F||^2.
        apply: from p to J^T J p, both (n,).
        xp: the module of the arrays: NumPy, or one with its names for arrays on a GPU, which stay there.
    """
    free = c > 0
    n, of_cost = xp.zeros_like(c), 0.0
    with np.errstate(all="ignore"):
        for probe in range(PROBES):
            rounded = xp.where(free, random_signs(len(x), probe, xp) * x, 0.0)
            changed = apply(rounded)
            n = xp.maximum(n, xp.abs(changed))
            of_cost = float(np.maximum(of_cost, float((rounded * changed).sum()) / 2))
        # A cost below zero: a root is squared as what is under it.
        n = n + xp.sqrt(c) * math.sqrt(2 * max(cost, 0.0) / max(int(free.sum()), 1))
    return Changes(n, of_cost)


def rounding(g: Real, c: Real, step: Real, changes: Changes, xp: Any = np) -> Rounding:
    """The gradient relative to its change n by rounding x: the larger of max_i |g_i| / n_i and |g.step| / ||n step||.

    The entries alone say little where J^T J is ill-conditioned: each may be below the rounding of stiff residuals, and
    all together have a slope along a direction in which those do not change; the step is such a direction.

    Args:
        g, c: the gradient and the diagonal of J^T J, (n,). Where c is 0, nothing depends on the unknown.
        step: (n,); it may be 0.
        changes: by rounding x.
        xp: the module of the arrays.

    Returns:
        That, in units of the precision, and the change of the cost, in units of its square; not finite where something
        overflows.
    """
    if not bool((c > 0).any()):
        return Rounding(0.0, 0.0)
    n = changes.gradient
    with np.errstate(all="ignore"):
        # Without products of vectors, which would take a library of linear algebra on a GPU.
        entries = xp.where((c > 0) & (g != 0), xp.abs(g) / n, 0.0).max()
        slope = (g * step).sum()
        length = xp.sqrt(((n * step) ** 2).sum())
        along = abs(float(slope)) / float(length) if bool((g * step).any()) else 0.0
    return Rounding(float(np.maximum(float(entries), along)), changes.cost)


def rounded_gradient(c: Real, changes: Changes, xp: Any = np) -> Real:
    """The gradient that rounding may make of 0, in units of the precision: n with random signs."""
    with np.errstate(all="ignore"):
        noise: Real = xp.where(c > 0, random_signs(len(c), PROBES, xp) * changes.gradient, 0.0)
    return noise


class Span(Protocol):
    """Directions b_k in which x may move, `size` of them."""

    size: int

    def vector(self, coefficients: NDArray[np.float64]) -> Real:
        """sum_k coefficients_k b_k, (n,); 0 at what is fixed."""

    def moments(self, v: Real) -> NDArray[np.float64]:
        """b_k.v for each k."""

    def squares(self, c: Real) -> NDArray[np.float64]:
        """b_k.C b_k for each k, with C the diagonal matrix of c."""


@final
class Everything:
    """Each of a few unknowns by itself."""

    def __init__(self, free: NDArray[np.bool_]) -> None:
        self.size = len(free)
        self._free = free

    def vector(self, coefficients: NDArray[np.float64]) -> Real:
        """See `Span.vector`."""
        return np.where(self._free, coefficients, 0.0)

    def moments(self, v: Real) -> NDArray[np.float64]:
        """See `Span.moments`."""
        return np.where(self._free, v, 0.0)

    def squares(self, c: Real) -> NDArray[np.float64]:
        """See `Span.squares`."""
        return np.where(self._free, c, 0.0)


def is_stiff(span: Span, c: Real, apply: Callable[[Real], Real], precision: float) -> bool:
    """Whether p.J^T J p <= sqrt(precision) p.C p for a p in the span: a gradient says little along it.

    Args:
        span: its directions are scaled to b_k.C b_k = 1, and then hardly depend on one another.
        c: the diagonal of J^T J, (n,).
        apply: from p to J^T J p, both (n,).
        precision: of the arithmetic.
    """
    W = _scaled(span, c)
    A = _gram(span, W, apply)
    if not np.isfinite(A).all():
        return True
    values = np.linalg.eigvalsh(A)[int((np.diag(W) <= 0).sum()) :]  # without those of directions that change nothing
    return bool(len(values)) and float(values[0]) < math.sqrt(precision)


def left_in(
    span: Span,
    c: Real,
    cost: float,
    n_residuals: int,
    apply: Callable[[Real], Real],
    model: Callable[[Real], float],
    precision: float,
) -> tuple[float, Real]:
    """The gain of a full step within a span, and that step, however ill-conditioned J^T J is:

        sum_v (F.Jv)^2 / (2 ||J v||^2),  -sum_v (F.Jv) / ||J v||^2 v

    with v the eigenvectors of J^T J in the span, its directions scaled. Those of the smallest eigenvalues are mixed by
    rounding: with all scaled to ||J v|| = 1 they are parted once more (as in a second pass of CholeskyQR).

    What the step gains along each is told by the residuals, where g and J^T J would have lost the small ones.
    Directions that change the residuals by what may be rounding alone count as 0, unless J v lies along F as rounding
    would not: by chance the square of their cosine is about 1 / n_residuals.

    Args:
        span, c, apply, precision: as for `is_stiff`.
        cost: 1/2 ||F||^2.
        n_residuals: the length of F.
        model: from a step d to -(J d).(F + J d / 2), computed from the residuals.

    Reference: T. Fukaya et al., CholeskyQR2: a simple and communication-avoiding algorithm, 2014.
    """
    W = _scaled(span, c)
    for _ in range(2):
        A = _gram(span, W, apply)
        if not np.isfinite(A).all():
            return math.inf, span.vector(np.zeros(span.size))
        values, vectors = np.linalg.eigh(A)
        W = (vectors / np.sqrt(np.maximum(values, precision))).T @ W
        if values[0] > math.sqrt(precision):
            break
    left, step = 0.0, np.zeros(span.size)
    for w in W * math.sqrt(2 * cost):  # about as long as F: in the sum of both the shorter one is rounded away
        v = span.vector(w)
        forwards, backwards = model(v), model(-v)
        square, slope = -(forwards + backwards), (backwards - forwards) / 2  # ||J v||^2 and F.Jv
        told = square > _RESOLVED * precision**2 * float((c * v**2).sum())
        if told or n_residuals * slope**2 > _BY_CHANCE * square * 2 * cost > 0:
            left += slope**2 / (2 * square)
            step -= slope / square * w
    return left, span.vector(step)


def _scaled(span: Span, c: Real) -> NDArray[np.float64]:
    """Diagonal: directions of the span with b.C b = 1; 0 for those along which nothing changes."""
    squares = span.squares(c)
    return np.diag(np.where(squares > 0, 1 / np.sqrt(np.where(squares > 0, squares, 1.0)), 0.0))


def _gram(span: Span, W: NDArray[np.float64], apply: Callable[[Real], Real]) -> NDArray[np.float64]:
    """w_i.J^T J w_j for directions given by their coefficients; below the diagonal as exact as ||J w_j|| is small."""
    with np.errstate(all="ignore"):
        A: NDArray[np.float64] = W @ np.stack([span.moments(apply(span.vector(w))) for w in W], axis=1)
    return A


def largest_changes(here: Cost, costs: Iterable[Cost]) -> dict[str, float]:
    """max |cost_t - cost_t here| of each term t, over costs that are finite."""
    changes = dict.fromkeys(here.by_term, 0.0)
    for cost in filter(lambda cost: cost.is_finite, costs):
        changes = {t: max(most, abs(cost.by_term[t] - here.by_term[t])) for t, most in changes.items()}
    return changes


def cosine(g: Real, c: Real, cost: float, xp: Any = np) -> float:
    """max_i |g_i| / (||J_i|| ||F||): how far the residuals are from orthogonal to the columns of J. 0 where g is.

    Args:
        g, c: the gradient and the diagonal of J^T J, (n,).
        cost: 1/2 ||F||^2.

    Reference: J. J. Moré, The Levenberg-Marquardt algorithm: implementation and theory, 1978; MINPACK's ``gtol``.
    """
    with np.errstate(all="ignore"):
        cosines = xp.where((g != 0) & (c > 0), xp.abs(g) / xp.sqrt(c * (2 * cost)), 0.0)
    return float(cosines.max()) if len(g) else 0.0


def random_signs(n: int, seed: int, xp: Any = np) -> Real:
    """(n,) numbers of 1 and -1: the top bits of splitmix64 (Steele, Lea, Flood 2014)."""

    def word(value: int) -> Any:
        return xp.full(1, np.uint64(value), dtype=np.uint64)

    z = xp.multiply(xp.arange(1, n + 1, dtype=np.uint64) + word(seed << 40), word(0x9E3779B97F4A7C15))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = xp.multiply(xp.bitwise_xor(z, xp.right_shift(z, word(shift))), word(factor))
    signs: Real = xp.right_shift(z, word(63)).astype(np.float64) * 2 - 1
    return signs
