"""The loop IR by Python, in float64, one statement after the other: slow, for the smallest sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from optpy import ir
from optpy.api.pipeline import Derived
from optpy.energy.data.binding import BoundData
from optpy.energy.derive.routines import solved_field
from optpy.ir import Group, loops
from optpy.kernels.codegen.cuda.program import CudaProgram
from optpy.kernels.codegen.program import ProgramListing
from optpy.kernels.runtime.tables import Connectivity
from optpy.symbolic.affine import Affine, FloorDiv, RowNumber, TableEntry
from optpy.symbolic.expr import Expr
from optpy.symbolic.interpret import Value, evaluate
from optpy.symbolic.inversion import Divides
from tests.support.interpret_routines import Interpreter


class _Continue(Exception):
    """The rest of a loop's body is left out."""


class LoopInterpreter(Interpreter):
    """The memory of a program's kernels at some data; ``run`` runs their loops as they are printed.

    Args:
        derived: an energy's routines, and the program of the CPU or of a GPU that was made of them.
        bound: the data.
    """

    def __init__(self, derived: Derived[ProgramListing] | Derived[CudaProgram], bound: BoundData) -> None:
        super().__init__(derived.routines.groups, bound)
        self._program = derived.listing
        graphs = {key.graph for key in derived.listing.symbols.tables}
        self._tables = {g.name: Connectivity(g, bound.edges[g.name], bound.sizes) for g in graphs}
        self._names: dict[str, Any] = {}
        self._entries: dict[TableEntry, int] = {}
        self._values: dict[Expr, float] = {}
        self._partial: dict[int, float] = {}
        self._local: dict[ir.Field, tuple[int, ...]] = {}

    def run(self, group: Group) -> dict[str, float]:
        """Run the kernels of a group; the totals of their reductions by name."""
        totals: dict[str, float] = {}
        for n in self._program.groups.get(group, ()):
            self._names, self._partial = {f"sum[{k}]": 0.0 for k in range(99)}, {}
            functions = {f.name: f for f in self._program.loops[n]}
            self._functions = functions
            if isinstance(self._program, ProgramListing):
                lists = list(self._program.symbols.lists)
                segments = lists[self._program.program.numbers.lists[n]]
                self._names |= {"first": 0, "last": len([*self._segments(segments.dims, segments.solved_only)])}
            self._block(self._program.loops[n][-1].body)
            for name, maximum, value in self._sums(n):
                totals[name] = max(totals.get(name, 0.0), value) if maximum else totals.get(name, 0.0) + value
        return totals

    def _sums(self, kernel: int) -> Iterator[tuple[str, bool, float]]:
        program, reductions = self._program, self._program.kernels[kernel].border.reductions
        if isinstance(program, ProgramListing):
            first = program.program.numbers.reductions[kernel]
            yield from ((r.name, r.maximum, self._partial.get(first + k, 0.0)) for k, r in enumerate(reductions))
        else:
            (phase,) = (p for phases in program.phases.values() for p in phases if kernel in p.kernels)
            sums = list(phase.sums)
            yield from ((r.name, r.maximum, self._names[f"sum[{sums.index((r.name, r.maximum))}]"]) for r in reductions)

    # -- integers and conditions ---------------------------------------------------------------------------------------

    def _integer(self, value: loops.Integer) -> int:
        match value:
            case Affine():
                return value.constant + sum(c * self._atom(atom) for atom, c in value.terms)
            case loops.Flat():
                total = self._integer(value.index[0])
                for i, extent in zip(value.index[1:], value.extents, strict=True):
                    total = total * self._integer(extent) + self._integer(i)
                return total * value.stride
            case loops.Count():
                return math.prod(self._bound.sizes[d] for d in value.dims)
            case loops.TableLoad():
                table = self._tables[value.table.graph.name].table(value.table)
                position = self._integer(value.position)
                assert 0 <= position < len(table)
                return int(table[position])
            case loops.MinMax():
                pair = self._integer(value.left), self._integer(value.right)
                return min(pair) if value.which == "min" else max(pair)
            case loops.Select():
                return self._integer(value.then if self._all(value.conditions) else value.otherwise)
            case loops.WholeVectors():
                place = self._integer(value.place) + (value.which == "up")
                return place // 2 * 2  # vectors of two numbers: small grids have an interior, too

    def _atom(self, atom: Any) -> int:
        match atom:
            case ir.Extent():
                return self._bound.sizes[atom]
            case FloorDiv():
                return self._integer(atom.numerator) // atom.denominator
            case RowNumber():
                counts = [self._bound.sizes[d] for d in atom.table.counted]
                at = [self._integer(a) for a in atom.index]
                inside = all(0 <= i < n for i, n in zip(at, counts, strict=True))
                return int(np.ravel_multi_index(at, counts)) if inside else -1
            case TableEntry():
                return self._entries[atom]
            case loops.Pitch():
                return self._bound.sizes[atom.dims[-1]]
        return int(self._names[str(atom)])

    def _all(self, conditions: tuple[loops.Condition, ...]) -> bool:
        return all(map(self._condition, conditions))

    def _condition(self, c: loops.Condition) -> bool:
        match c:
            case ir.InBounds():
                return 0 <= self._integer(c.index) < c.dim.at(self._bound.sizes)
            case loops.Within():
                return c.low <= int(self._names[str(c.index)]) < self._bound.sizes[c.index.dim] - c.high
            case loops.Less():
                return self._integer(c.left) < self._integer(c.right)
            case loops.Flag():
                return bool(self._names[c.name]) is c.value
            case loops.InRow():
                count = math.prod(self._bound.sizes[d] for d in c.dims)
                return bool(self._names["at"] + self._names["u"] < count)
            case loops.Holds():
                return bool(self._values[c.value])

    # -- numbers -------------------------------------------------------------------------------------------------------

    def _element(self, access: ir.Access) -> tuple[int, int]:
        flat = 0
        shape = self._local.get(access.field) or [self._bound.sizes[d] for d in access.field.dims]
        for affine, size in zip(access.index, shape, strict=True):
            index = self._integer(affine)
            assert 0 <= index < size, f"{access} is read or stored outside"
            flat = flat * size + index
        return flat, access.channel

    def _read(self, operand: loops.MemoryOperand | loops.Lane) -> float:
        if isinstance(operand, loops.MemoryOperand):
            return float(self.field(operand.access.field)[self._element(operand.access)])
        return float(self._names[operand.name][self._lane(operand)])

    def _lane(self, lane: loops.Lane) -> int:
        return lane.lane if lane.stride is None else self._names["u"] * lane.stride + lane.lane

    def _value_of(self, key: Any, reads: dict[ir.Access, loops.Load]) -> Value:
        match key:
            case ir.Access():
                return self._read(reads[key].operand) if self._all(reads[key].guards) else 0.0
            case ir.Plane():
                return self.field(key.field)[:, key.channel]
            case ir.LocalName() | ir.Hoisted():
                return float(self._names[key.name])
            case ir.Scalar():
                return float(self._bound.params[key.name])
            case ir.IndexValue():
                return float(self._integer(key.index))
            case ir.InBounds():
                return float(self._condition(key))
            case ir.IndexCondition():
                c = key.condition
                if isinstance(c, Divides):
                    return float(self._integer(c.numerator) % c.denominator == 0)
                return float(self._integer(c.value) == 0)
        raise AssertionError(f"no value for {key}")

    # -- statements ----------------------------------------------------------------------------------------------------

    def _block(self, block: loops.Block) -> None:
        for s in block:
            self._statement(s)

    def _statement(self, s: loops.Statement) -> None:
        names = self._names
        match s:
            case loops.FunctionCall():
                whole = {name: names[name] for name in ("first", "last")}
                part = {"first": names[str(s.first)], "last": names[str(s.last)]}
                self._step(part, self._functions[s.name].body)
                self._names |= whole
            case loops.Let():
                names[s.name] = self._integer(s.value)
            case loops.LetNumber():
                names[s.name] = self._values[s.value]
            case loops.LetFlag():
                names[s.name] = self._all(s.conditions)
            case loops.Alloc():
                self._local[s.field] = s.extents
                self._memory[s.field] = np.full((math.prod(s.extents), 1), 0.0 if s.cleared else np.nan)
            case loops.LetSum():
                names[s.name] = self._read(s.operand)
            case loops.Lookup():
                self._entries[s.entry] = self._integer(s.value) if s.guard is None or self._condition(s.guard) else -1
            case loops.Unravel():
                self._unravel(s.domain, names[s.number])
            case loops.Evaluate():
                reads = dict(s.reads)
                found = evaluate(s.values, lambda key: self._value_of(key, reads))
                self._values = {e: float(np.asarray(v)) for e, v in zip(s.values, found, strict=True)}
            case loops.Store():
                if self._all(s.guards):
                    self._store(s)
            case loops.Accumulator():
                names[s.name] = 0.0
            case loops.Accumulate():
                if s.guard is None or self._condition(s.guard):
                    value = self._values[s.value]
                    names[s.name] = max(names[s.name], abs(value)) if s.maximum else names[s.name] + value
            case loops.Partial():
                before = self._partial.get(s.number, 0.0)
                self._partial[s.number] = max(before, names[s.name]) if s.maximum else before + names[s.name]
            case loops.Declare() | loops.Fetch() | loops.OverLanes():
                pass
            case loops.Skip():
                if not self._condition(s.flag):
                    raise _Continue
            case loops.MaskLoad():
                names[s.name] = self._solved(s.domain, self._integer(s.row))
            case _:
                self._vector(s)

    def _vector(self, s: loops.Statement) -> None:
        """What moves several numbers by one instruction."""
        names = self._names
        match s:
            case loops.PackLoad():
                element, channel = self._element(s.operand.access) if self._all(s.guards) else (0, None)
                row = np.append(self.field(s.operand.access.field)[element], np.full(s.width, np.nan))
                names[s.name] = np.zeros(s.width) if channel is None else row[channel : channel + s.width]
            case loops.Zeros():
                names[s.name] = np.zeros(s.length * (s.stride or 1))
            case loops.PackStore():
                element, channel = self._element(s.operand.access)
                row = self.field(s.operand.access.field)[element]
                row[channel : channel + s.width] = names[s.name][: len(row) - channel]
            case loops.PackAdd():
                if self._all(s.guards):
                    element, channel = self._element(s.operand.access)
                    for lane in s.lanes:
                        self.field(s.operand.access.field)[element][channel + lane] += names[s.name][lane]
            case loops.RunLoad():
                names[s.name] = np.concatenate([self._point_of_run(s, u) for u in range(s.width)])
            case loops.RunStore():
                self._store_run(s)
            case _:
                self._nest(s)

    def _store(self, s: loops.Store) -> None:
        value = self._values[s.value]
        if isinstance(s.operand, loops.Lane):
            self._names[s.operand.name][self._lane(s.operand)] = value
            return
        memory, at = self.field(s.operand.access.field), self._element(s.operand.access)
        memory[at] = {"=": value, "+=": memory[at] + value, "max=": max(memory[at], value)}[s.update]

    def _point_of_run(self, s: loops.RunLoad | loops.RunStore, u: int) -> Any:
        memory = self.field(s.access.field)
        row = memory[min(self._names["at"] + u, len(memory) - 1)]
        return np.append(row, np.full(s.stride, np.nan))[s.access.channel : s.access.channel + s.stride]

    def _store_run(self, s: loops.RunStore) -> None:
        memory, channel = self.field(s.access.field), s.access.channel
        for u, row in enumerate(self._names[s.name].reshape(s.width, s.stride)):
            if self._names["at"] + u < len(memory):
                target = memory[self._names["at"] + u]
                target[channel : channel + s.stride] = row[: len(target) - channel]

    # -- nests ---------------------------------------------------------------------------------------------------------

    def _nest(self, s: loops.Statement) -> None:
        names = self._names
        match s:
            case loops.Loop():
                names |= {"lane": 0}
                for value in range(self._integer(s.low), self._integer(s.high), s.step):
                    self._step({str(s.variable): value}, s.body)
            case loops.If():
                self._block(s.then if self._all(s.conditions) else s.otherwise)
            case loops.BodyStage():
                self._block(s.body)
            case loops.Segments():
                dims = list(self._program.symbols.lists)[s.number].dims
                only = list(self._program.symbols.lists)[s.number].solved_only
                for row, begin, end in [*self._segments(dims, only)][names["first"] : names["last"]]:
                    self._step(dict(row=row, begin=begin, end=end, later=row), s.body)
            case loops.Tiles() | loops.ThreadGroups() | loops.GridStride():
                domain = (
                    s.domain if not isinstance(s, loops.GridStride) else (s.index,) if s.index.name != "only" else ()
                )
                length = self._bound.sizes[domain[-1].dim] if domain else 1
                last = str(domain[-1]) if domain else "only"
                for at in range(math.prod(self._bound.sizes[i.dim] for i in domain)):
                    names |= {"lane": 0, "row": at // length, last: at % length}
                    if not isinstance(s, loops.Tiles) or s.mask is None or self._solved(domain, at // length):
                        self._step({}, s.body)
            case loops.Vectors():
                dims = tuple(i.dim for i in s.domain)
                solved = self.field(solved_field(dims))[:, 0] if s.mask is not None else None
                for at in range(0, math.prod(self._bound.sizes[d] for d in dims), s.width):
                    if solved is None or solved[at : at + s.width].any():
                        self._step(dict(at=at, W=s.width), s.body)
            case _:
                raise AssertionError(f"no meaning for {s}")

    def _step(self, names: dict[str, Any], body: loops.Block) -> None:
        self._names |= names
        with suppress(_Continue):
            self._block(body)

    def _unravel(self, domain: ir.Domain, number: int) -> None:
        for i in reversed(domain):
            number, self._names[str(i)] = divmod(number, self._bound.sizes[i.dim])

    def _solved(self, domain: ir.Domain, row: int) -> bool:
        dims = tuple(i.dim for i in domain)
        last = self._names[str(domain[-1])] if domain else 0
        length = self._bound.sizes[dims[-1]] if dims else 1
        return bool(self.field(solved_field(dims))[row * length + last, 0])

    def _segments(self, dims: tuple[ir.Extent, ...], solved_only: bool) -> Iterator[tuple[int, int, int]]:
        """Runs of points of one row: two to a row, or each point that is solved for alone."""
        shape = [self._bound.sizes[d] for d in dims]
        length = shape[-1] if shape else 1
        solved_only = solved_only and solved_field(dims) in self._memory
        solved = self.field(solved_field(dims))[:, 0] != 0 if solved_only else None
        for row in range(math.prod(shape) // length if length else 0):
            if solved is None:
                yield from ((row, 0, length // 2), (row, length // 2, length))
            else:
                yield from ((row, at, at + 1) for at in range(length) if solved[row * length + at])
