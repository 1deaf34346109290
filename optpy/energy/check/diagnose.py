"""``energy.diagnose``: unknowns that nothing determines, and values that are not finite, at the given data.

The Jacobian is looked at slab by slab; only for small problems is it kept as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from numpy.typing import NDArray

from optpy import ir
from optpy.energy.check.at_point import AtPoint
from optpy.energy.check.diagnosis import Diagnosis, Elements, Gauge, GridIndex, NonFinite
from optpy.energy.check.evaluation import LeafValues
from optpy.energy.check.jacobian import Columns, Partials
from optpy.energy.check.unrolled import unrolled
from optpy.energy.data.binding import BoundData, bind
from optpy.symbolic.expr import ONE, ZERO, Const, Expr, Product, Sum, logical_or, mul
from optpy.symbolic.interpret import evaluate
from optpy.symbolic.order import topological

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_SHOWN: Final = 5
"""Elements named for each finding."""
MOST_COLUMNS: Final = 1200
"""Unknown numbers up to which the null space is computed: the work grows with their cube."""
_MOST_WORK: Final = 10**11
"""Rows times columns squared, up to which it is."""
_ROUNDING: Final = 1e-12
"""A sum of derivatives is 0 if it is below this times the sum of their magnitudes."""


def diagnose(problem: ir.Problem, data: Mapping[str, Any]) -> Diagnosis:
    """See ``Energy.diagnose``."""
    bound = bind(problem, data, np.float64)
    problem = unrolled(problem, bound.sizes)
    sight = _Sight(problem, bound)
    for r in problem.residuals:
        sight.look_at(r)
    columns = sight.columns
    return Diagnosis(
        untouched=tuple(_elements(columns, ~sight.touched)),
        flat=tuple(_elements(columns, sight.touched & ~sight.slope)),
        non_finite=tuple(sight.non_finite),
        gauges=tuple(sight.gauges()),
        columns=int(np.count_nonzero(sight.free)),
        null_dimension=sight.null_dimension(),
    )


def _elements(columns: Columns, faulty: NDArray[np.bool_]) -> Iterator[Elements]:
    """The elements whose columns are faulty: those of which all channels are, then channel by channel."""
    for u, solved in columns.solved.items():
        first = columns.first[u]
        mask = faulty[first : first + solved.size * u.channels].reshape(solved.size, u.channels)
        mask = mask & solved.reshape(-1, 1)
        whole = mask.all(axis=1)
        for channel, found in ((None, whole), *((c, mask[:, c] & ~whole) for c in range(u.channels))):
            where = np.flatnonzero(found)
            if where.size:
                shown = [tuple(map(int, np.unravel_index(n, solved.shape))) for n in where[:_SHOWN]]
                yield Elements(u.name, channel, int(where.size), solved.size, tuple(shown))


@final
class _Sight:
    """The entries of J seen so far.

    Attributes:
        columns: of J.
        free: for each column, whether it is solved for.
        touched: whether a residual that is switched on reads it.
        slope: whether some entry in it is not 0.
        non_finite: what is not finite.
    """

    def __init__(self, problem: ir.Problem, bound: BoundData) -> None:
        from scipy.sparse import csr_matrix

        self._bound = bound
        self.columns = Columns.of(problem, bound)
        solved = self.columns.solved
        self.free = np.concatenate([np.repeat(s.ravel(), u.channels) for u, s in solved.items()])
        self.touched = np.zeros(self.columns.size, np.bool_)
        self.slope = np.zeros(self.columns.size, np.bool_)
        self.non_finite: list[NonFinite] = []
        # Column n of J belongs to the shift self._shift_of[n]; J @ self._shifts adds up each of them.
        self._shifted = [(u, c) for u in solved for c in range(u.channels)]
        firsts = np.cumsum([0, *(u.channels for u in solved)])
        parts = [np.tile(np.arange(u.channels) + f, s.size) for (u, s), f in zip(solved.items(), firsts, strict=False)]
        self._shift_of = np.concatenate(parts)
        n = self.columns.size
        self._shifts = csr_matrix((np.ones(n), self._shift_of, np.arange(n + 1)), (n, len(self._shifted)))
        self._changes = np.zeros(len(self._shifted), np.bool_)
        rows = sum(math.prod(_shape(r, bound)) for r in problem.residuals)
        small = min(n, int(np.count_nonzero(self.free)))
        self._kept: list[csr_matrix] | None = [] if small <= MOST_COLUMNS and rows * small**2 <= _MOST_WORK else None

    def look_at(self, residual: ir.Residual) -> None:
        """All of a residual, slab by slab."""
        partials = Partials(residual)
        supports = _supports(partials.expressions)
        values, slopes = _Finding(residual, self._bound), _Finding(residual, self._bound)
        for slab in ir.slabs(residual.domain, self._bound.sizes):
            values.look_at_values(slab)
            for _, column, on in partials.entries(slab, self._bound, self.columns, 0, supports) if supports else ():
                self.touched[column[on != 0]] = True
            J = self._rows(residual, partials, slab)
            slopes.look_at_derivatives(slab, J, self.columns)
            self.slope[J.indices[J.data != 0]] = True
            sums, magnitudes = J @ self._shifts, abs(J) @ self._shifts
            excess = abs(sums) - _ROUNDING * magnitudes
            self._changes[excess.indices[~(excess.data <= 0)]] = True  # NaN is a change, too
            if self._kept is not None:
                self._kept.append(J)
        self.non_finite += [f for f in (values.report(), slopes.report()) if f is not None]

    def _rows(self, residual: ir.Residual, partials: Partials, slab: ir.Slab) -> csr_matrix:
        """The rows of J that belong to a slab."""
        from scipy.sparse import coo_matrix

        entries = partials.entries(slab, self._bound, self.columns, 0)
        shape = (math.prod(slab.shape) * len(residual.components), self.columns.size)
        empty = np.zeros(0, np.int64)
        rows, columns, values = (np.concatenate([empty, *(e[k] for e in entries)]) for k in range(3))
        return coo_matrix((values.astype(np.float64), (rows, columns)), shape=shape).tocsr()

    def gauges(self) -> Iterator[Gauge]:
        """The shifts that change no residual, of unknowns that some residual depends on."""
        for n, (u, channel) in enumerate(self._shifted):
            if not self._changes[n] and self.slope[self._shift_of == n].any():
                yield Gauge(u.name, channel if u.channels > 1 else None)

    def null_dimension(self) -> int | None:
        """Columns minus rank: singular values of J with its columns scaled to about 1, against rounding."""
        from scipy.sparse import vstack

        if self._kept is None or self.non_finite:
            return None
        zero = int(np.count_nonzero(self.free & ~self.slope))
        J = vstack(self._kept).tocsc()[:, np.flatnonzero(self.slope)].tocsr()
        if not J.shape[1]:
            return zero
        J.data /= abs(J).max(axis=0).toarray().ravel()[J.indices]
        R = np.zeros((0, J.shape[1]))
        rows = max(1024, J.shape[1])
        for start in range(0, J.shape[0], rows):  # J = Q R, a few rows at a time
            R = np.asarray(np.linalg.qr(np.vstack([R, J[start : start + rows].toarray()]), mode="r"))
        sigma = np.linalg.svd(R, compute_uv=False)
        tolerance = sigma[0] * max(J.shape) * np.finfo(np.float64).eps
        rank = int(np.count_nonzero(sigma > tolerance))
        return zero + len(R.T) - rank


def _shape(residual: ir.Residual, bound: BoundData) -> tuple[int, ...]:
    return (*(bound.sizes[i.dim] for i in residual.domain), len(residual.components))


def _supports(roots: Iterable[Expr]) -> list[Expr]:
    """For each expression, the condition outside which it is 0 by its form."""
    roots = list(roots)
    found: dict[Expr, Expr] = {}
    for e in topological(roots):
        if e.boolean:
            found[e] = e
        elif isinstance(e, Const):
            found[e] = ONE if e.value else ZERO
        elif isinstance(e, Product):
            found[e] = mul(*(found[b] for b, x in e.factors if x > 0))
        elif isinstance(e, Sum) and e.constant == 0:
            found[e] = logical_or(*(found[t] for _, t in e.terms))
        else:
            found[e] = ONE
    return [found[r] for r in roots]


# -- values that are not finite ------------------------------------------------------------------------------------


_Entry = tuple[int, str | None, float]
"""Row, unknown (None: the residual itself), value."""


@final
class _Finding:
    """Counts the values of a residual, or its derivatives, that are not finite, and keeps the first."""

    def __init__(self, residual: ir.Residual, bound: BoundData) -> None:
        self._residual = residual
        self._bound = bound
        self._count = self._total = 0
        self._first: tuple[GridIndex, int, str | None, float] | None = None

    def look_at_values(self, slab: ir.Slab) -> None:
        values = evaluate(self._residual.components, LeafValues(self._bound, slab))
        table = np.stack([np.broadcast_to(v, slab.shape).ravel() for v in values], axis=-1)
        faulty = np.flatnonzero(~np.isfinite(table))
        self._note(slab, faulty, table.size, lambda n: (n, None, float(table.ravel()[n])))

    def look_at_derivatives(self, slab: ir.Slab, J: csr_matrix, columns: Columns) -> None:
        faulty = np.flatnonzero(~np.isfinite(J.data))

        def entry(n: int) -> _Entry:
            row = int(np.searchsorted(J.indptr, n, side="right")) - 1
            owner = [u for u, first in columns.first.items() if first <= J.indices[n]][-1]
            return row, owner.name, float(J.data[n])

        self._note(slab, faulty, J.nnz, entry)

    def _note(self, slab: ir.Slab, faulty: NDArray[np.intp], total: int, entry: Callable[[int], _Entry]) -> None:
        self._count += faulty.size
        self._total += total
        if self._first is None and faulty.size:
            row, unknown, value = entry(int(faulty[0]))
            point, component = divmod(row, len(self._residual.components))
            index = [int(n) for n in np.unravel_index(point, slab.shape)] if slab.shape else []
            if index:
                index[0] += slab.start
            self._first = tuple(index), component, unknown, value

    def report(self) -> NonFinite | None:
        if self._first is None:
            return None
        r = self._residual
        index, component, unknown, value = self._first
        reads = tuple(AtPoint(r.domain, self._bound, index).reads(r.components))
        return NonFinite(r.label, index, component, unknown, value, self._count, self._total, reads, r.location)
