"""Energies that have one formula in several places, written out at each, with data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

import optpy as op

H, W = op.dims("H W")
i, j = op.indices(H, W)
X, Y = op.Unknown("X", (H, W)), op.Unknown("Y", (H, W), 2)
A, Mask = op.Array("A", (H, W)), op.Array("Mask", (H, W), dtype=np.uint8)
w = op.params("w")

Formula = Callable[[int, int], Any]
"""A formula at an offset from the point itself."""


@final
@dataclass(frozen=True, slots=True)
class Written:
    """Draws energies.

    Attributes:
        rng: by which it draws.
        outside: whether formulas are taken where they read outside arrays.
    """

    rng: np.random.Generator
    outside: bool = False

    def energy(self) -> op.Energy:
        """One whose residuals have one or two formulas in several places each."""
        f, g = self.formula(), self.formula()
        terms: dict[str, Any] = {f"term{n}": self.residual(f, g) for n in range(int(self.rng.integers(1, 4)))}
        return op.Energy(fit=X[i, j] + Y[i, j][0] + Y[i, j][1] - A[i, j] * w, **terms)

    def data(self, rows: int, columns: int) -> dict[str, Any]:
        """Some that makes formulas infinite or NaN where they are not taken: ``A`` is 0 and below where Mask is 0."""
        mask = self.rng.integers(0, 3, (rows, columns)).astype(np.uint8)
        a = np.where(mask == 0, -self.rng.integers(0, 2, mask.shape), 0.5 + self.rng.random(mask.shape))
        x, y = self.rng.normal(size=mask.shape), self.rng.normal(size=(*mask.shape, 2))
        return dict(X=x, Y=y, A=a, Mask=mask, w=float(self.rng.normal()))

    def _one_of(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def formula(self) -> Formula:
        """A formula of a few points that must not be taken where Mask is 0, at any of them."""
        near = [divmod(int(n), 3) for n in self.rng.choice(9, 3, replace=False)]
        kind = int(self.rng.choice((0, 2, 5) if self.outside else range(6)))
        scale, power = self.rng.normal(), self._one_of(2, 3, -1)

        def at(a: int, b: int) -> Any:
            p, q, r = ((i + a + c - 1, j + b + d - 1) for c, d in near)
            slope = (X[p] - X[q]) * (Y[q][0] - w * X[r])
            length = 1 + X[p] ** 2 + (Y[q][1] - X[r]) ** 2
            place = op.value(j + b) - w + scale
            kinds: list[Callable[[], Any]] = [
                lambda: slope * place / length + op.sqrt(A[q]) * X[p],
                lambda: scale * op.sin(slope) + X[r] * X[p] / A[r] - 2 * op.log(A[p]) * w,
                lambda: slope * op.exp(-length) * op.sqrt(A[q] + length) ** power,
                lambda: op.where(slope > 0, op.sqrt(slope), place * length) / op.sqrt(length) / A[p],
                lambda: op.stop_gradient(1 / (A[p] + length)) * slope + abs(X[p] - X[q]) * place * length,
                lambda: op.sqrt(length) - op.sqrt(A[p] + A[q]) + 0.25 * (A[r] + X[p]) / length - 3,
            ]
            return kinds[kind]()

        return at

    def residual(self, f: Formula, g: Formula) -> Any:
        """One that takes formulas only where Mask is not 0 near the point."""
        a, b = self._one_of((0, 1), (1, 0), (1, 1), (-1, 0), (1, -1))
        kinds: list[Callable[[], Any]] = [
            lambda: f(0, 0) - f(a, b),
            lambda: w * f(0, 0) * A[i, j] + 2.5 * f(a, b) * f(1, 0) - X[i, j],
            lambda: f(0, 1) * g(0, 0) - g(a, b) / (1 + X[i, j] ** 2),
            lambda: op.vector(f(0, 0), g(a, b)) * Y[i, j],
            lambda: op.robust(f(0, 0) - w * f(a, b), "cauchy", scale=2.0),
            lambda: op.where(g(0, 0) > f(a, b), f(0, 0) - X[i + 1, j], f(0, 1) * X[i, j]),
        ]
        r = kinds[int(self.rng.integers(len(kinds)))]()
        near = [(c, d) for c in range(-2, 3) for d in range(-2, 3)]
        positive = op.vector(*(Mask[i + c, j + d] > 0 for c, d in near)).all()
        inside = op.in_bounds(i - 2, j - 2) & op.in_bounds(i + 2, j + 2)
        if self.outside:  # what is read there is 0
            beyond_or_positive = ((Mask[i + c, j + d] > 0) | ~op.in_bounds(i + c, j + d) for c, d in near)
            condition = op.in_bounds(i - 1, j) & op.vector(*beyond_or_positive).all()
        else:
            condition = self._one_of(positive, positive & inside)
        return op.where(condition, r, 0)
