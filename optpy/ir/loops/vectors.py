"""Statements of the loop IR that move several numbers by one instruction, on GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from optpy.ir.fields import Field
from optpy.ir.leaves import Access, InBounds
from optpy.ir.loops.integers import MemoryOperand, all_of


@final
@dataclass(frozen=True, slots=True)
class PackLoad:
    """``name``: ``width`` numbers from ``operand`` on, neighbouring channels of a point; 0 where a guard fails."""

    name: str
    operand: MemoryOperand
    width: int
    guards: tuple[InBounds, ...] = ()

    def __str__(self) -> str:
        when = f" if {all_of(self.guards)} else 0" if self.guards else ""
        return f"{self.name} = {self.width} of {self.operand}{when}"


@final
@dataclass(frozen=True, slots=True)
class Zeros:
    """``name``: numbers of a field in registers, to be stored together.

    Attributes:
        length: how many.
        stride: numbers of each point where those of several points are taken at a time; else None.
        cleared: whether all must be 0 at first, as padding among them is stored, too.
    """

    name: str
    field: Field
    length: int
    stride: int | None = None
    cleared: bool = True

    def __str__(self) -> str:
        return f"{self.name} = {self.length} numbers of {self.field}"


@final
@dataclass(frozen=True, slots=True)
class PackStore:
    """``width`` numbers from ``operand`` on are those of ``name``."""

    name: str
    operand: MemoryOperand
    width: int

    def __str__(self) -> str:
        return f"{self.width} of {self.operand} = {self.name}"


@final
@dataclass(frozen=True, slots=True)
class PackAdd:
    """To ``width`` numbers from ``operand`` on those of ``name`` are added, by atomic additions, where no guard fails.

    Attributes:
        lanes: which of them there are; the others are 0.
    """

    name: str
    operand: MemoryOperand
    width: int
    lanes: tuple[int, ...]
    guards: tuple[InBounds, ...] = ()

    def __str__(self) -> str:
        when = f"if {all_of(self.guards)}: " if self.guards else ""
        return f"{when}atomic {self.width} of {self.operand} += {self.name}"


@final
@dataclass(frozen=True, slots=True)
class RunLoad:
    """``name``: the numbers of ``width`` points from the element ``at`` on.

    Attributes:
        access: the first of them.
        stride: numbers of each point.
        step: numbers that one instruction brings.
    """

    name: str
    access: Access
    stride: int
    step: int
    width: int

    def __str__(self) -> str:
        return f"{self.name} = {self.width} * {self.stride} of {self.access}, {self.step} at a time"


@final
@dataclass(frozen=True, slots=True)
class RunStore:
    """The numbers of ``width`` points from the element ``at`` on are those of ``name``; see ``RunLoad``."""

    name: str
    access: Access
    stride: int
    step: int
    width: int

    def __str__(self) -> str:
        return f"{self.width} * {self.stride} of {self.access} = {self.name}, {self.step} at a time"
