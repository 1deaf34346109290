"""``check_gradients``: an energy's symbolic derivatives against differences of its residuals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from .. import ir
from ..symbolic.expr import Call, Expr, var
from ..symbolic.interpret import Value, evaluate
from ..symbolic.traverse import substitute, topological
from .binding import Bound, bind
from .energy import Energy
from .evaluation import Floats, Lookup, Slab, bound_jacobian, residual_values, solved_elements
from .tangent import at_zero, moved

if TYPE_CHECKING:
    from scipy.sparse import csc_matrix

_LEVELS = 5
_FIRST_STEP = 4e-3
"""Relative to max(1, |x|); halved at every level."""


@final
@dataclass(frozen=True, slots=True)
class WorstEntry:
    """The entry of the Jacobian where a residual's derivative is furthest from its differences."""

    residual: str
    """The term, or the entry of a list: "reg[0]"."""
    row: tuple[int, ...]
    """Where in the residual: index in its domain, then the component."""
    unknown: str | None
    """None where the symbolic derivative says that the residual does not depend on what was changed."""
    column: tuple[int, ...]
    """Which element of the unknown: index in its grid, then the channel (of its tangent, on a manifold)."""
    symbolic: float
    numeric: float
    error: float
    """``|symbolic - numeric| / max(1, |symbolic|, |numeric|)``."""

    def __str__(self) -> str:
        by = "something that it should not depend on" if self.unknown is None else f"{self.unknown}{list(self.column)}"
        return (
            f"{self.residual}{list(self.row)} by {by}: symbolic {self.symbolic:.9g}, differences {self.numeric:.9g}, "
            f"error {self.error:.1e}"
        )


@final
@dataclass(frozen=True, slots=True)
class GradientReport:
    """What ``check_gradients`` found. True if every derivative agrees."""

    worst: dict[str, WorstEntry]
    """For each residual that has derivatives."""
    tolerance: float

    @property
    def max_error(self) -> float:
        return max((w.error for w in self.worst.values()), default=0.0)

    @property
    def passed(self) -> bool:
        return self.max_error <= self.tolerance

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        verdict = "agree" if self.passed else "DISAGREE"
        lines = [f"derivatives and differences {verdict}: error {self.max_error:.1e}, tolerance {self.tolerance:.1e}"]
        return "\n".join([*lines, *(f"  {w}" for w in self.worst.values())])


def check_gradients(energy: Energy, data: Mapping[str, Any], tolerance: float = 1e-6) -> GradientReport:
    """Compare ``energy.jacobian(data)`` with differences of the residuals, in float64; along the retraction where
    unknowns live on manifolds.

    Central differences, extrapolated to step 0; columns that share no row are changed together. What
    ``op.stop_gradient`` holds constant stays constant in the differences, too, and so do the weights of ``op.robust``
    (the residuals are those of ``energy.residuals(data, linearised=True)``).

    At a kink, central differences give the mean of the slopes on its two sides, and the energy's derivative is by
    convention: ``abs`` at 0 has 0, which is that mean, and agrees; ``maximum``, ``minimum`` and ``where`` have that
    of the arm taken, and disagree. Next to a kink or a jump, nearer than a step of the differences (4e-3 *
    max(1, abs(x)) and less), and at a jump itself (``floor``, a comparison that flips), differences mean nothing, and
    the report says that they disagree although the derivative may be right: choose data away from those points.

    Args:
        energy: whose derivatives.
        data: the point at which to compare, as for ``op.solve``.
        tolerance: the largest error to accept, relative to max(1, |entry|).

    Raises:
        DataError: the data does not fit the energy.

    Reference: C. Ridders, "Accurate computation of F'(x) and F'(x) F''(x)", Advances in Engineering Software, 1982.
    """
    bound = bind(energy, data, np.float64)
    jacobian: csc_matrix = bound_jacobian(energy, bound).tocsc()
    solved = [
        np.repeat(solved_elements(energy, u, bound).ravel(), ir.tangent(u).channels) for u in energy.unknown_fields
    ]
    function = _Residuals(energy, bound)
    differences = _Differences(function, jacobian)
    worst: dict[str, WorstEntry] = {}
    for group in independent_columns(jacobian, np.flatnonzero(np.concatenate(solved))):
        symbolic, numeric, column_of = differences.group(group)
        error = np.abs(symbolic - numeric) / np.maximum(1.0, np.maximum(np.abs(symbolic), np.abs(numeric)))
        error[np.isnan(error)] = np.inf
        for label, rows in function.rows.items():
            if rows.start == rows.stop:  # a term over a graph without edges
                continue
            row = rows.start + int(np.argmax(error[rows]))
            if (column_of[row] >= 0 or error[row] > 0) and (label not in worst or error[row] > worst[label].error):
                at = function.row_index(label, row), *function.element(int(column_of[row]))
                worst[label] = WorstEntry(label, *at, float(symbolic[row]), float(numeric[row]), float(error[row]))
    return GradientReport({label: worst[label] for label in function.rows if label in worst}, tolerance)


