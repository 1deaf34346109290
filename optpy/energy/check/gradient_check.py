"""Symbolic derivatives against differences of the residuals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from optpy import ir
from optpy.energy.check.displaced import DisplacedResiduals
from optpy.energy.check.evaluation import bound_jacobian, jacobian_rounding, solved_elements
from optpy.energy.check.ridders import Tableau
from optpy.energy.data.binding import bind
from optpy.energy.language.manifold import Floats

if TYPE_CHECKING:
    from scipy.sparse import csc_matrix

_LEVELS = 5
"""Steps that are always tried; further ones where these do not agree."""
_MOST_LEVELS = 45
_FIRST_STEP = 2.0**-8
"""Relative to max(1, |x|), and a power of two, so that x + h is not rounded; halved at every level."""
_ULPS = 8.0
"""The shortest step, in units in the last place."""
_BLURRED = 0.1
"""The largest part of a derivative that the shortest step may leave to rounding, by a bound on that."""
_SURE = 1e-3
"""Nothing agrees where more of it is left."""
_ROUNDED = 10.0
"""The error of differences over the best step is rounding's where it is no more times the bound on that,"""
_NEAR, _STEEP = 8.0, 4.0
"""and where that step is no more times the shortest, unless they are steeper than the derivative: next to a jump."""
_SHRUNK = 0.75
"""By which the steps shrink over which symbolic derivatives are compared with themselves."""
_RESOLVED = 0.25
"""Differences over about the shortest step that still move by more than that tell nothing."""


@final
@dataclass(frozen=True, slots=True)
class WorstEntry:
    """The entry of the Jacobian where a residual's derivative is furthest from its differences."""

    residual: str
    """The term, or the entry of a list: "reg[0]"."""
    row: tuple[int, ...]
    """The row: index in the residual's domain, then the component."""
    unknown: str | None
    """None where the symbolic derivative says that the residual does not depend on what was changed."""
    column: tuple[int, ...]
    """The column: index in the unknown's grid, then the channel (of its tangent space, on a manifold)."""
    symbolic: float
    numeric: float
    error: float
    """``|symbolic - numeric| / max(1, |symbolic|, |numeric|)``."""
    uncertainty: float
    """Of the differences, relative likewise: what the rounding of the residual leaves unknown."""
    verdict: Literal["agrees", "undecided", "disagrees"]
    """Undecided: the error is more than the tolerance, but no more than the differences' own."""

    def __str__(self) -> str:
        by = "something that it should not depend on" if self.unknown is None else f"{self.unknown}{list(self.column)}"
        return (
            f"{self.residual}{list(self.row)} by {by}: symbolic {self.symbolic:.9g}, differences {self.numeric:.9g}, "
            f"error {self.error:.1e}"
            + (f"; {_UNDECIDED} leaves {self.uncertainty:.1e}" if self.verdict == "undecided" else "")
        )


_UNDECIDED = "not decidable at this point: rounding of the residual"
_VERDICTS: tuple[Literal["agrees", "undecided", "disagrees"], ...] = ("agrees", "undecided", "disagrees")
_IS_UNDECIDED, _DISAGREES = 1, 2


@final
@dataclass(frozen=True, slots=True)
class GradientReport:
    """The findings of ``check_gradients``. True if every derivative agrees: none disagrees, and none is undecided."""

    worst: dict[str, WorstEntry]
    """For each residual that has derivatives."""
    tolerance: float

    @property
    def max_error(self) -> float:
        return max((w.error for w in self.worst.values()), default=0.0)

    @property
    def passed(self) -> bool:
        return all(w.verdict == "agrees" for w in self.worst.values())

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        disagree = any(w.verdict == "disagrees" for w in self.worst.values())
        verdict = "agree" if self.passed else "DISAGREE" if disagree else f"are {_UNDECIDED}"
        lines = [f"derivatives and differences {verdict}: error {self.max_error:.1e}, tolerance {self.tolerance:.1e}"]
        return "\n".join([*lines, *(f"  {w}" for w in self.worst.values())])


