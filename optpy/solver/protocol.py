"""The protocol between solver and problem. The vectors live in the problem; only scalars cross this line.

The problem holds the current point `x`, the step `delta` and the candidate `x + delta`, on whatever device it
likes. Sums are accumulated in float64. A `KeyboardInterrupt` comes out of safe points only, which are
within `solve_linear` and `hidden`: x is as before the call then.

What is passed in every iteration are named tuples, which are made in a third of the time of frozen dataclasses: small
problems are solved in iterations of 0.1 ms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol, final

import numpy as np
from numpy.typing import NDArray

from optpy.solver.safe_point import UNDISTURBED, SafePoint


@final
class Cost(NamedTuple):
    """cost = 1/2 ||F||^2, and each term's share of it (their sum is the total)."""

    total: float
    by_term: Mapping[str, float]

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.total)

    @property
    def non_finite_terms(self) -> tuple[str, ...]:
        """Names of the terms that are NaN or infinite."""
        return tuple(name for name, cost in self.by_term.items() if not math.isfinite(cost))


@final
class Damping(NamedTuple):
    """The diagonal D of (J^T J + D). With c = diag(J^T J), and s the scaling of the unknowns:

        s = 1 / (1 + sqrt(c)) with Jacobi scaling, else 1
        D = clamp(c s^2, min_lm_diagonal, max_lm_diagonal) / (radius s^2)

    `radius = inf` means D = 0: Gauss-Newton.

    Reference: Ceres, levenberg_marquardt_strategy.cc and trust_region_minimizer.cc.
    """

    radius: float
    min_lm_diagonal: float
    max_lm_diagonal: float
    jacobi_scaling: bool

    def diagonal(self, c: NDArray[Any]) -> NDArray[Any]:
        """D for the given c = diag(J^T J); same shape."""
        if math.isinf(self.radius):
            return np.zeros_like(c)
        s = 1 / (1 + np.sqrt(c)) if self.jacobi_scaling else np.ones_like(c)
        D: NDArray[Any] = np.clip(c * s**2, self.min_lm_diagonal, self.max_lm_diagonal) / (self.radius * s**2)
        return D


@final
class LinearLimits(NamedTuple):
    """The limits of conjugate gradients; k counts iterations from 1, Q is the quadratic model.

    max_iterations: stop when k reaches it.
    min_iterations: no test of convergence before that many.
    eta: stop when k (Q_k - Q_{k-1}) / Q_k < eta (Nash and Sofer 1990); 0 never stops, None stands for what suits the
        step and the preconditioner: see `decided`.
    r_tolerance: stop when sqrt(r.z) < r_tolerance sqrt(r0.z0); 0 never stops.
    residual_reset_period: r is computed afresh every so many iterations; 0 never.
    safe_point: asked after each iteration: stop at the first one that ends after its deadline.
    suited: the eta that suits the step; 0 where eta is given, or once it is decided otherwise.
    """

    max_iterations: int
    min_iterations: int = 0
    eta: float | None = 0.0
    r_tolerance: float = 0.0
    residual_reset_period: int = 0
    safe_point: SafePoint = UNDISTURBED
    suited: float = 0.0

    def decided(self, default: float | None = None) -> LinearLimits:
        """With eta, or its default.

        The test compares an iteration's gain with the mean gain, and so says nothing of what is still to come.

        Args:
            default: with the preconditioner in force, whatever the step: where an iteration leaves little of the
                error. None: it leaves much.
        """
        if self.eta is not None:
            return self
        return self._replace(eta=self.suited) if default is None else self._replace(eta=default, suited=0.0)


class LinearStatus(Enum):
    """The ending of a linear solve."""

    CONVERGED = "converged"
    MAX_ITERATIONS = "iteration limit reached"
    TIME_LIMIT = "time limit reached"
    BREAKDOWN = "no more progress can be made; the step so far is usable"
    FAILURE = "numerical failure; there is no usable step"


@final
class LinearSummary(NamedTuple):
    """The outcome of a linear solve; `message` is a sentence with the numbers that decided it.

    reduction: sqrt(r.z / r0.z0) at the end: how much of the right-hand side is left unsolved, as M sees it.
    gain: b.delta - 1/2 delta.A delta.
    suited: the eta that suited the step, if that has ended the solve: a smaller one would have made it longer; else 0.
    """

    iterations: int
    status: LinearStatus
    message: str
    reduction: float = 0.0
    gain: float = 0.0
    suited: float = 0.0


@final
@dataclass(frozen=True, slots=True)
class Rounding:
    """The effect of rounding x to the precision of the arithmetic, in units of it: see `rounding.rounding`.

    relative_gradient: the gradient, in units of what rounding changes of it.
    cost: 1/2 ||J (s x)||^2 for signs s: times the square of the precision, the least that a cost can be told from.
    """

    relative_gradient: float
    cost: float


@final
@dataclass(frozen=True, slots=True)
class Hidden:
    """The gain that may be left where a gradient looks like rounding: see `NonlinearProblem.hidden`.

    left: of the cost; infinite where the linear solve has not told.
    is_next: the step that gains what is left is the one that `NonlinearProblem.try_step` tries next.
    """

    left: float
    is_next: bool = False