def independent_columns(jacobian: csc_matrix, columns: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Group columns that share no row, greedily; columns without rows are a group of their own.

    Reference: A. Curtis, M. Powell, J. Reid, "On the estimation of sparse Jacobian matrices", 1974.
    """
    taken = [0] * jacobian.shape[0]  # for each row, a bit for each group that has a column there
    starts, rows = jacobian.indptr.tolist(), jacobian.indices.tolist()
    groups: list[list[int]] = []
    empty: list[int] = []
    for c in columns.tolist():
        here = rows[starts[c] : starts[c + 1]]
        if not here:
            empty.append(c)
            continue
        used = 0
        for r in here:
            used |= taken[r]
        group = (~used & (used + 1)).bit_length() - 1  # the lowest bit that is not set
        for r in here:
            taken[r] |= 1 << group
        if group == len(groups):
            groups.append([])
        groups[group].append(c)
    return (np.array(g, np.intp) for g in [*groups, empty] if g)


@final
class _Differences:
    """Extrapolated central differences of all rows, for groups of columns that share no row."""

    def __init__(self, function: _Residuals, jacobian: csc_matrix) -> None:
        self._function = function
        self._jacobian = jacobian

    def group(self, columns: NDArray[np.intp]) -> tuple[Floats, Floats, NDArray[np.intp]]:
        """For every row: the symbolic and the numeric derivative by its column, and that column (-1: none)."""
        scale_of = self._function.scale
        step = _FIRST_STEP * scale_of[columns]
        size = self._function.size
        symbolic, column_of, width = np.zeros(size), np.full(size, -1), np.ones(size)
        for c, h in zip(columns.tolist(), step.tolist(), strict=True):
            at = slice(self._jacobian.indptr[c], self._jacobian.indptr[c + 1])
            rows = self._jacobian.indices[at]
            symbolic[rows], column_of[rows], width[rows] = self._jacobian.data[at], c, h
        table: list[Floats] = []
        best, best_error = np.zeros(0), np.full(size, np.inf)
        for level in range(_LEVELS):
            scale = 0.5**level
            change = np.zeros_like(scale_of)
            change[columns] = scale * step
            row = [(self._function(change) - self._function(-change)) / (2 * scale * width)]
            for n, above in enumerate(table):
                row.append(row[n] + (row[n] - above) / (4.0 ** (n + 1) - 1))
            best, best_error = _better(best, best_error, row, table)
            table = row
        return symbolic, best, column_of


def _better(best: Floats, best_error: Floats, row: Sequence[Floats], above: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Ridders' choice, element by element: the entry of the table that moved least."""
    if not above:
        return row[0], best_error
    for n in range(1, len(row)):
        error = np.maximum(np.abs(row[n] - row[n - 1]), np.abs(row[n] - above[n - 1]))
        smaller = error < best_error
        best, best_error = np.where(smaller, row[n], best), np.where(smaller, error, best_error)
    return best, best_error


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
class _HoldingLookup:
    """Leaves at a changed point, but what gradients do not go through at the start."""

    def __init__(self, start: Bound, now: Bound, slab: Slab) -> None:
        self._start = Lookup(start, slab)
        self._now = Lookup(now, slab)

    def __call__(self, key: Any) -> Value:
        if isinstance(key, _Held):
            return evaluate([key.expression], self._start)[0]
        return self._now(key)


@final
class _Residuals:
    """F as a function of the change of all unknowns in one vector: rows and columns as in ``Energy.jacobian``."""

    def __init__(self, energy: Energy, bound: Bound) -> None:
        self._unknowns = energy.unknown_fields
        self._bound = bound
        self._residuals = [replace(r, components=_hold_stopped(at_zero(r.linearised))) for r in energy.residual_terms]
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
        """How large a change of each coordinate is large: max(1, |x|); 1 on manifolds."""
        x: Floats = self._bound.arrays[unknown.name]
        if unknown.manifold is None:
            return np.maximum(1.0, np.abs(x.ravel()))
        return np.ones(x.size // unknown.channels * unknown.manifold.dimension)

    def __call__(self, change: Floats) -> Floats:
        arrays = dict(self._bound.arrays)
        start = 0
        for u in self._unknowns:
            x = arrays[u.name]
            n = x.size // u.channels * ir.tangent(u).channels
            arrays[u.name] = moved(u, x, change[start : start + n])
            start += n
        now = replace(self._bound, arrays=arrays)
        values = [
            residual_values(r, now.sizes, lambda slab: _HoldingLookup(self._bound, now, slab)) for r in self._residuals
        ]
        return np.concatenate([v.ravel() for v in values])

    def row_index(self, label: str, row: int) -> tuple[int, ...]:
        return tuple(int(n) for n in np.unravel_index(row - self.rows[label].start, self._shapes[label]))

    def element(self, column: int) -> tuple[str | None, tuple[int, ...]]:
        for u in self._unknowns:
            grid = tuple(self._bound.sizes[d] for d in u.dims)
            shape = (*grid, ir.tangent(u).channels) if u.vector else grid
            if 0 <= column < math.prod(shape):
                return u.name, tuple(int(n) for n in np.unravel_index(column, shape))
            column -= math.prod(shape)
        return None, ()


def _hold_stopped(components: Sequence[Expr]) -> tuple[Expr, ...]:
    stopped = [e for e in topological(components) if isinstance(e, Call) and e.op.name == "stop_gradient"]
    return tuple(substitute(components, {e: var(_Held(e, n)) for n, e in enumerate(stopped)}))