def gradient_report(problem: ir.Problem, data: Mapping[str, Any], tolerance: float) -> GradientReport:
    """Compare the Jacobian with differences of the residuals, see ``check_gradients``.

    Raises:
        DataError: the data does not fit the problem.

    Reference: C. Ridders, "Accurate computation of F'(x) and F'(x) F''(x)", Advances in Engineering Software, 1982.
    """
    bound = bind(problem, data, np.float64)
    jacobian: csc_matrix = bound_jacobian(problem, bound).tocsc()
    solved = [np.repeat(solved_elements(problem, u, bound).ravel(), ir.tangent(u).channels) for u in problem.unknowns]
    function = DisplacedResiduals(problem, bound)

    def jacobian_at(change: Floats) -> csc_matrix:
        return bound_jacobian(problem, function.at(change)).tocsc()

    differences = _Differences(function, jacobian_at, jacobian, jacobian_rounding(problem, function.nearby).tocsc())
    worst: dict[str, tuple[int, float, WorstEntry]] = {}
    for group in independent_columns(jacobian, np.flatnonzero(np.concatenate(solved))):
        found = differences.group(group, tolerance)
        for label, rows in function.rows.items():
            if rows.start == rows.stop:  # a term over a graph without edges
                continue
            told = np.where((found.column_of >= 0) | (found.error > 0), found.verdict, -1)[rows]
            verdict = int(told.max())
            row = rows.start + int(np.argmax(np.where(told == verdict, found.error[rows], -1.0)))
            if verdict >= 0 and (label not in worst or (verdict, found.error[row]) > worst[label][:2]):
                worst[label] = verdict, float(found.error[row]), found.entry(function, label, row)
    return GradientReport({label: worst[label][2] for label in function.rows if label in worst}, tolerance)


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
@dataclass(frozen=True, slots=True)
class _Compared:
    """For every row, the derivatives by its column in a group of columns, and that column (-1: none)."""

    symbolic: Floats
    numeric: Floats
    error: Floats
    uncertainty: Floats
    verdict: NDArray[np.intp]
    column_of: NDArray[np.intp]

    @classmethod
    def of(
        cls, symbolic: Floats, rounded: Floats, tableau: Tableau, tolerance: float, column_of: NDArray[np.intp]
    ) -> _Compared:
        """Judge differences; ``rounded`` bounds the rounding of the symbolic derivatives themselves."""
        numeric = tableau.best
        scale = np.maximum(1.0, np.abs(symbolic))
        with np.errstate(invalid="ignore"):
            error = np.abs(symbolic - numeric) / np.maximum(scale, np.abs(numeric))
            # A shorter step would be rounded more, a longer one tell of points further away.
            limited = (tableau.error <= _ROUNDED * tableau.rounding) | (
                tableau.at_end & (np.abs(numeric) <= _STEEP * scale)
            )
            unresolved = tableau.at_end & (tableau.error > _RESOLVED * np.abs(numeric))
            uncertainty = (
                np.where(limited, np.where(unresolved, np.inf, 2 * tableau.error / scale), 0.0) + rounded / scale
            )
        error[np.isnan(error)] = np.inf
        undecided = np.where(error > tolerance, error <= uncertainty, tableau.error > max(_SURE, tolerance) * scale)
        verdict = np.where(undecided, _IS_UNDECIDED, np.where(error > tolerance, _DISAGREES, 0))
        return cls(symbolic, numeric, error, uncertainty, verdict, column_of)

    def entry(self, function: DisplacedResiduals, label: str, row: int) -> WorstEntry:
        """One row, for the report."""
        unknown, column = function.element(int(self.column_of[row]))
        return WorstEntry(
            label,
            function.row_index(label, row),
            unknown,
            column,
            float(self.symbolic[row]),
            float(self.numeric[row]),
            float(self.error[row]),
            float(self.uncertainty[row]),
            _VERDICTS[self.verdict[row]],
        )


