"""An energy's Jacobian by the NumPy interpreter, in float64: the reference for all generated code."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakKeyDictionary

import numpy as np

from optpy import ir
from optpy.energy.check.evaluation import Booleans, Evaluator, LeafValues, solved_elements
from optpy.energy.check.unrolled import unrolled
from optpy.energy.data.binding import BoundData, bind
from optpy.energy.language.manifold import Floats
from optpy.ir.points import Integers
from optpy.symbolic.derivative import Derivative
from optpy.symbolic.expr import Expr, Var
from optpy.symbolic.interpret import Value, evaluate, rounding
from optpy.symbolic.traverse import variables

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


def partials_of(problem: ir.Problem) -> tuple[Partials, ...]:
    """The derivatives of each residual, derived once for a problem."""
    found = _DERIVED.get(problem)
    if found is None:
        found = _DERIVED[problem] = tuple(Partials(r) for r in problem.residuals)
    return found


def jacobian(problem: ir.Problem, data: Mapping[str, Any]) -> csr_matrix:
    """See ``Energy.jacobian``."""
    return bound_jacobian(problem, bind(problem, data, np.float64))


def jacobian_rounding(problem: ir.Problem, bound: BoundData) -> csr_matrix:
    """A bound on the rounding errors in the entries of ``bound_jacobian``."""

    def errors(roots: Sequence[Expr], leaf_values: Callable[[Any], Value]) -> list[Value]:
        return rounding(roots, leaf_values, lambda _: np.float64(0))

    return bound_jacobian(problem, bound, errors)


def bound_jacobian(problem: ir.Problem, bound: BoundData, evaluate: Evaluator = evaluate) -> csr_matrix:
    """The Jacobian at data that is bound already, or what else is to be evaluated of its entries.

    Args:
        problem: the residuals and unknowns.
        bound: the data.
        evaluate: makes numbers of the derivatives.
    """
    from scipy.sparse import coo_matrix

    problem = unrolled(problem, bound.sizes)
    columns_of = Columns.of(problem, bound)
    points = [math.prod(bound.sizes[i.dim] for i in r.domain) * len(r.components) for r in problem.residuals]
    first_rows = _first(range(len(points)), points)
    nothing = np.zeros(0, np.int64)
    entries: list[tuple[Integers, Integers, Floats]] = [(nothing, nothing, np.zeros(0))]
    for n, (r, derivatives) in enumerate(zip(problem.residuals, partials_of(problem), strict=True)):
        row = first_rows[n]
        for slab in ir.slabs(r.domain, bound.sizes):
            entries += derivatives.entries(slab, bound, columns_of, row, evaluate=evaluate)
            row += math.prod(slab.shape) * len(r.components)
    rows, columns, values = (np.concatenate([e[k] for e in entries]) for k in range(3))
    shape = (sum(points), columns_of.size)
    # Two reads of one element (X[i] and X[0] at i = 0) meet in one entry.
    return coo_matrix((values, (rows, columns)), shape=shape).tocsr()


def _first(keys: Any, counts: Sequence[int]) -> dict[Any, int]:
    starts = np.concatenate([[0], np.cumsum(counts)])
    return {k: int(n) for k, n in zip(keys, starts, strict=False)}


_DERIVED: Final[WeakKeyDictionary[ir.Problem, tuple[Partials, ...]]] = WeakKeyDictionary()


@final
@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of J: all unknowns, one after the other, by their tangents on manifolds."""

    solved: dict[ir.Field, Booleans]
    """The mask of elements that are solved for: (*dims)."""
    first: dict[ir.Field, int]
    size: int

    @classmethod
    def of(cls, problem: ir.Problem, bound: BoundData) -> Columns:
        """The columns of a problem at the sizes, and with the masks, of bound data."""
        solved = {ir.tangent(u): solved_elements(problem, u, bound) for u in problem.unknowns}
        counts = [s.size * u.channels for u, s in solved.items()]
        return cls(solved, _first(solved, counts), sum(counts))


@final
class Partials:
    """The derivatives of one residual by the reads of unknowns (of their tangents, on manifolds).

    Attributes:
        expressions: one for each component and each read that it depends on.
        pairs: the component and the read that each belongs to.
    """

    def __init__(self, residual: ir.Residual) -> None:
        reads = [v for v in variables(residual.linearised) if ir.is_unknown(v.key)]
        derivative = Derivative(residual.linearised, reads)
        self._components = len(residual.linearised)
        self.pairs: list[tuple[int, Var]] = []
        expressions: list[Expr] = []
        for n, c in enumerate(residual.linearised):
            for v in derivative.variables(c):
                self.pairs.append((n, v))
                expressions.append(derivative.partial(c, v))
        self.expressions = ir.at_zero(expressions)

    def entries(
        self,
        slab: ir.Slab,
        bound: BoundData,
        columns_of: Columns,
        first_row: int,
        expressions: Sequence[Expr] | None = None,
        evaluate: Evaluator = evaluate,
    ) -> list[tuple[Integers, Integers, Floats]]:
        """The entries of J in a slab, by row, column and value: those of each of the expressions.

        Args:
            slab: the part of the residual's domain.
            bound: the data.
            columns_of: the columns of J.
            first_row: the row of the slab's first component.
            expressions: what to evaluate in place of the derivatives, one for each.
            evaluate: what makes numbers of them.
        """
        leaf_values = LeafValues(bound, slab)
        points = np.arange(math.prod(slab.shape), dtype=np.int64)
        found = []
        for (component, v), value in zip(
            self.pairs, evaluate(expressions or self.expressions, leaf_values), strict=True
        ):
            access: ir.Access = v.key
            field = access.field
            index, inside = leaf_values.position(access)
            mask = columns_of.solved[field]
            if not mask.size:  # an unknown on a graph without edges
                found.append((np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)))
                continue
            element = np.ravel_multi_index(index, mask.shape) if index else np.zeros((1,) * len(slab.shape), np.int64)
            kept = np.broadcast_to(inside & mask.ravel()[element], slab.shape).ravel()
            column = columns_of.first[field] + element * field.channels + access.channel
            row = first_row + points * self._components + component
            columns = np.broadcast_to(column, slab.shape).ravel()
            values = np.broadcast_to(value, slab.shape).ravel()
            found.append((row[kept], columns[kept], values[kept]))
        return found
