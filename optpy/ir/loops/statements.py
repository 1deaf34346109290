"""Plain statements of the loop IR: those with no block inside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, final

from optpy.ir.fields import Field
from optpy.ir.leaves import Access, InBounds, Leaf, Scalar
from optpy.ir.loops.integers import (
    Condition,
    Flag,
    Integer,
    Lane,
    Load,
    MemoryOperand,
    Pitch,
    TableLoad,
    Variable,
    all_of,
)
from optpy.ir.spaces import Domain, Extent
from optpy.symbolic.affine import TableEntry
from optpy.symbolic.expr import Expr
from optpy.symbolic.traverse import variables

Update = Literal["=", "+=", "max="]
"""The operations by which a new value meets the old one."""


@final
@dataclass(frozen=True, slots=True)
class Declare:
    """A name for what the context holds: a size, a pitch, a table, an array, a number given at run time, a mask."""

    what: Extent | Pitch | TablePointer | ChannelPointer | Scalar | Mask

    def __str__(self) -> str:
        return f"declare {self.what}"


@final
@dataclass(frozen=True, slots=True)
class TablePointer:
    """A pointer to a table of integers."""

    key: Any

    def __str__(self) -> str:
        return str(self.key)


@final
@dataclass(frozen=True, slots=True)
class ChannelPointer:
    """A pointer to one channel of a field in memory.

    Attributes:
        writable: whether it is stored or added to.
        instead: whose memory is taken in its place where the caller says so (``on_delta``).
        adjacent: whether the channels of a point are known to stand side by side.
    """

    field: Field
    channel: int
    writable: bool
    instead: Field | None = None
    adjacent: bool = False

    def __str__(self) -> str:
        return f"{self.field}.{self.channel}{' (written)' if self.writable else ''}"


@final
@dataclass(frozen=True, slots=True)
class Mask:
    """The condition that something is solved for at a point of a grid."""

    field: Field

    def __str__(self) -> str:
        return str(self.field)


@final
@dataclass(frozen=True, slots=True)
class Alloc:
    """Local memory of fixed extents for a field of one channel, all of it 0 if it is cleared."""

    field: Field
    extents: tuple[int, ...]
    cleared: bool = True

    def __str__(self) -> str:
        return f"alloc {self.field}[{', '.join(map(str, self.extents))}]"


@final
@dataclass(frozen=True, slots=True)
class Let:
    """``name = value``, an integer."""

    name: str
    value: Integer

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


@final
@dataclass(frozen=True, slots=True)
class LetNumber:
    """``name = value``, a number that has been evaluated: a leaf ``Hoisted`` of what follows."""

    name: str
    value: Expr

    def __str__(self) -> str:
        return f"{self.name} = {self.value!r}"


@final
@dataclass(frozen=True, slots=True)
class LetFlag:
    """``name``: whether all conditions hold."""

    name: str
    conditions: tuple[Condition, ...]

    def __str__(self) -> str:
        return f"{self.name} = {all_of(self.conditions)}"


@final
@dataclass(frozen=True, slots=True)
class LetSum:
    """``name``: a local sum that stands in memory."""

    name: str
    operand: MemoryOperand

    def __str__(self) -> str:
        return f"{self.name} = {self.operand}"


@final
@dataclass(frozen=True, slots=True)
class Unravel:
    """The loop variables of a grid from the number of a point in C order."""

    domain: Domain
    number: str

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.domain))} = unravel({self.number})"


@final
@dataclass(frozen=True, slots=True)
class Lookup:
    """``name``: the entry of a graph's table; -1, outside of every grid, where its row is outside."""

    entry: TableEntry
    name: str
    value: TableLoad
    guard: InBounds | None

    def __str__(self) -> str:
        return f"{self.name} = {self.entry}{f' if {self.guard} else -1' if self.guard else ''}"


