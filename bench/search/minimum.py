"""The minimum of a small problem in float64: by dense factorisations, and by SciPy.

Residuals and derivatives are those of the NumPy interpreter (`energy.residuals`, `energy.jacobian`), so that nothing of
the compiled routines or of the solver is trusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import numpy as np

from bench.search.family import Array, Data, Family
from optpy import ir
from optpy.energy.derive.retraction import moved

ROUNDINGS = 10
"""A residual is the result of several operations, each of which rounds."""
TRIALS = 4
NEGLIGIBLE = 1e-9
RANK = 1e-14
"""Singular values below so much of the largest are 0."""
MOST_BY_DIFFERENCES = 6
STATIONARY = 1e-2
"""The largest cosine between the residuals and a column of J, at a minimum as solvers find it."""


@final
class Landscape:
    """The objective of a problem over its unknowns.

    Args:
        family: of the problem.
        data: rounded, in float64; the unknowns in it are not looked at.
    """

    def __init__(self, family: Family, data: Data) -> None:
        self._family = family
        self._data = data

    def value(self, x: Data) -> float:
        """The objective there; infinite where it is not finite."""
        value = self._family.value(self._data | x)
        return value if np.isfinite(value) else np.inf

    # -- derivatives -------------------------------------------------------------------------------------------------

    def linearised(self, x: Data) -> tuple[Array, Array]:
        """F and the dense J, with J^T F the gradient of the objective."""
        data = self._data | x
        with np.errstate(all="ignore"):
            F = self._family.energy.residuals(data, linearised=True)
            J = self._family.energy.jacobian(data).toarray()
        return np.concatenate([np.ravel(f) for f in F.values()]), J

    def cosine(self, x: Data) -> float:
        """The largest cosine between F and a column of J: 0 at a minimum, whatever the units. As MINPACK's gtol."""
        F, J = self.linearised(x)
        lengths = np.linalg.norm(J, axis=0) * np.linalg.norm(F)
        return float(np.max(np.divide(np.abs(J.T @ F), lengths, out=np.zeros_like(lengths), where=lengths > 0)))

    def moved(self, x: Data, step: Array) -> Data:
        """The point after a step in the coordinates of J's columns."""
        return {u.name: moved(u, np.asarray(x[u.name], np.float64), part) for u, part in self._parts(x, step)}

    def _parts(self, x: Data, step: Array) -> Iterator[tuple[ir.Field, Array]]:
        used = 0
        for u in self._family.energy.problem.unknowns:
            size = np.size(x[u.name])
            count = size if u.manifold is None else size // u.channels * u.manifold.dimension
            yield u, step[used : used + count]
            used += count

    # -- minima ------------------------------------------------------------------------------------------------------

    def refined(self, x: Data) -> Data:
        """The minimum next to x: full Gauss-Newton steps while they go down, else Levenberg-Marquardt.

        Ends where a full step gains no more than `NEGLIGIBLE` of the objective, or eight steps in a row nothing. A full
        step is asked for, since a damped one gains little along what the residuals hardly tell, however far it is.
        """
        cost, mu, fruitless = self.value(x), 0.0, 0
        F, J = self.linearised(x)
        for _ in range(200):
            there = self.moved(x, _damped_step(F, J, mu))
            lower = self.value(there)
            if not lower < cost:
                mu, fruitless = max(100 * mu, 1e-10), fruitless + 1
                if fruitless == 8:
                    break
                continue
            gain, x, cost = cost - lower, there, lower
            if gain <= NEGLIGIBLE * cost and mu == 0:
                break
            F, J = self.linearised(x)
            mu, fruitless = (mu / 100 if mu > 1e-10 else 0.0), 0
        return x

    def floor(self, x: Data, dtype: str) -> float:
        """What rounding alone makes of the objective near x, in arithmetic of the dtype.

        Every number of the data and of x is changed by one unit roundoff, up or down; half the sum of the squares of
        what `ROUNDINGS` times the largest change of each residual is, over a few trials.
        """
        rng = np.random.default_rng(0)
        unit = float(np.finfo(dtype).eps) / 2
        data = self._data | x
        exact = self._residuals(data)
        with np.errstate(all="ignore"):
            changes = [self._residuals(_jittered(data, unit, rng)) - exact for _ in range(TRIALS)]
        return 0.5 * float(np.sum(np.square(ROUNDINGS * np.max(np.abs(changes), axis=0))))

    def _residuals(self, data: Data) -> Array:
        return np.concatenate([np.ravel(f) for f in self._family.energy.residuals(data).values()])

    def found_nearby(self, x: Data) -> Iterator[float]:
        """What other solvers make of the objective, from x and from x disturbed a little, so that a saddle is left."""
        yield self.value(self.refined(x))
        _, J = self.linearised(x)
        lengths = np.linalg.norm(J, axis=0)
        size = np.linalg.norm(self._residuals(self._data | x)) / np.sqrt(J.shape[1])
        shift = np.random.default_rng(0).normal(size=J.shape[1]) * size
        step = 1e-3 * np.divide(shift, lengths, out=np.zeros_like(shift), where=lengths > 0)
        start = self.moved(x, step)
        yield self.value(self.refined(start))
        yield self._by_scipy(start)

    def _by_scipy(self, x: Data) -> float:
        """By BFGS, which knows nothing of residuals; in steps from x as long as the columns of J there say.

        Infinite, as if nothing were found, for many poses, whose gradient it would have to find by differences.
        """
        from scipy.optimize import minimize

        _, J = self.linearised(x)
        lengths = np.linalg.norm(J, axis=0)
        scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)

        def value(z: Array) -> float:
            return min(self.value(self.moved(x, scale * z)), 1e300)

        def gradient(z: Array) -> Array:
            F, J = self.linearised(self.moved(x, scale * z))
            return np.asarray(np.nan_to_num(scale * (J.T @ F)))

        curved = any(u.manifold is not None for u in self._family.energy.problem.unknowns)
        if curved and len(scale) > MOST_BY_DIFFERENCES:
            return np.inf
        with np.errstate(all="ignore"):
            jac = None if curved else gradient
            found = minimize(value, np.zeros(len(scale)), jac=jac, method="BFGS", options={"maxiter": 50})
        return float(found.fun)


def _damped_step(F: Array, J: Array, mu: float) -> Array:
    """delta of min |J delta + F|^2 + mu |D delta|^2, where D has the lengths of J's columns; the shortest, if many."""
    lengths = np.linalg.norm(J, axis=0)
    scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    stacked, right = J * scale, -F
    if mu:
        stacked = np.concatenate([stacked, np.sqrt(mu) * np.eye(len(scale))])
        right = np.concatenate([right, np.zeros(len(scale))])
    if not (np.isfinite(stacked).all() and np.isfinite(right).all()):
        return np.zeros_like(scale)
    return np.asarray(scale * np.linalg.lstsq(stacked, right, rcond=RANK)[0])


def _jittered(data: Data, unit: float, rng: np.random.Generator) -> Data:
    return {name: _jitter(x, unit, rng) for name, x in data.items()}


def _jitter(x: Any, unit: float, rng: np.random.Generator) -> Any:
    array = np.asarray(x)
    return x if array.dtype.kind != "f" else array * (1 + unit * rng.choice([-1.0, 1.0], array.shape))