@final
class Step(NamedTuple):
    """The candidate: its cost (which may be NaN or infinite), ||delta||_2, ||x||_2 before the step, delta.D delta.

    cost: with what is held constant within an iteration as it is at x: the cost that the step was made for.
    reweighted: with all as it is at the candidate, where that differs: what `evaluate` says once it is accepted.
    """

    cost: Cost
    step_norm: float
    x_norm: float
    damped_square: float = 0.0
    reweighted: Cost | None = None

    @property
    def cost_there(self) -> Cost:
        """The cost once the step is accepted."""
        return self.cost if self.reweighted is None else self.reweighted


class NonlinearProblem(Protocol):
    """A nonlinear least-squares problem at its current point x."""

    @property
    def size(self) -> int:
        """Residuals and unknowns, counted as numbers: what an iteration costs."""

    @property
    def is_fit(self) -> bool:
        """Whether no unknown has dims: a model of a few parameters, that may begin far from its data."""

    @property
    def reweights(self) -> bool:
        """Whether residuals hold functions of x constant within an iteration, such as weights.

        Then costs at different points are not comparable: only `Step.cost` and the cost at the x that the step is from.
        """

    def evaluate(self) -> Cost:
        """The cost at x.

        Raises:
            DataError: the cost at x is not finite; names the term and the element.
        """

    def linearise(self) -> float:
        """At x: store F, whatever J needs, g, and the diagonal or the blocks of J^T J.

        Returns:
            max_i |g_i|; NaN or infinite if any g_i is.

        Raises:
            DataError: g is not finite, and no step has been accepted yet: at the starting point that is a mistake
                of the energy or the data; names the term, the element and the operation. Later a shorter step may help.
        """

    def damp(self, damping: Damping) -> None:
        """Set D, and from it the preconditioner, with what the last `linearise` stored.

        Where the diagonal of J^T J + D is zero (nothing depends on the unknown) the preconditioner is 1.
        """

    def rounding(self, cost: float) -> Rounding:
        """The rounding in the cost, and in the gradient that the last `linearise` stored.

        Asked only where a step leads no further down. The step stays as it is.

        Args:
            cost: at x.
        """

    def curvature(self) -> float:
        """The largest entry of the diagonal of J^T J, where last linearised; 0: J is 0."""

    def sensitivities(self) -> Mapping[str, float]:
        """||J_i|| max(|x_i|, 1) for each coordinate of an unknown without dims, by name, where last linearised."""

    def is_stiff(self) -> bool:
        """Whether the residuals hardly change along a direction, so that a gradient says little of what is left.

        Then an ending by a short step may be far from the minimum, and `hidden` is asked. Where that is not exact, the
        directions asked about are the constants in each channel of each unknown.
        """

    @property
    def hidden_is_exact(self) -> bool:
        """Whether `hidden` says what a full step gains, and finds that step, however ill-conditioned J^T J is."""

    def hidden(self, cost: float, unit: float, safe_point: SafePoint, *, of_rounding: bool) -> Hidden:
        """The distance by which the cost may lie above the minimum.

        Where it is exact, what a full step gains: see `rounding.left_in`. Elsewhere, if the problem `is_stiff`, what a
        step by constants and along coordinates gains; and if that is little, what rounding hides, where the gradient
        may be nothing but rounding: 1/2 ||J e||^2, where e solves (J^T J + D) e = n for a gradient n of rounding alone,
        with next to no damping (see `rounding.rounded_gradient`). The step, and D, are others after it.

        Args:
            cost: at x.
            unit: the precision of the arithmetic.
            safe_point: see `LinearLimits`.
            of_rounding: whether what rounding hides is asked for where that takes a linear solve.
        """

    def change_by_rounding(self, unit: float) -> Mapping[str, float]:
        """max_s |cost_t(x + unit s x) - cost_t(x)| of each term t, for a few vectors s of random signs.

        The step, and the candidate, are others after it.

        Args:
            unit: the precision of the arithmetic.
        """

    def cosine(self, cost: float) -> float:
        """max_i |g_i| / (||J_i|| ||F||) over the columns J_i of J, from what the last `linearise` stored.

        Asked only where little is left to gain. 0 where g is.

        Args:
            cost: at x.
        """

    def solve_linear(self, limits: LinearLimits) -> LinearSummary:
        """Conjugate gradients on (J^T J + D) delta = -g from delta = 0; at least one iteration if g != 0."""

    def model_cost_change(self) -> float:
        """cost - 1/2 ||F + J delta||^2, computed without cancellation as -(J delta).(F + J delta / 2)."""

    def promised_change(self) -> float:
        """-g.delta - 1/2 delta.J^T J delta: `model_cost_change` but for rounding, from the gradient.

        Asked only where the two may differ. The step stays as it is.
        """

    def try_step(self) -> Step:
        """candidate = x + delta, and its cost. Never raises for a cost that is not finite."""

    def accept(self) -> None:
        """x <- candidate."""

    def withdraw(self) -> None:
        """x <- the point before the last `accept`. What `linearise` stored is of neither, and there is no candidate."""

    def save(self) -> None:
        """Keep a copy of x. Only a method that lets the cost rise (Gauss-Newton) asks for it."""

    def restore(self) -> None:
        """x <- the saved copy."""
