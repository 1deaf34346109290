"""The schedule of an energy's routines: what is stored, where it is computed and how it lies in memory.

``str(schedule)`` prints one line for each decision, with its reason as a comment, and ``Schedule.parse`` reads it back.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar, final

from optpy.errors import OptionError
from optpy.ir.decision import Decision
from optpy.ir.decisions import (
    NORMAL,
    ChannelOrder,
    ConditionalWork,
    FuncSchedule,
    GridLayout,
    NormalSchedule,
    ResidualSchedule,
    Split,
    TermSchedule,
    ValueSchedule,
    VectorSweep,
)
from optpy.ir.leaves import Access
from optpy.ir.spaces import Extent
from optpy.symbolic.expr import Expr

WrittenChoice = str | int | Sequence[str | int]
"""The words of a decision: one text with commas, or one by one."""

D = TypeVar("D", bound=Decision)


@final
@dataclass(frozen=True, slots=True)
class StoredValue:
    """An expression that is computed once for each linearisation, as a schedule has decided.

    Attributes:
        value: the expression at its own point, over ``canonical_domain(memory.field.dims)``.
        memory: the channel that holds it, at the same point.
        readers: names of the routines that read it in place of computing it.
    """

    value: Expr
    memory: Access
    readers: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.memory} = {self.value!r}"


@final
@dataclass(frozen=True, slots=True, init=False)
class Schedule:
    """Decisions on what is kept in memory, and how; those that are left out are made by optpy, by counted costs.

    Each argument maps names to choices. The name ``"*"`` stands for all that have no decision of their own, so that
    ``values={"*": "recomputed"}`` switches an optimisation off. ``solver.schedule`` has every name that there is; its
    text, or lines of it, are a schedule, too: ``op.Schedule.parse(text)``.

    Args:
        funcs: for each ``op.Func``: "inline"; "values", kept; or "partials", values and derivatives kept. With "cost",
            as in "partials, cost", a pass of its own stores it before a cost is summed, too.
        residuals: by label, "reg[0]": "inline", or what is kept at each edge or point: "J", "Jp", or both, "J, Jp"; or
            at each point of the unknowns, and at each edge, what it adds to J^T J, "JTJ", which products then read
            alone. On a GPU an edge may "scatter", with or without "J": it adds to its vertices by atomic additions.
        terms: of an energy, "reg": "merged" with the others into one pass over the points, or in a "separate" pass.
        normal: J^T J as coarser "levels" of its grid, an assembled "matrix", or no more than its "products".
        values: of dear expressions and wide conditions: "stored" at each linearisation, or "recomputed".
        splits: of routines with sums over edges on a grid, or over a grid at one point: the sums "apart" in a pass of
            their own, or "together".
        conditions: of routines with dear work under conditions on data: a "branch" leaves it out where none holds, or
            it is computed everywhere and then "select"ed.
        layouts: of the grids of dims, as ``("H", "W")``: channels "planar" or "interleaved"; on a GPU also
            "interleaved, padded".
        orders: of stored fields: the position of each channel.
        sweeps: of kernels of a GPU: 1, 2 or 4 points for a thread at a time.

    Raises:
        OptionError: a choice is none, or two decisions are about one thing.
    """

    funcs: tuple[FuncSchedule, ...] = ()
    residuals: tuple[ResidualSchedule, ...] = ()
    terms: tuple[TermSchedule, ...] = ()
    normal: NormalSchedule | None = None
    values: tuple[ValueSchedule, ...] = ()
    splits: tuple[Split, ...] = ()
    conditions: tuple[ConditionalWork, ...] = ()
    layouts: tuple[GridLayout, ...] = ()
    orders: tuple[ChannelOrder, ...] = ()
    sweeps: tuple[VectorSweep, ...] = ()
    lines: Mapping[tuple[str, str], int] = field(default_factory=dict, compare=False, repr=False)

    def __init__(
        self,
        funcs: Mapping[Any, WrittenChoice] | Iterable[FuncSchedule] = (),
        residuals: Mapping[Any, WrittenChoice] | Iterable[ResidualSchedule] = (),
        normal: WrittenChoice | NormalSchedule | None = None,
        values: Mapping[Any, WrittenChoice] | Iterable[ValueSchedule] = (),
        splits: Mapping[Any, WrittenChoice] | Iterable[Split] = (),
        conditions: Mapping[Any, WrittenChoice] | Iterable[ConditionalWork] = (),
        layouts: Mapping[Any, WrittenChoice] | Iterable[GridLayout] = (),
        orders: Mapping[Any, WrittenChoice] | Iterable[ChannelOrder] = (),
        sweeps: Mapping[Any, WrittenChoice] | Iterable[VectorSweep] = (),
        lines: Mapping[tuple[str, str], int] | None = None,
        terms: Mapping[Any, WrittenChoice] | Iterable[TermSchedule] = (),
    ) -> None:
        given = funcs, residuals, terms, values, splits, conditions, layouts, orders, sweeps
        for name, kind, decisions in zip(_GROUPS, _GROUPS.values(), given, strict=True):
            object.__setattr__(self, name, _records(name, kind, decisions))
        if normal is not None and not isinstance(normal, NormalSchedule):
            normal = _read(NormalSchedule, NORMAL, _words("normal", normal), "")
        object.__setattr__(self, "normal", normal)
        object.__setattr__(self, "lines", dict(lines or {}))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The schedule that a text says, a line for each decision: ``residual reg: J, Jp  # why``.

        Raises:
            OptionError: a line says nothing that a schedule could; its number and text are in the message.
        """
        found: dict[type[Decision], list[Decision]] = {kind: [] for kind in _ALL_KINDS}
        lines: dict[tuple[str, str], int] = {}
        for number, line in enumerate(text.splitlines(), 1):
            said, _, reason = line.partition("#")
            if not said.strip():
                continue
            try:
                decision = _parsed(said.strip(), reason.strip())
                earlier = lines.setdefault((decision.kind, decision.about), number)
                if earlier != number:
                    raise OptionError(f"line {earlier} has decided that already")
            except OptionError as error:
                raise OptionError(f"schedule, line {number}, {said.strip()!r}: {error}") from None
            found[type(decision)].append(decision)
        groups: dict[str, Any] = {name: tuple(found[kind]) for name, kind in _GROUPS.items()}
        groups["normal"] = next(iter(found[NormalSchedule]), None)
        return cls(**groups, lines=lines)

    @property
    def decisions(self) -> Iterator[Decision]:
        """All decisions, in the order in which they are printed."""
        yield from self.funcs
        yield from self.residuals
        yield from self.terms
        if self.normal is not None:
            yield self.normal
        for group in (self.values, self.splits, self.conditions, self.layouts, self.orders, self.sweeps):
            yield from group

    def place_of(self, decision: Decision) -> str:
        """Words for an error message: where a decision was written, and its text."""
        line = self.lines.get((decision.kind, decision.about))
        return f"schedule{'' if line is None else f', line {line}'}, '{decision.kind} {decision}'"

    @property
    def interleaved(self) -> frozenset[tuple[Extent, ...]]:
        """The grids on which the channels of a point stand side by side."""
        return frozenset(x.dims for x in self.layouts if x.interleaved)

    @property
    def padded(self) -> frozenset[tuple[Extent, ...]]:
        """The grids on which a GPU pads the points of what graphs read."""
        return frozenset(x.dims for x in self.layouts if x.padded)

    def __str__(self) -> str:
        return "\n".join(map(_line, self.decisions))


