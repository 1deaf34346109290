"""Vectors of length 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from optpy import ir
from optpy.energy.language.expression import Expression, stack
from optpy.energy.language.functions import abs, cos, dot, normalize, sin, sqrt, where
from optpy.energy.language.index import describe
from optpy.energy.language.manifold import Floats, Manifold
from optpy.energy.language.rotations import sine_series
from optpy.energy.manifolds.stored import unit
from optpy.errors import EnergyError, Location


@final
@dataclass(frozen=True, init=False)
class UnitVector(Manifold):
    """The unit vectors of n numbers, the sphere of dimension n - 1; the third argument of a declaration.

    ``N = op.Unknown("N", (H, W), op.UnitVector(3))`` is read as an ordinary vector, ``N[i, j]``. A solve moves an
    unknown unit vector x along a great circle: ``x <- cos|delta| x + sin|delta| B delta / |delta|``, where the n - 1
    numbers delta, in radians, are coordinates in the orthonormal basis B of the tangent plane: the first n - 1 columns
    of the reflection that takes x to a multiple of the last axis. Derivatives are taken with respect to delta. In the
    data and the results it is (*dims, n).

    Args:
        n: how many numbers, 2 or more.
    """

    layout = "unit vectors"

    def __init__(self, n: int) -> None:
        if not _is_count(n):
            raise EnergyError(
                f"op.UnitVector takes the number of entries, 2 or more, got {describe(n)}", Location.of_caller()
            )
        super().__init__(f"UnitVector({n})", int(n), int(n) - 1)

    def read(self, stored: Expression, delta: Expression) -> Expression:
        return stored + _in_tangent_plane(stored, delta)

    def retract(self, stored: Expression, delta: Expression) -> Expression:
        squared = dot(delta, delta)
        angle = sqrt(squared)
        sinc = where(squared < 0.25, sine_series(squared, 1), sin(angle) / angle)
        end = cos(angle) * stored + sinc * _in_tangent_plane(stored, delta)
        return where(squared == 0, stored, normalize(end))

    def checked(self, field: ir.Field, array: Floats, precision: float, xp: Any) -> Floats:
        return unit(field, array, precision, xp, "the vector")


def _is_count(n: object) -> bool:
    return isinstance(n, int | np.integer) and not isinstance(n, bool) and int(n) >= 2


def _in_tangent_plane(x: Expression, delta: Expression) -> Expression:
    """``B delta``: B holds the first n - 1 columns of ``1 - v v^T / (1 + |x_n|)``, v = x + sign(x_n) e_n.

    That is Householder's reflection of x to ``-sign(x_n) e_n``, whose last column is a multiple of x.
    """
    n = len(x)
    last = x[n - 1]
    along = dot(x[: n - 1], delta)
    scaled = along / (1 + abs(last))
    sign = where(last < 0, -1, 1)
    return stack([delta[k] - x[k] * scaled for k in range(n - 1)] + [-sign * along])
