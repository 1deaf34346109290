"""Central differences over shorter and shorter steps, extrapolated to step 0.

Reference: C. Ridders, "Accurate computation of F'(x) and F'(x) F''(x)", Advances in Engineering Software, 1982.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from optpy.energy.language.manifold import Floats

_ORDERS = 5
"""Of extrapolation, at most."""


@final
class Tableau:
    """The differences of every function, extrapolated or not, that have moved least, their rounding included.

    Where shorter steps tell something else, as far as their own errors go, what the longer ones have told was of points
    too far away, and is dropped.

    Attributes:
        best: the derivatives.
        error: of each, an estimate.
        rounding: which part of the error is rounding, a bound.
        at_end: whether rounding allows hardly any shorter step than that of the best.
    """

    def __init__(self) -> None:
        self._last: list[Floats] = []
        self.best: Floats = np.zeros(0)
        self.error: Floats = np.zeros(0)
        self.rounding: Floats = np.zeros(0)
        self.at_end: NDArray[np.bool_] = np.zeros(0, np.bool_)

    def add(
        self,
        differences: Floats,
        rounding: Floats,
        halved: NDArray[np.bool_] | bool = True,
        near: NDArray[np.bool_] | bool = False,
    ) -> None:
        """Take central differences over half the step of the last time.

        Args:
            differences: of each function.
            rounding: a bound on their errors by that.
            halved: of which functions this is so; nothing changes for the others, whose next half may come later.
            near: whether rounding allows hardly any shorter step.
        """
        row, above = [differences], self._last
        if not above:
            self._last = row
            self.best, self.error, self.rounding = differences, np.full_like(differences, np.inf), rounding
            self.at_end = np.zeros(len(differences), np.bool_)
            return
        with np.errstate(invalid="ignore"):
            for n in range(min(len(above), _ORDERS - 1)):
                row.append(row[n] + (row[n] - above[n]) / (4.0 ** (n + 1) - 1))
            found, error = row[0], np.abs(row[0] - above[0])
            for n in range(1, len(row)):
                moved = np.maximum(np.abs(row[n] - row[n - 1]), np.abs(row[n] - above[n - 1]))
                found, error = np.where(moved < error, row[n], found), np.fmin(moved, error)
            error = error + rounding
            better = halved & ((error < self.error) | (np.abs(self.best - found) > self.error + error))
        absent = np.full_like(differences, np.nan)  # of an order that a function with fewer halves has not reached
        self._last = [np.where(halved, n, a) for n, a in zip(row, [*above, absent], strict=False)]
        self.best = np.where(better, found, self.best)
        self.error = np.where(better, error, self.error)
        self.rounding = np.where(better, rounding, self.rounding)
        self.at_end = np.where(better, near, self.at_end)
