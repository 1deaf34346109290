"""Unknowns on manifolds: read as functions of a step in the tangent space, moved by a retraction.

An unknown x on a manifold of dimension d is stored in more numbers than it has degrees of freedom. What an energy reads
is the retraction x [+] delta of a step ``delta`` (d numbers, ``Role.TANGENT``) to first order; derivatives are taken
with respect to delta, and then delta is 0. So the solver's vectors have d channels, and only the step itself, x <- x
[+] delta, needs the retraction.

Reference: P.-A. Absil, R. Mahony, R. Sepulchre, "Optimization Algorithms on Matrix Manifolds", 2008, chapter 4.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optpy import ir
from optpy.energy.derive.vectors import DELTA, here, vector
from optpy.energy.language.expression import Expression
from optpy.energy.language.manifold import Manifold
from optpy.symbolic.expr import Expr, add
from optpy.symbolic.interpret import evaluate


@lru_cache(maxsize=16)
def retraction(unknown: ir.Field) -> tuple[Expr, ...]:
    """The stored channels of an unknown after the step ``delta``, at the current point of its grid."""
    x = tuple(here(unknown, a) for a in range(unknown.channels))
    step = vector(DELTA, unknown)
    delta = tuple(here(step, a) for a in range(step.channels))
    if not isinstance(unknown.manifold, Manifold):
        return tuple(add(a, b) for a, b in zip(x, delta, strict=True))
    return unknown.manifold.retract(Expression((len(x),), x), Expression((len(delta),), delta)).components


def moved(unknown: ir.Field, x: NDArray[np.float64], step: NDArray[np.float64]) -> NDArray[np.float64]:
    """The retraction of steps, in NumPy.

    Args:
        unknown: the field.
        x: (*dims, channels), or (*dims) for scalars.
        step: (..., as many numbers as the tangents of all elements have, in C order): one step, or several.

    Returns:
        (..., *the shape of x): a point for each step.
    """
    steps = step.shape[:-1]
    if unknown.manifold is None:
        return x + step.reshape((*steps, *x.shape))
    points = x.reshape(-1, unknown.channels)
    if not len(points):  # a graph without edges
        return np.broadcast_to(x, (*steps, *x.shape))
    tangents = step.reshape((*steps, len(points), -1))

    def lookup(key: Any) -> NDArray[np.float64]:
        values: NDArray[np.float64] = (points if key.field == unknown else tangents)[..., key.channel]
        return values

    channels = evaluate(retraction(unknown), lookup)
    return np.stack([np.broadcast_to(c, tangents.shape[:-1]) for c in channels], axis=-1).reshape((*steps, *x.shape))


def magnitudes(unknown: ir.Field, x: Any, xp: Any) -> Any:
    """The magnitude of an unknown along each coordinate in which it moves, 1 along turns.

    Args:
        unknown: the field.
        x: (*dims, channels).
        xp: the module of the arrays.

    Returns:
        (*dims, dimension of its tangent).
    """
    return unknown.manifold.magnitudes(x, xp) if isinstance(unknown.manifold, Manifold) else xp.abs(x)
