"""Declares names at a function's beginning for all that it uses of its context."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from optpy.ir import Access, Extent, Field, InBounds, IndexCondition, IndexValue, Leaf, Plane, Scalar, loops
from optpy.symbolic.affine import Affine, FloorDiv, RowNumber
from optpy.symbolic.inversion import Divides


def declare(function: loops.Function) -> loops.Function:
    """Put the declarations of all sizes, pitches, tables, arrays, masks and scalars that the function uses first.

    Those of a stage's arrays come first in the stage.
    """
    used, anywhere = _Uses(), _Uses()
    written: set[Field] = set()
    local: set[Field] = set()
    for s in loops.walk(function.body):
        anywhere.statement(s)
        match s:
            case (
                loops.Store(operand=loops.MemoryOperand(access=access))
                | loops.PackStore(operand=loops.MemoryOperand(access=access))
                | loops.PackAdd(operand=loops.MemoryOperand(access=access))
            ):
                written.add(access.field)
            case loops.RunStore():
                written.add(s.access.field)
            case loops.Alloc():
                local.add(s.field)

    def arrays(used: _Uses) -> list[loops.Statement]:
        pointers = (loops.ChannelPointer(f, channel, f in written) for f, channel in used.arrays if f not in local)
        return [*map(loops.Declare, pointers)]

    def rule(s: loops.Statement) -> loops.Block:
        if not isinstance(s, loops.BodyStage):
            return (s,)
        own = _Uses()
        own.block(s.body)
        return (replace(s, body=(*arrays(own), *s.body)),)

    used.block(function.body)
    found = anywhere.found
    declared = [x for kind in (Extent, loops.Pitch, loops.TablePointer) for x in found if isinstance(x, kind)]
    given = [x for kind in (Scalar, loops.Mask) for x in found if isinstance(x, kind)]
    head = (*map(loops.Declare, declared), *arrays(used), *map(loops.Declare, given))
    return replace(function, body=(*head, *loops.rewrite(function.body, rule)))


class _Uses:
    """Collects what statements name.

    Attributes:
        found: sizes, pitches, tables, scalars and masks, in the order in which they were met.
        arrays: fields and their channels.
    """

    def __init__(self) -> None:
        self.found: dict[Any, None] = {}
        self.arrays: dict[tuple[Field, int], None] = {}

    def block(self, block: loops.Block) -> None:
        """A block with what is inside it, but for stages."""
        for s in block:
            self.statement(s)
            if not isinstance(s, loops.BodyStage):
                for inner in loops.blocks_of(s).values():
                    self.block(inner)

    def statement(self, s: loops.Statement) -> None:
        match s:
            case loops.Evaluate():
                for _, load in s.reads:
                    self._operand(load.operand)
                    self._conditions(load.guards)
                self._leaves(s.leaves)
            case loops.Store():
                self._operand(s.operand)
                self._conditions(s.guards)
            case loops.LetSum() | loops.Fetch() | loops.PackLoad() | loops.PackStore() | loops.PackAdd():
                self._operand(s.operand)
                self._conditions(s.guards if isinstance(s, loops.PackLoad | loops.PackAdd) else ())
            case loops.RunLoad() | loops.RunStore():
                self.arrays[s.access.field, s.access.channel] = None
            case loops.Let():
                self._integer(s.value)
            case loops.LetFlag() | loops.If():
                self._conditions(s.conditions)
            case loops.Lookup():
                self._integer(s.value)
                self._conditions(() if s.guard is None else (s.guard,))
            case loops.Loop():
                self._integer(s.low)
                self._integer(s.high)
            case loops.Unravel():
                self._sizes(i.dim for i in s.domain[1:])
            case loops.GridStride():
                self._integer(s.count)
            case loops.Tiles() | loops.ThreadGroups():
                self._sizes(i.dim for i in s.domain)
                self._mask(s.mask if isinstance(s, loops.Tiles) else None)
            case loops.Vectors():
                self._sizes(i.dim for i in s.domain[:-1])
                self.found[loops.Pitch(tuple(i.dim for i in s.domain))] = None
                self._mask(s.mask)
            case loops.MaskLoad():
                self._mask(s.mask)
                self._integer(s.row)

    def _sizes(self, dims: Iterable[Extent]) -> None:
        self.found |= dict.fromkeys(dims)

    def _mask(self, mask: loops.Mask | None) -> None:
        if mask is not None:
            self.found[mask] = None
            if len(mask.field.dims) > 1:
                self.found[loops.Pitch(mask.field.dims)] = None

    def _operand(self, operand: loops.MemoryOperand | loops.Lane) -> None:
        if isinstance(operand, loops.MemoryOperand):
            assert isinstance(operand.access, Access)
            assert operand.address is not None
            self.arrays[operand.access.field, operand.access.channel] = None
            self._integer(operand.address)

    def _integer(self, value: loops.Integer) -> None:
        match value:
            case Affine():
                for atom, _ in value.terms:
                    if isinstance(atom, Extent | loops.Pitch):
                        self.found[atom] = None
                    elif isinstance(atom, FloorDiv):
                        self._integer(atom.numerator)
                    elif isinstance(atom, RowNumber):
                        self._sizes(atom.table.counted)
                        for along in atom.index:
                            self._integer(along)
            case loops.Flat():
                for part in (*value.index, *value.extents):
                    self._integer(part)
            case loops.TableLoad():
                self.found[loops.TablePointer(value.table)] = None
                self._integer(value.position)
            case loops.Count():
                self._sizes(value.dims)
            case loops.MinMax():
                self._integer(value.left)
                self._integer(value.right)
            case loops.Select():
                self._conditions(value.conditions)
                self._integer(value.then)
                self._integer(value.otherwise)
            case loops.WholeVectors():
                self._integer(value.place)

    def _conditions(self, conditions: Iterable[loops.Condition]) -> None:
        for c in conditions:
            match c:
                case InBounds():
                    self._integer(c.index)
                    self._integer(c.dim.length)
                case loops.Within():
                    self.found[c.index.dim] = None
                case loops.Less():
                    self._integer(c.left)
                    self._integer(c.right)
                case loops.InRow():
                    self._sizes(c.dims[-1:])
                    self.found[loops.Pitch(c.dims)] = None

    def _leaves(self, leaves: Iterable[Leaf]) -> None:
        for key in leaves:
            match key:
                case Scalar():
                    self.found[key] = None
                case Plane():
                    self.arrays[key.field, key.channel] = None
                case InBounds():
                    self._conditions((key,))
                case IndexValue():
                    self._integer(key.index)
                case IndexCondition():
                    c = key.condition
                    self._integer(c.numerator if isinstance(c, Divides) else c.value)
