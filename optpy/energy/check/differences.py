"""Extrapolated central differences of all residuals, and what they say of the Jacobian."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from optpy.energy.check.displaced import DisplacedResiduals
from optpy.energy.check.ridders import Tableau
from optpy.energy.language.manifold import Floats

if TYPE_CHECKING:
    from scipy.sparse import csc_matrix

AGREES: Final = 0
UNDECIDED: Final = 1
DISAGREES: Final = 2
"""Verdicts on a derivative, from the best to the worst."""

_HALVINGS = 5
"""Steps that are always tried; further ones where these do not agree."""
_MOST_HALVINGS = 45
_FIRST_STEP = 2.0**-8
"""Relative to max(1, |x|), and a power of two, so that x + h is not rounded; halved each time."""
_ULPS = 8.0
"""The shortest step, in units in the last place."""
_BLURRED = 0.1
"""The largest part of a derivative that the shortest step may leave to rounding, by a bound on that."""
_SURE = 1e-3
"""Nothing agrees where more of it is left."""
_ROUNDED = 10.0
"""The error of differences over the best step is rounding's where it is no more times the bound on that."""
_NEAR, _STEEP = 8.0, 4.0
"""It is rounding's, too, where that step is no more times the shortest, unless the differences are steeper than the
derivative: next to a jump."""
_SHRUNK = 0.75
"""By which the steps shrink over which symbolic derivatives are compared with themselves."""
_RESOLVED = 0.25
"""Differences over about the shortest step that still move by more than that tell nothing."""


@final
@dataclass(frozen=True, slots=True)
class _Group:
    """Columns of which each row has one at most; for every row, that column (-1: none) and its derivative by it."""

    columns: NDArray[np.intp]
    column_of: NDArray[np.intp]
    symbolic: Floats
    rounded: Floats
    """A bound on the rounding of the symbolic derivatives themselves."""

    @property
    def scale(self) -> Floats:
        return np.maximum(1.0, np.abs(self.symbolic))

    def widths(self, step: Floats) -> Floats:
        """The step of every row: that of its column; the shortest of all where it has none."""
        widths: Floats = np.where(self.column_of >= 0, step[self.column_of], step[self.columns].min())
        return widths

    def near(self, step: Floats, shortest: Floats) -> NDArray[np.bool_]:
        """Whether rounding allows hardly any shorter step, for every row."""
        near: NDArray[np.bool_] = (self.column_of >= 0) & (step <= _NEAR * shortest)[self.column_of]
        return near


class _Central(NamedTuple):
    """Central differences over a step, in every row, and how much of them may be rounding."""

    step: Floats
    differences: Floats
    rounding: Floats


@final
@dataclass(frozen=True, slots=True)
class Compared:
    """For every row, the derivatives by its column in a group of columns, and that column (-1: none)."""

    symbolic: Floats
    numeric: Floats
    error: Floats
    uncertainty: Floats
    verdict: NDArray[np.intp]
    column_of: NDArray[np.intp]

    @classmethod
    def of(cls, group: _Group, tableau: Tableau, tolerance: float) -> Compared:
        """Judge differences."""
        symbolic, numeric, scale = group.symbolic, tableau.best, group.scale
        with np.errstate(invalid="ignore"):
            error = np.abs(symbolic - numeric) / np.maximum(scale, np.abs(numeric))
            # A shorter step would be rounded more, a longer one tell of points further away.
            limited = (tableau.error <= _ROUNDED * tableau.rounding) | (
                tableau.at_end & (np.abs(numeric) <= _STEEP * scale)
            )
            unresolved = tableau.at_end & (tableau.error > _RESOLVED * np.abs(numeric))
            uncertainty = (
                np.where(limited, np.where(unresolved, np.inf, 2 * tableau.error / scale), 0.0) + group.rounded / scale
            )
        error[np.isnan(error)] = np.inf
        undecided = np.where(error > tolerance, error <= uncertainty, tableau.error > max(_SURE, tolerance) * scale)
        verdict = np.where(undecided, UNDECIDED, np.where(error > tolerance, DISAGREES, AGREES))
        return cls(symbolic, numeric, error, uncertainty, verdict, group.column_of)