@final
class _Differences:
    """Extrapolated central differences of all rows, for groups of columns that share no row."""

    def __init__(
        self,
        function: DisplacedResiduals,
        jacobian_at: Callable[[Floats], csc_matrix],
        jacobian: csc_matrix,
        jacobian_rounding: csc_matrix,
    ) -> None:
        self._function = function
        self._jacobian_at = jacobian_at
        self._jacobian = jacobian
        self._jacobian_rounding = jacobian_rounding
        self._rounding = function.rounding()

    def group(self, columns: NDArray[np.intp], tolerance: float) -> _Compared:
        """The derivatives by columns of which each row has one at most."""
        first = _FIRST_STEP * self._function.scale
        column_of = np.full(self._function.size, -1)
        here = self._jacobian[:, columns].tocoo()
        column_of[here.row] = columns[here.col]
        symbolic = self._entries(self._jacobian, columns)
        rounded = self._entries(self._jacobian_rounding, columns)
        scale = np.maximum(1.0, np.abs(symbolic))
        shortest = self._shortest(column_of, _BLURRED * scale)
        tableau = Tableau()
        step = first
        for level in range(_LEVELS):
            step = 0.5**level * first
            tableau.add(*self._central(columns, column_of, step), near=_near(step, shortest, column_of))
        found = _Compared.of(symbolic, rounded, tableau, tolerance, column_of)
        local, rounding = self._central(columns, column_of, self._shortest(column_of, tolerance * scale))
        with np.errstate(invalid="ignore"):
            same = np.abs(tableau.best - local) <= 2 * (tableau.error + rounding + tolerance * scale)
        settled = (found.verdict == 0) & same
        if settled.all():
            return found
        for level in range(_LEVELS, _MOST_LEVELS):
            last, step = step, np.maximum(0.5**level * first, shortest)
            # What a row is told depends on its own column only, however far other columns still go.
            shorter = _widths(columns, column_of, step) < _widths(columns, column_of, last)
            tableau.add(
                *self._central(columns, column_of, step), shorter & ~settled, near=_near(step, shortest, column_of)
            )
            if (step == shortest)[columns].all():
                break
        found = _Compared.of(symbolic, rounded, tableau, tolerance, column_of)
        return self._doubted(found, columns)

    def _doubted(self, found: _Compared, columns: NDArray[np.intp]) -> _Compared:
        """Disagreements, but undecided where the symbolic derivative tells of something too small to be seen.

        Differences over h are the mean of the derivative within h. They do not contradict one whose own mean there is
        off by as much as they are, where rounding allows no shorter h to tell the two apart. Where it is off as much
        within an ulp or so, it jumps.
        """
        disagrees = (found.verdict == _DISAGREES) & (found.column_of >= 0)
        if not disagrees.any():
            return found
        with np.errstate(invalid="ignore"):
            gap = np.where(disagrees, np.abs(found.symbolic - found.numeric), np.inf)
            longest = self._shortest_of_rows(found.column_of, _BLURRED * gap)
            step = self._shortest(found.column_of, _BLURRED * gap)
            width = _widths(columns, found.column_of, step)
            swing = np.zeros_like(gap)
            # Down to where rounding is as much as the two are apart; halves would be more apt to be periods.
            while (disagrees & (width >= _BLURRED * longest)).any():
                within = (width >= _BLURRED * longest) & (width <= longest)
                swing = np.where(within, np.fmax(swing, self._swing(found.symbolic, columns, step)), swing)
                step, width = _SHRUNK * step, _SHRUNK * width
            jump = self._swing(found.symbolic, columns, self._floor())
            hidden = disagrees & (gap <= 2 * swing) & (gap > 2 * jump)
            uncertainty = 2 * swing / np.maximum(1.0, np.abs(found.symbolic))
        return replace(
            found,
            verdict=np.where(hidden, _IS_UNDECIDED, found.verdict),
            uncertainty=np.where(hidden, uncertainty, found.uncertainty),
        )

    def _swing(self, symbolic: Floats, columns: NDArray[np.intp], step: Floats) -> Floats:
        """The distance of the mean of the symbolic derivatives at x + h and x - h from those at x."""
        change = np.zeros_like(step)
        change[columns] = step[columns]
        forward, backward = (self._entries(self._jacobian_at(c), columns) for c in (change, -change))
        return np.abs(0.5 * forward + 0.5 * backward - symbolic)

    def _entries(self, jacobian: csc_matrix, columns: NDArray[np.intp]) -> Floats:
        """Of every row, the entry in that of the columns that it has."""
        entries = np.zeros(self._function.size)
        here = jacobian[:, columns].tocoo()
        entries[here.row] = here.data
        return entries

    def _central(self, columns: NDArray[np.intp], column_of: NDArray[np.intp], step: Floats) -> tuple[Floats, Floats]:
        """(F(x + h) - F(x - h)) / 2h in every row, and how much of it may be rounding."""
        change = np.zeros_like(step)
        change[columns] = step[columns]
        width = _widths(columns, column_of, step)
        with np.errstate(invalid="ignore"):
            central = (self._function(change) - self._function(-change)) / (2 * width)
        return central, np.where(column_of >= 0, self._rounding / width, 0.0)  # what reads no x does not change

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


def _widths(columns: NDArray[np.intp], column_of: NDArray[np.intp], step: Floats) -> Floats:
    """The step of every row: that of its column; the shortest of all where it has none."""
    widths: Floats = np.where(column_of >= 0, step[column_of], step[columns].min())
    return widths


def _near(step: Floats, shortest: Floats, column_of: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether rounding allows hardly any shorter step, for every row."""
    near: NDArray[np.bool_] = (column_of >= 0) & (step <= _NEAR * shortest)[column_of]
    return near
