"""Residuals as a function of a change of the unknowns: what differences are taken of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from optpy import ir
from optpy.energy.check.evaluation import Evaluator, LeafValues, residual_values
from optpy.energy.check.unrolled import unrolled
from optpy.energy.data.binding import BoundData
from optpy.energy.derive.retraction import moved
from optpy.energy.derive.stopped import stopped
from optpy.energy.language.manifold import Floats
from optpy.symbolic.expr import Expr, var
from optpy.symbolic.interpret import Value, evaluate, rounding
from optpy.symbolic.traverse import substitute

_NEARBY = 2.0**-45
"""Of the scale of each coordinate, at least."""
_NUMBERS = 1 << 18
"""At most so many of F, or of x, are evaluated at a time where there are several points."""


@final
@dataclass(frozen=True, slots=True)
class _Held:
    """A leaf that keeps the value that an expression has at the start."""

    expression: Expr
    number: int
    boolean = False

    def __str__(self) -> str:
        return f"held {self.number}"


@final
class _DisplacedLeafValues:
    """Leaves at several changed points, but what gradients do not go through at the start."""

    def __init__(self, start: BoundData, unknowns: Mapping[str, Floats], slab: ir.Slab) -> None:
        self._start = LeafValues(start, slab)
        self._unknowns = unknowns

    def __call__(self, key: Any) -> Value:
        if isinstance(key, _Held):
            return evaluate([key.expression], self._start)[0]
        if isinstance(key, ir.Access) and key.field.name in self._unknowns:
            return self._start.read(key, self._unknowns[key.field.name])
        return self._start(key)


@final
class DisplacedResiduals:
    """F as a function of the change of all unknowns in one vector: rows and columns as in ``Energy.jacobian``."""

    def __init__(self, problem: ir.Problem, bound: BoundData) -> None:
        problem = unrolled(problem, bound.sizes)
        self._unknowns = problem.unknowns
        self._bound = bound
        self._residuals = [replace(r, components=_hold_stopped(ir.at_zero(r.linearised))) for r in problem.residuals]
        self.scale: Floats = np.concatenate([self._scale(u) for u in self._unknowns])
        self.rows: dict[str, slice] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self.size = 0
        for r in self._residuals:
            shape = (*(bound.sizes[i.dim] for i in r.domain), len(r.components))
            self._shapes[r.label] = shape
            self.rows[r.label] = slice(self.size, self.size + math.prod(shape))
            self.size += math.prod(shape)

    def _scale(self, unknown: ir.Field) -> Floats:
        """The unit of change of each coordinate: a power of two below max(1, |x|); 1 on manifolds."""
        x: Floats = self._bound.arrays[unknown.name]
        if unknown.manifold is None:
            return np.exp2(np.floor(np.log2(np.maximum(1.0, np.abs(x.ravel())))))
        return np.ones(x.size // unknown.channels * unknown.manifold.dimension)

    def __call__(self, changes: Floats) -> Floats:
        """F for each of several changes: (changes, rows)."""
        starts = range(0, len(changes), self.at_a_time)
        rows: Floats = np.concatenate([self._evaluated(changes[n : n + self.at_a_time], evaluate) for n in starts])
        return rows

    @property
    def at_a_time(self) -> int:
        """Changes that are evaluated in one pass over the expressions."""
        return max(1, _NUMBERS // max(len(self.scale), self.size, 1))

    def at(self, change: Floats) -> BoundData:
        """The data where the unknowns have changed."""
        return replace(self._bound, arrays={**self._bound.arrays, **self._moved(change)})

    def _moved(self, changes: Floats) -> dict[str, Floats]:
        """Each unknown after changes (..., columns): (..., *dims, channels)."""
        found: dict[str, Floats] = {}
        start = 0
        for u in self._unknowns:
            x = self._bound.arrays[u.name]
            n = x.size // u.channels * ir.tangent(u).channels
            found[u.name] = moved(u, x, changes[..., start : start + n])
            start += n
        return found

    def _evaluated(self, changes: Floats, evaluate: Evaluator) -> Floats:
        unknowns = self._moved(changes)

        def leaf_values(slab: ir.Slab) -> Callable[[Any], Value]:
            return _DisplacedLeafValues(self._bound, unknowns, slab)

        points = (len(changes),)
        found = [residual_values(r, self._bound.sizes, leaf_values, evaluate, points) for r in self._residuals]
        rows: Floats = np.concatenate([values.reshape(len(changes), -1) for values in found], axis=1)
        return rows

    def rounding(self) -> Floats:
        """A bound on the rounding in each entry of F, where the changed x is exact."""

        def errors(roots: Sequence[Expr], leaf_values: Callable[[Any], Value]) -> list[Value]:
            def leaf(key: Any) -> Value:
                retracted = isinstance(key, ir.Access) and key.field in self._unknowns and key.field.manifold
                return np.finfo(np.float64).eps * np.abs(leaf_values(key)) if retracted else np.float64(0)

            return rounding(roots, leaf_values, leaf)

        errors_of_rows: Floats = self._evaluated(self._nearby[None], errors)[0]
        return errors_of_rows

    @property
    def nearby(self) -> BoundData:
        """A point some hundred units of rounding away, in no special direction, where rounding is what it is around x.

        At x itself it may be less, or seem more: sums of whole numbers and with zeros are exact, and a condition that
        is met exactly would be changed by any rounding.
        """
        return self.at(self._nearby)

    @property
    def _nearby(self) -> Floats:
        golden = 0.5 * (np.sqrt(5.0) - 1)
        change: Floats = _NEARBY * (1 + np.arange(len(self.scale)) * golden % 1) * self.scale
        return change

    def row_index(self, label: str, row: int) -> tuple[int, ...]:
        """The index within a residual, (*domain, component), of a row of J."""
        return tuple(int(n) for n in np.unravel_index(row - self.rows[label].start, self._shapes[label]))

    def element(self, column: int) -> tuple[str | None, tuple[int, ...]]:
        """The name of the unknown, and the index of the number in it, that a column of J belongs to."""
        for u in self._unknowns:
            grid = tuple(self._bound.sizes[d] for d in u.dims)
            shape = (*grid, ir.tangent(u).channels) if u.channel_axis else grid
            if 0 <= column < math.prod(shape):
                return u.name, tuple(int(n) for n in np.unravel_index(column, shape))
            column -= math.prod(shape)
        return None, ()


def _hold_stopped(components: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(substitute(components, {e: var(_Held(e, n)) for n, e in enumerate(stopped(components))}))