@final
class Differences:
    """Extrapolated central differences of all rows, for groups of columns that share no row."""

    def __init__(
        self,
        function: DisplacedResiduals,
        jacobian_at: Callable[[Floats], csc_matrix],
        jacobian: csc_matrix,
        jacobian_rounding: csc_matrix,
        tolerance: float,
    ) -> None:
        self._function = function
        self._jacobian_at = jacobian_at
        self._jacobian = jacobian
        self._jacobian_rounding = jacobian_rounding
        self._tolerance = tolerance
        self._rounding = function.rounding()

    def compared(self, groups: Iterable[NDArray[np.intp]]) -> Iterator[Compared]:
        """The derivatives by each group of columns. Several groups are evaluated at a time."""
        waiting = iter(groups)
        steps_of_each = _HALVINGS + 1
        while batch := [
            self._group(g) for g in islice(waiting, max(1, self._function.at_a_time // (2 * steps_of_each)))
        ]:
            told = self._central((g, step) for g in batch for step in self._first_steps(g))
            for group in batch:
                yield self._compared(group, [*islice(told, steps_of_each)])

    def _group(self, columns: NDArray[np.intp]) -> _Group:
        column_of = np.full(self._function.size, -1)
        here = self._jacobian[:, columns].tocoo()
        column_of[here.row] = columns[here.col]
        entries, rounded = (self._entries(m, columns) for m in (self._jacobian, self._jacobian_rounding))
        return _Group(columns, column_of, entries, rounded)

    def _first_steps(self, group: _Group) -> Iterator[Floats]:
        """The steps that are always tried, and last the shortest that rounding allows within the tolerance."""
        for halvings in range(_HALVINGS):
            yield 0.5**halvings * _FIRST_STEP * self._function.scale
        yield self._shortest(group.column_of, self._tolerance * group.scale)

    def _compared(self, group: _Group, first: Sequence[_Central]) -> Compared:
        shortest = self._shortest(group.column_of, _BLURRED * group.scale)
        tableau = Tableau()
        for step, central, rounding in first[:_HALVINGS]:
            tableau.add(central, rounding, near=group.near(step, shortest))
        found = Compared.of(group, tableau, self._tolerance)
        _, local, rounding = first[_HALVINGS]
        with np.errstate(invalid="ignore"):
            same = np.abs(tableau.best - local) <= 2 * (tableau.error + rounding + self._tolerance * group.scale)
        settled = (found.verdict == AGREES) & same
        if settled.all():
            return found
        last, _, _ = first[_HALVINGS - 1]
        for step, central, rounding in self._central((group, step) for step in self._further_steps(group, shortest)):
            # What a row is told depends on its own column only, however far other columns still go.
            shorter = group.widths(step) < group.widths(last)
            tableau.add(central, rounding, shorter & ~settled, near=group.near(step, shortest))
            last = step
        return self._doubted(Compared.of(group, tableau, self._tolerance), group)

    def _further_steps(self, group: _Group, shortest: Floats) -> Iterator[Floats]:
        """Down to the shortest that rounding allows."""
        for halvings in range(_HALVINGS, _MOST_HALVINGS):
            step = np.maximum(0.5**halvings * _FIRST_STEP * self._function.scale, shortest)
            yield step
            if (step == shortest)[group.columns].all():
                break

    def _doubted(self, found: Compared, group: _Group) -> Compared:
        """Disagreements, but undecided where the symbolic derivative tells of something too small to be seen.

        Differences over h are the mean of the derivative within h. They do not contradict one whose own mean there is
        off by as much as they are, where rounding allows no shorter h to tell the two apart. Where it is off as much
        within an ulp or so, it jumps.
        """
        disagrees = (found.verdict == DISAGREES) & (group.column_of >= 0)
        if not disagrees.any():
            return found
        with np.errstate(invalid="ignore"):
            gap = np.where(disagrees, np.abs(group.symbolic - found.numeric), np.inf)
            longest = self._shortest_of_rows(group.column_of, _BLURRED * gap)
            step = self._shortest(group.column_of, _BLURRED * gap)
            width = group.widths(step)
            swing = np.zeros_like(gap)
            # Down to where rounding is as much as the two are apart; halves would be more apt to be periods.
            while (disagrees & (width >= _BLURRED * longest)).any():
                within = (width >= _BLURRED * longest) & (width <= longest)
                swing = np.where(within, np.fmax(swing, self._swing(group, step)), swing)
                step, width = _SHRUNK * step, _SHRUNK * width
            jump = self._swing(group, self._floor())
            hidden = disagrees & (gap <= 2 * swing) & (gap > 2 * jump)
            uncertainty = 2 * swing / np.maximum(1.0, np.abs(group.symbolic))
        return replace(
            found,
            verdict=np.where(hidden, UNDECIDED, found.verdict),
            uncertainty=np.where(hidden, uncertainty, found.uncertainty),
        )

    def _swing(self, group: _Group, step: Floats) -> Floats:
        """The distance of the mean of the symbolic derivatives at x + h and x - h from those at x."""
        change = np.zeros_like(step)
        change[group.columns] = step[group.columns]
        forward, backward = (self._entries(self._jacobian_at(c), group.columns) for c in (change, -change))
        return np.abs(0.5 * forward + 0.5 * backward - group.symbolic)

    def _entries(self, jacobian: csc_matrix, columns: NDArray[np.intp]) -> Floats:
        """Of every row, the entry in that of the columns that it has."""
        entries = np.zeros(self._function.size)
        here = jacobian[:, columns].tocoo()
        entries[here.row] = here.data
        return entries

    def _central(self, steps: Iterable[tuple[_Group, Floats]]) -> Iterator[_Central]:
        """(F(x + h) - F(x - h)) / 2h in every row, for each group's step h; several steps are evaluated at a time."""
        waiting = iter(steps)
        while some := [*islice(waiting, max(1, self._function.at_a_time // 2))]:
            changes = np.zeros((2 * len(some), len(self._function.scale)))
            for n, (group, step) in enumerate(some):
                changes[2 * n, group.columns] = step[group.columns]
                changes[2 * n + 1, group.columns] = -step[group.columns]
            values = self._function(changes)
            for n, (group, step) in enumerate(some):
                width = group.widths(step)
                with np.errstate(invalid="ignore"):
                    central = (values[2 * n] - values[2 * n + 1]) / (2 * width)
                # What reads no x does not change.
                yield _Central(step, central, np.where(group.column_of >= 0, self._rounding / width, 0.0))

    def _shortest(self, column_of: NDArray[np.intp], left: Floats) -> Floats:
        """For each column the shortest step, a power of two, whose rounding is no more than ``left`` in any row."""
        shortest = np.exp2(np.ceil(np.log2(self._floor())))
        here = column_of >= 0
        np.maximum.at(shortest, column_of[here], self._shortest_of_rows(column_of, left)[here])
        return shortest

    def _shortest_of_rows(self, column_of: NDArray[np.intp], left: Floats) -> Floats:
        """The same for each row that has a column."""
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.maximum(np.nan_to_num(self._rounding / left, nan=np.inf), self._floor()[column_of])
        steps: Floats = np.minimum(np.exp2(np.ceil(np.log2(needed))), _FIRST_STEP * self._function.scale[column_of])
        return steps

    def _floor(self) -> Floats:
        return _ULPS * np.finfo(np.float64).eps * self._function.scale
