"""Routines by NumPy, in float64: stores, atomic additions, sums over edges and reductions, as the IR defines them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optpy import ir
from optpy.energy.data.binding import BoundData
from optpy.energy.derive.routines import solved_field
from optpy.kernels.codegen.symbol_table import segment_list
from optpy.symbolic.affine import Affine, FloorDiv, RowNumber, TableEntry
from optpy.symbolic.expr import Expr
from optpy.symbolic.interpret import evaluate
from optpy.symbolic.inversion import Divides

Real = NDArray[np.float64]
Whole = NDArray[np.int64]


class Points:
    """A list of points: the values of loop variables, and of local sums, at each of them.

    Args:
        bound: sizes and edges.
        values: of each loop variable.
        count: of the points.
    """

    def __init__(self, bound: BoundData, values: Mapping[ir.LoopVariable, Whole], count: int) -> None:
        self.bound = bound
        self.values = dict(values)
        self.count = count
        self.locals: dict[str, Real] = {}

    def number(self, affine: Affine) -> Whole:
        """An affine index at every point."""
        total = np.full(self.count, affine.constant, np.int64)
        for atom, c in affine.terms:
            total += c * self._atom(atom)
        return total

    def _atom(self, atom: Any) -> Whole:
        match atom:
            case ir.Extent():
                return np.full(self.count, self.bound.sizes[atom], np.int64)
            case ir.LoopVariable():
                return self.values[atom]
            case FloorDiv():
                return self.number(atom.numerator) // atom.denominator
            case RowNumber():
                flat, inside = np.zeros(self.count, np.int64), np.ones(self.count, np.bool_)
                for a, dim in zip(atom.index, atom.table.counted, strict=True):
                    at, n = self.number(a), self.bound.sizes[dim]
                    flat, inside = flat * n + at, inside & (at >= 0) & (at < n)
                return np.where(inside, flat, -1)
            case TableEntry():
                edges, row = self.bound.edges[atom.table.name], self.number(atom.row)
                found, inside = np.full(self.count, -1, np.int64), (row >= 0) & (row < len(edges))
                found[inside] = edges[row[inside], atom.column]
                return found
        raise AssertionError(f"no number for {atom}")

    def place(self, access: ir.Access) -> tuple[Whole, NDArray[np.bool_]]:
        """The element of an access, counted in C order (0 outside), and where it is inside the field."""
        flat, inside = np.zeros(self.count, np.int64), np.ones(self.count, np.bool_)
        for affine, dim in zip(access.index, access.field.dims, strict=True):
            index, size = self.number(affine), self.bound.sizes[dim]
            inside &= (index >= 0) & (index < size)
            flat = flat * size + index
        return np.where(inside, flat, 0), inside


class Interpreter:
    """The memory of an energy's routines at some data.

    Args:
        groups: all routines.
        bound: the data.
    """

    def __init__(self, groups: Mapping[ir.Group, Sequence[ir.Routine]], bound: BoundData) -> None:
        self._groups = groups
        self._bound = bound
        self._memory: dict[ir.Field, Real] = {}

    def field(self, f: ir.Field) -> Real:
        """A field as (elements in C order, channels), to read and to write; 0 at first where it is no data."""
        if f not in self._memory:
            count = int(np.prod([self._bound.sizes[d] for d in f.dims], dtype=np.int64))
            data = self._bound.arrays[f.name] if f.role in (ir.Role.UNKNOWN, ir.Role.DATA) else np.zeros(1)
            self._memory[f] = np.zeros((count, f.channels))
            self._memory[f][...] = data.reshape(-1, f.channels if f.role in (ir.Role.UNKNOWN, ir.Role.DATA) else 1)
        return self._memory[f]

    def run(self, group: ir.Group) -> dict[str, float]:
        """Run the routines of a group; the totals of their reductions by name.

        Raises:
            AssertionError: a routine relies on what an earlier one has written, with no ``prepares`` in between.
        """
        totals: dict[str, float] = {}
        stored: set[ir.Field] = set()
        added: set[ir.Field] = set()
        for routine in self._groups.get(group, ()):
            ir.verify(routine)
            own = {s.target.field for s in routine.assignments}
            adds = {x.target.field for x in routine.atomic_adds}
            early = (stored | added) & ({a.field for a in routine.accesses()} | own) | stored & adds
            assert not early, f"{routine.name} does not wait for {early}"
            stored, added = (set(), set()) if routine.prepares else (stored | own, added | adds)
            for reduction, value in self._run(routine, group.task.over_unknowns):
                before = totals.get(reduction.name, 0.0)
                totals[reduction.name] = max(before, value) if reduction.maximum else before + value
        return totals

    def _run(self, routine: ir.Routine, solved_only: bool) -> list[tuple[ir.Reduce, float]]:
        points = self._visited(routine, solved_only)
        for x in routine.locals:
            self._sum(x, points)
        stores, adds = routine.assignments, routine.atomic_adds
        outer = [s.value for s in stores] + [x.value for x in adds] + [r.value for r in routine.reductions]
        values = self._evaluate(outer, points)
        for store, value in zip(stores, values, strict=False):
            place, inside = points.place(store.target)
            assert inside.all()
            self.field(store.target.field)[place, store.target.channel] = value
        for addition, value in zip(adds, values[len(stores) :], strict=False):
            target = addition.target
            place, inside = points.place(target)
            np.add.at(self.field(target.field)[:, target.channel], place[inside], value[inside])
        reduced = values[len(stores) + len(adds) :]
        return [
            (r, float(np.abs(v).max(initial=0) if r.maximum else v.sum()))
            for r, v in zip(routine.reductions, reduced, strict=True)
        ]

    def _visited(self, routine: ir.Routine, solved_only: bool) -> Points:
        """The points of the routine's list; of those that may be left out, none is visited."""
        dims = tuple(i.dim for i in routine.domain)
        shape = [self._bound.sizes[d] for d in dims]
        values = [v.ravel() for v in np.indices(shape, np.int64)]
        count = int(np.prod(shape, dtype=np.int64))
        if segment_list(routine, solved_only).solved_only and solved_field(dims) in self._memory:
            solved = self.field(solved_field(dims))[:, 0] != 0
            values, count = [v[solved] for v in values], int(solved.sum())
        return Points(self._bound, dict(zip(routine.domain, values, strict=True)), count)

    def _sum(self, x: ir.LocalSum, points: Points) -> None:
        """The local sums at every point, one after the other."""
        (condition,) = self._evaluate([x.condition], points)
        for name in x.names:
            points.locals[name] = np.zeros(points.count)
        for n in np.flatnonzero(condition):
            at = {i: v[n : n + 1] for i, v in points.values.items()}
            inner = self._loops(x.loops, Points(self._bound, at, 1))
            for name, value in zip(x.names, self._evaluate(x.values, inner), strict=True):
                points.locals[name][n] = value.sum()

    def _loops(self, loops: Sequence[ir.SumLoop], point: Points) -> Points:
        ranges = [self._range(k, point) for k in loops]
        combined = np.array(list(itertools.product(*ranges)), np.int64).reshape(-1, len(loops))
        count = len(combined)
        values = {i: np.repeat(v, count) for i, v in point.values.items()}
        values |= {ir.loop_variable(k): combined[:, n] for n, k in enumerate(loops)}
        return Points(self._bound, values, count)

    def _range(self, loop: ir.SumLoop, point: Points) -> Whole:
        if isinstance(loop, ir.LoopVariable):
            return np.arange(loop.dim.at(self._bound.sizes))
        columns = self._bound.edges[loop.graph.name][:, list(loop.graph.columns_of(loop.slot))]
        return np.flatnonzero((columns == [point.number(a)[0] for a in loop.at]).all(axis=1))

    def _evaluate(self, roots: Sequence[Expr], points: Points) -> list[Real]:
        values = evaluate(roots, lambda key: self._leaf(key, points))
        return [np.broadcast_to(v, (points.count,)) for v in values]

    def _leaf(self, key: Any, points: Points) -> Real | float:
        match key:
            case ir.Access():
                place, inside = points.place(key)
                field = self.field(key.field)
                inside &= len(field) > 0
                found = np.zeros(points.count)
                found[inside] = field[place[inside], key.channel]
                return found
            case ir.Plane():
                return self.field(key.field)[:, key.channel].reshape([self._bound.sizes[d] for d in key.field.dims])
            case ir.LocalName():
                return points.locals[key.name]
            case ir.Scalar():
                return float(self._bound.params[key.name])
            case ir.IndexValue():
                return points.number(key.index).astype(np.float64)
            case ir.InBounds():
                index = points.number(key.index)
                return ((index >= 0) & (index < key.dim.at(self._bound.sizes))).astype(np.float64)
            case ir.IndexCondition():
                c = key.condition
                rest = points.number(c.numerator) % c.denominator if isinstance(c, Divides) else points.number(c.value)
                return np.where(rest == 0, 1.0, 0.0)
        raise AssertionError(f"no value for {key}")
