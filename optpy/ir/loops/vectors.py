"""Statements of the loop IR that move several numbers by one instruction, on GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from optpy.ir.fields import Field
from optpy.ir.leaves import Access, InBounds
from optpy.ir.loops.whole import Place, all_of


@final
@dataclass(frozen=True, slots=True)
class PackLoad:
    """``name``: ``width`` numbers from ``place`` on, neighbours of one record; 0 where a guard fails."""

    name: str
    place: Place
    width: int
    guards: tuple[InBounds, ...] = ()

    def __str__(self) -> str:
        when = f" if {all_of(self.guards)} else 0" if self.guards else ""
        return f"{self.name} = {self.width} of {self.place}{when}"


@final
@dataclass(frozen=True, slots=True)
class Zeros:
    """``name``: numbers of a field in registers, to be stored together.

    Attributes:
        length: how many.
        record: numbers of each point where those of several points are taken at a time; else None.
        cleared: whether all must be 0 at first, as padding among them is stored, too.
    """

    name: str
    field: Field
    length: int
    record: int | None = None
    cleared: bool = True

    def __str__(self) -> str:
        return f"{self.name} = {self.length} numbers of {self.field}"


@final
@dataclass(frozen=True, slots=True)
class PackStore:
    """``width`` numbers from ``place`` on are those of ``name``."""

    name: str
    place: Place
    width: int

    def __str__(self) -> str:
        return f"{self.width} of {self.place} = {self.name}"


@final
@dataclass(frozen=True, slots=True)
class RunLoad:
    """``name``: the numbers of ``width`` points from the element ``at`` on.

    Attributes:
        access: the first of them.
        record: numbers of each point.
        step: numbers that one instruction brings.
    """

    name: str
    access: Access
    record: int
    step: int
    width: int

    def __str__(self) -> str:
        return f"{self.name} = {self.width} * {self.record} of {self.access}, {self.step} at a time"


@final
@dataclass(frozen=True, slots=True)
class RunStore:
    """The numbers of ``width`` points from the element ``at`` on are those of ``name``; see ``RunLoad``."""

    name: str
    access: Access
    record: int
    step: int
    width: int

    def __str__(self) -> str:
        return f"{self.width} * {self.record} of {self.access} = {self.name}, {self.step} at a time"