_GROUPS: Final[dict[str, type[Decision]]] = {
    "funcs": FuncSchedule,
    "residuals": ResidualSchedule,
    "terms": TermSchedule,
    "values": ValueSchedule,
    "splits": Split,
    "conditions": ConditionalWork,
    "layouts": GridLayout,
    "orders": ChannelOrder,
    "sweeps": VectorSweep,
}
"""The attributes of a schedule that have a decision for each name."""

_ALL_KINDS: Final[tuple[type[Decision], ...]] = (*_GROUPS.values(), NormalSchedule)
_KINDS: Final = {kind.kind: kind for kind in _ALL_KINDS}


def _line(decision: Decision) -> str:
    reason = " ".join(decision.reason.split())
    return f"{decision.kind} {decision}{f'  # {reason}' if reason else ''}"


def _parsed(said: str, reason: str) -> Decision:
    head, colon, choice = said.rpartition(":") if ":" in said else (said, "", "")
    kind, _, name = head.strip().partition(" ")
    if kind not in _KINDS:
        close = difflib.get_close_matches(kind, _KINDS, n=1)
        cure = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(_KINDS)}"
        raise OptionError(f"no decision is about a {kind or said!r}; {cure}")
    if not colon or not name.strip():
        raise OptionError(f"a line is as '{kind} NAME: CHOICE', where CHOICE is {_KINDS[kind].words}")
    return _KINDS[kind].read(name.strip(), _words(kind, choice), reason)


def _records(group: str, kind: type[D], given: object) -> tuple[D, ...]:
    """The decisions of one kind, from a mapping of names to choices, or as they are."""
    found: tuple[Any, ...] = (given,)
    if isinstance(given, Mapping):
        found = tuple(_read(kind, _name(name), _words(group, choice), "") for name, choice in given.items())
    elif isinstance(given, Iterable) and not isinstance(given, str):
        found = tuple(given)
    if not all(isinstance(decision, kind) for decision in found):
        raise OptionError(f"schedule: '{group}' maps names to choices, as in {group}={{'NAME': '...'}}, not {given!r}")
    names = [decision.about for decision in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"schedule: '{group}' decides twice about {twice!r}")
    return found


def _read(kind: type[D], name: str, choice: Sequence[str], reason: str) -> D:
    try:
        return kind.read(name, choice, reason)
    except OptionError as error:
        raise OptionError(f"schedule, '{kind.kind} {name}: {', '.join(choice)}': {error}") from None


def _name(name: object) -> str:
    """The name of a thing that is given by a text, by its declaration, or, of a grid, by a tuple of its dims."""
    if isinstance(name, tuple):
        return f"({', '.join(map(_name, name))})"
    return name.strip() if isinstance(name, str) else str(getattr(name, "name", name))


def _words(group: str, choice: object) -> list[str]:
    """The words of a choice."""
    match choice:
        case str():
            return [word.strip() for word in choice.split(",") if word.strip()]
        case bool():
            pass
        case int():
            return [str(choice)]
        case list() | tuple():
            return [word for part in choice for word in _words(group, part)]
    raise OptionError(f"schedule: a choice of '{group}' is a text, such as 'inline', not {choice!r}")
