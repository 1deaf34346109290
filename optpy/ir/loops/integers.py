"""Integers, conditions and operands of the loop IR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

from optpy.ir.fields import Field
from optpy.ir.leaves import Access, InBounds
from optpy.ir.spaces import Extent, LoopVariable
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import Expr

# -- integers ----------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Variable:
    """An integer that a statement has defined; an atom of ``Affine``."""

    name: str

    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True)
class Pitch:
    """Elements from one row of a grid to the next; an atom of ``Affine``."""

    dims: tuple[Extent, ...]

    def __str__(self) -> str:
        return f"pitch({', '.join(map(str, self.dims))})"


@final
@dataclass(frozen=True, slots=True)
class Count:
    """The points of a grid: the product of its sizes."""

    dims: tuple[Extent, ...]

    def __str__(self) -> str:
        return " * ".join(map(str, self.dims)) or "1"


@final
@dataclass(frozen=True, slots=True)
class Flat:
    """``(... (index[0] * extents[0] + index[1]) * extents[1] + ...) * stride``: where a point of a box stands."""

    index: tuple[Integer, ...]
    extents: tuple[Integer, ...] = ()
    stride: int = 1

    def __str__(self) -> str:
        text = str(self.index[0])
        for i, extent in zip(self.index[1:], self.extents, strict=True):
            text = f"({text}) * {extent} + {i}"
        return text if self.stride == 1 else f"({text}) * {self.stride}"


@final
@dataclass(frozen=True, slots=True)
class TableLoad:
    """A number of a table of integers; ``table`` is a key of ``kernels/codegen/tables``."""

    table: Any
    position: Integer

    def __str__(self) -> str:
        return f"{self.table}[{self.position}]"


@final
@dataclass(frozen=True, slots=True)
class MinMax:
    """The smaller, or the larger, of two integers."""

    which: Literal["min", "max"]
    left: Integer
    right: Integer

    def __str__(self) -> str:
        return f"{self.which}({self.left}, {self.right})"


@final
@dataclass(frozen=True, slots=True)
class Select:
    """One of two integers: the first where all conditions hold."""

    conditions: tuple[Condition, ...]
    then: Integer
    otherwise: Integer

    def __str__(self) -> str:
        return f"{self.then} if {all_of(self.conditions)} else {self.otherwise}"


@final
@dataclass(frozen=True, slots=True)
class WholeVectors:
    """A place in a row, moved to where a full vector begins: up or down, by less than a vector."""

    which: Literal["up", "down"]
    place: Affine

    def __str__(self) -> str:
        return f"whole_vectors_{self.which}({self.place})"


Integer = Affine | Count | Flat | TableLoad | MinMax | Select | WholeVectors


# -- conditions --------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Within:
    """``low <= index < dim - high``."""

    index: LoopVariable
    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low} <= {self.index} < {self.index.dim} - {self.high}"


@final
@dataclass(frozen=True, slots=True)
class Less:
    """``left < right``."""

    left: Affine
    right: Affine

    def __str__(self) -> str:
        return f"{self.left} < {self.right}"


@final
@dataclass(frozen=True, slots=True)
class Flag:
    """Whether a variable is not 0; or, where ``value`` is false, whether it is."""

    name: str
    value: bool = True

    def __str__(self) -> str:
        return self.name if self.value else f"not {self.name}"


@final
@dataclass(frozen=True, slots=True)
class InRow:
    """Whether the element ``at + u`` of a grid is a point, no padding of a row; ``column`` is where ``at`` stands."""

    dims: tuple[Extent, ...]

    def __str__(self) -> str:
        return "at + u in a row"


@final
@dataclass(frozen=True, slots=True)
class Holds:
    """A condition of the energy, evaluated before."""

    value: Expr

    def __str__(self) -> str:
        return repr(self.value)


Condition = InBounds | Within | Less | Flag | InRow | Holds


def all_of(conditions: tuple[Condition, ...]) -> str:
    """The text of conditions that must all hold."""
    return " and ".join(map(str, conditions)) or "always"


# -- where numbers are -------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class MemoryOperand:
    """An element in memory; ``address`` counts elements of the field's channel, once it is known."""

    access: Access
    address: Integer | None = None

    @property
    def field(self) -> Field:
        """The field that is read or written."""
        return self.access.field

    def __str__(self) -> str:
        return str(self.access)


@final
@dataclass(frozen=True, slots=True)
class Lane:
    """A number in registers: of a point, or of the ``u``-th of a run of points, each ``stride`` long."""

    name: str
    field: Field
    lane: int
    stride: int | None = None

    def __str__(self) -> str:
        return f"{self.name}[{self.lane}]" if self.stride is None else f"{self.name}[u * {self.stride} + {self.lane}]"


@final
@dataclass(frozen=True, slots=True)
class Load:
    """A guarded read of a leaf; 0 where a guard fails, without a read."""

    operand: MemoryOperand | Lane
    guards: tuple[InBounds, ...] = ()

    def __str__(self) -> str:
        return f"{self.operand} if {all_of(self.guards)} else 0" if self.guards else str(self.operand)
