"""The report of ``energy.diagnose``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from optpy.drawing.markup import findings_html
from optpy.errors import Location

GridIndex = tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class Elements:
    """Elements of an unknown that share a fault."""

    unknown: str
    channel: int | None
    """None: all channels of each."""
    count: int
    total: int
    """Elements of the unknown, fixed ones included."""
    first: tuple[GridIndex, ...]
    """The first few of them, by their index in the unknown's grid."""

    def __str__(self) -> str:
        of = "" if self.channel is None else f", channel {self.channel}"
        more = ", ..." if self.count > len(self.first) else ""
        return f"{self.unknown}{of}: {self.count} of {self.total} elements, at {_listed(self.first)}{more}"


@final
@dataclass(frozen=True, slots=True)
class Read:
    """An element that a residual reads at one point, with its value."""

    name: str
    """Of an array, an unknown or a param."""
    index: GridIndex | None
    """None for a param, and where it reads outside the array."""
    channel: int | None
    """None for scalars."""
    value: float

    def __str__(self) -> str:
        at = "" if self.index is None else _listed([self.index])
        channel = "" if self.channel is None else f"[{self.channel}]"
        return f"{self.name}{at}{channel} = {self.value:g}"


@final
@dataclass(frozen=True, slots=True)
class NonFinite:
    """Values of a residual, or derivatives of it, that are infinite or NaN; the first of them."""

    residual: str
    """The term, or the entry of a list: "reg[0]"."""
    index: GridIndex
    """In the residual's domain."""
    component: int
    unknown: str | None
    """By which unknown it is differentiated; None: the value itself is not finite."""
    value: float
    count: int
    total: int
    """Values, or derivatives, that the residual has."""
    reads: tuple[Read, ...]
    location: Location | None

    def __str__(self) -> str:
        by = "" if self.unknown is None else f" by {self.unknown}"
        line = f" ({self.location})" if self.location else ""
        at = ", ".join(map(str, (*self.index, self.component)))
        reads = ", ".join(map(str, self.reads))
        return f"{self.residual}[{at}]{by} is {self.value}{line}; {self.count} of {self.total}; it reads {reads}"


@final
@dataclass(frozen=True, slots=True)
class Gauge:
    """Adding one number to all solved elements of an unknown changes no residual, to first order."""

    unknown: str
    channel: int | None
    """None: the unknown has one channel."""

    def __str__(self) -> str:
        return self.unknown if self.channel is None else f"{self.unknown}, channel {self.channel}"


@final
@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings of ``energy.diagnose``; ``print`` them, or read the fields."""

    untouched: tuple[Elements, ...]
    """Solved for, but every residual that reads them is switched off there by its conditions or by the boundary rule:
    they keep their initial value, and the cost says nothing of them."""
    flat: tuple[Elements, ...]
    """Some residual reads them, but all its derivatives by them are 0 at the initial values: no step moves them."""
    non_finite: tuple[NonFinite, ...]
    gauges: tuple[Gauge, ...]
    columns: int
    """Numbers that are solved for."""
    null_dimension: int | None
    """Of J, over the numbers that are solved for, those in ``untouched`` and ``flat`` included: how many independent
    directions change no residual to first order. None: not computed."""

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not (self.untouched or self.flat or self.non_finite or self.gauges or self.null_dimension)

    def __str__(self) -> str:
        lines = [
            *_section("no residual touches these: fix them, or add a term", self.untouched),
            *_section("all derivatives by these are 0 at the initial values: start elsewhere, or fix them", self.flat),
            *_section("not finite: guard with op.where, or start elsewhere", self.non_finite),
            *_section("a constant added to all of it changes no residual: fix an element, or add a term", self.gauges),
        ]
        if self.null_dimension:
            lines.append(f"J has a null space of dimension {self.null_dimension}, of {self.columns} numbers solved for")
        unknown = "" if self.null_dimension is not None else "; the null space of J was not computed"
        return "\n".join(lines or ["nothing found"]) + unknown

    def _repr_html_(self) -> str:
        return findings_html(str(self), self.ok)


def _section(title: str, findings: Sequence[object]) -> list[str]:
    return [f"{title}:", *(f"  {f}" for f in findings)] if findings else []


def _listed(indices: Sequence[GridIndex]) -> str:
    return ", ".join(f"[{', '.join(map(str, n)) or '()'}]" for n in indices)