@final
@dataclass(frozen=True, slots=True)
class Evaluate:
    """The values of expressions, each shared node computed once; what follows in the block refers to them.

    Attributes:
        values: the expressions.
        prefix: of the names of intermediate values.
        leaves: of the expressions, each once.
        reads: where each ``Access`` among the leaves is read.
    """

    values: tuple[Expr, ...]
    prefix: str
    leaves: tuple[Leaf, ...]
    reads: tuple[tuple[Access, Load], ...] = ()

    def __str__(self) -> str:
        reads = [f"  {a} is {load}" for a, load in self.reads if load.guards or isinstance(load.operand, Lane)]
        return "\n".join([f"evaluate {self.prefix}, {len(self.values)} values of {len(self.leaves)} leaves", *reads])


def evaluate(values: Iterable[Expr], prefix: str) -> Evaluate:
    """The evaluation of expressions, with nothing known of where their leaves are read."""
    values = tuple(values)
    return Evaluate(values, prefix, tuple(v.key for v in variables(values)))


@final
@dataclass(frozen=True, slots=True)
class Store:
    """``operand = value``, ``operand += value``, ``operand = max(operand, value)``, where no guard fails."""

    operand: MemoryOperand | Lane
    value: Expr
    update: Update = "="
    atomic: bool = False
    guards: tuple[InBounds, ...] = ()

    def __str__(self) -> str:
        when = f"if {all_of(self.guards)}: " if self.guards else ""
        return f"{when}{'atomic ' if self.atomic else ''}{self.operand} {self.update} {self.value!r}"


@final
@dataclass(frozen=True, slots=True)
class Total:
    """The value joins the routine's n-th reduction: a sum, or the largest magnitude."""

    number: int
    value: Expr
    maximum: bool

    def __str__(self) -> str:
        return f"{'max' if self.maximum else 'sum'} {self.number}: {self.value!r}"


@final
@dataclass(frozen=True, slots=True)
class Accumulator:
    """A variable, 0 at first: of a sum, in double; or of the largest magnitude."""

    name: str
    maximum: bool = False

    def __str__(self) -> str:
        return f"{self.name} = 0"


@final
@dataclass(frozen=True, slots=True)
class Accumulate:
    """``name += value``, or ``name = max(name, |value|)``, which keeps NaN; where no guard fails."""

    name: str
    value: Expr
    maximum: bool = False
    guard: Flag | None = None

    def __str__(self) -> str:
        when = f"if {self.guard}: " if self.guard else ""
        return f"{when}{self.name} {'max=' if self.maximum else '+='} {self.value!r}"


@final
@dataclass(frozen=True, slots=True)
class Partial:
    """The n-th reduction over a segment is left for its total: what the accumulator has, joined to what is there."""

    number: int
    name: str
    maximum: bool
    join: bool

    def __str__(self) -> str:
        return f"partial[{self.number}] {'joins' if self.join else '='} {self.name}"


@final
@dataclass(frozen=True, slots=True)
class OverLanes:
    """The sum of a variable over the threads that work on one point."""

    name: str

    def __str__(self) -> str:
        return f"{self.name} = over_lanes({self.name})"


@final
@dataclass(frozen=True, slots=True)
class MaskLoad:
    """``name``: whether something is solved for in a ``row`` of a grid, at its last loop variable."""

    name: str
    mask: Mask
    domain: Domain
    row: Integer

    def __str__(self) -> str:
        return f"{self.name} = {self.mask} in row {self.row}"


@final
@dataclass(frozen=True, slots=True)
class Skip:
    """This point of a loop is left out unless a flag is set."""

    flag: Flag

    def __str__(self) -> str:
        return f"skip unless {self.flag}"


@final
@dataclass(frozen=True, slots=True)
class Fetch:
    """The cache line of an element is fetched, for a later read or store; outside of memory, nothing happens."""

    operand: MemoryOperand
    stored: bool

    def __str__(self) -> str:
        return f"fetch {self.operand}{' (to be written)' if self.stored else ''}"


@final
@dataclass(frozen=True, slots=True)
class FunctionCall:
    """Another function of the same arguments, for the segments from ``first`` below ``last``."""

    name: str
    first: Variable
    last: Variable

    def __str__(self) -> str:
        return f"call {self.name}[{self.first}:{self.last}]"
