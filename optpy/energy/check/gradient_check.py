"""Symbolic derivatives against differences of the residuals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, final

import numpy as np
from numpy.typing import NDArray

from optpy import ir
from optpy.drawing.markup import findings_html
from optpy.energy.check.differences import AGREES, DISAGREES, UNDECIDED, Compared, Differences
from optpy.energy.check.displaced import DisplacedResiduals
from optpy.energy.check.evaluation import solved_elements
from optpy.energy.check.jacobian import bound_jacobian, jacobian_rounding
from optpy.energy.data.binding import bind
from optpy.energy.language.manifold import Floats

if TYPE_CHECKING:
    from scipy.sparse import csc_matrix


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
            + (f"; {_NOT_DECIDABLE} leaves {self.uncertainty:.1e}" if self.verdict == "undecided" else "")
        )


_NOT_DECIDABLE = "not decidable at this point: rounding of the residual"
_VERDICTS: Final[dict[int, Literal["agrees", "undecided", "disagrees"]]] = {
    AGREES: "agrees",
    UNDECIDED: "undecided",
    DISAGREES: "disagrees",
}


@final
@dataclass(frozen=True, slots=True)
class GradientReport:
    """The findings of ``check_gradients``. True if every derivative agrees: none disagrees, and none is undecided."""

    worst: dict[str, WorstEntry]
    """For each residual that has derivatives."""
    tolerance: float

    @property
    def max_error(self) -> float:
        """The largest relative error among the worst entries; 0 where nothing was checked."""
        return max((w.error for w in self.worst.values()), default=0.0)

    @property
    def passed(self) -> bool:
        """Whether every worst entry agrees."""
        return all(w.verdict == "agrees" for w in self.worst.values())

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        disagree = any(w.verdict == "disagrees" for w in self.worst.values())
        verdict = "agree" if self.passed else "DISAGREE" if disagree else f"are {_NOT_DECIDABLE}"
        lines = [f"derivatives and differences {verdict}: error {self.max_error:.1e}, tolerance {self.tolerance:.1e}"]
        return "\n".join([*lines, *(f"  {w}" for w in self.worst.values())])

    def _repr_html_(self) -> str:
        return findings_html(str(self), self.passed)


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

    rounded = jacobian_rounding(problem, function.nearby).tocsc()
    differences = Differences(function, jacobian_at, jacobian, rounded, tolerance)
    worst: dict[str, tuple[int, float, WorstEntry]] = {}
    for found in differences.compared(independent_columns(jacobian, np.flatnonzero(np.concatenate(solved)))):
        for label, rows in function.rows.items():
            if rows.start == rows.stop:  # a term over a graph without edges
                continue
            told = np.where((found.column_of >= 0) | (found.error > 0), found.verdict, -1)[rows]
            verdict = int(told.max())
            row = rows.start + int(np.argmax(np.where(told == verdict, found.error[rows], -1.0)))
            if verdict >= 0 and (label not in worst or (verdict, found.error[row]) > worst[label][:2]):
                worst[label] = verdict, float(found.error[row]), _entry(found, function, label, row)
    return GradientReport({label: worst[label][2] for label in function.rows if label in worst}, tolerance)


def _entry(found: Compared, function: DisplacedResiduals, label: str, row: int) -> WorstEntry:
    unknown, column = function.element(int(found.column_of[row]))
    return WorstEntry(
        label,
        function.row_index(label, row),
        unknown,
        column,
        float(found.symbolic[row]),
        float(found.numeric[row]),
        float(found.error[row]),
        float(found.uncertainty[row]),
        _VERDICTS[int(found.verdict[row])],
    )


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
