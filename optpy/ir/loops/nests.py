"""Statements of the loop IR with blocks inside: loops, branches, and the nests that share a grid's points out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from operator import is_
from typing import Any, Literal, final

from optpy.ir.loops.integers import Condition, Holds, Integer, Variable, all_of
from optpy.ir.loops.statements import (
    Accumulate,
    Accumulator,
    Alloc,
    Declare,
    Evaluate,
    Fetch,
    FunctionCall,
    Let,
    LetFlag,
    LetNumber,
    LetSum,
    Lookup,
    Mask,
    MaskLoad,
    OverLanes,
    Partial,
    Skip,
    Store,
    Total,
    Unravel,
    evaluate,
)
from optpy.ir.loops.vectors import PackAdd, PackLoad, PackStore, RunLoad, RunStore, Zeros
from optpy.ir.spaces import Domain, Extent, Incidence, LoopVariable
from optpy.symbolic.expr import Expr
from optpy.symbolic.traverse import transform

Block = tuple["Statement", ...]
"""Statements, one after the other."""

LoopKind = Literal["serial", "independent", "narrow", "unrolled", "lanes"]
"""Who runs the steps of a loop: one thread, one after the other; one thread, in vectors, as no step reads what another
one stores; the same, one vector at a time, so that there is less to compile; one thread, unrolled; the threads that
work on one point, in turns."""


@final
@dataclass(frozen=True, slots=True)
class Loop:
    """``body`` for every ``variable`` from ``low`` below ``high``, ``step`` apart."""

    variable: LoopVariable | Variable
    low: Integer
    high: Integer
    body: Block
    kind: LoopKind = "serial"
    step: int = 1

    def __str__(self) -> str:
        by = f" by {self.step}" if self.step != 1 else ""
        kind = f" ({self.kind})" if self.kind != "serial" else ""
        return f"for {self.variable} in [{self.low}, {self.high}){by}{kind}"


@final
@dataclass(frozen=True, slots=True)
class If:
    """``then`` where all conditions hold, else ``otherwise``; the other one does not run."""

    conditions: tuple[Condition, ...]
    then: Block
    otherwise: Block = ()

    def __str__(self) -> str:
        return f"if {all_of(self.conditions)}"


@final
@dataclass(frozen=True, slots=True)
class Edges:
    """``body`` for every edge at a point, ``loop.edge`` its number."""

    loop: Incidence
    body: Block

    def __str__(self) -> str:
        return f"for {self.loop}"


@final
@dataclass(frozen=True, slots=True)
class Fold:
    """``body`` adds to the local sums ``names``, which are 0 before and needed after."""

    names: tuple[str, ...]
    body: Block

    def __str__(self) -> str:
        return f"fold {', '.join(self.names)}"


@final
@dataclass(frozen=True, slots=True)
class BodyStage:
    """``body``, for which the arrays that it reads and stores are looked up anew: no register holds their places from
    one stage to the next."""

    body: Block

    def __str__(self) -> str:
        return "stage"


@final
@dataclass(frozen=True, slots=True)
class Points:
    """``interior`` or ``border`` at every point of a domain, in whatever order.

    Attributes:
        margins: for each loop variable, how far the interior stays away from the lower and the upper end.
        interior: what happens where every access at an offset from the point is inside.
        border: what happens elsewhere; empty where all margins are 0.
    """

    domain: Domain
    margins: tuple[tuple[int, int], ...]
    interior: Block
    border: Block

    @property
    def last(self) -> LoopVariable:
        """The fastest loop variable; of a grid of one point, one that nothing reads."""
        return self.domain[-1] if self.domain else LoopVariable("only", Extent("1"))

    def __str__(self) -> str:
        margins = ", ".join(f"{i}: {low}, {high}" for i, (low, high) in zip(self.domain, self.margins, strict=True))
        return f"points ({', '.join(f'{i}: {i.dim}' for i in self.domain)}), margins of the interior ({margins})"


# -- who visits which point --------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Segments:
    """On a CPU: ``body`` for every segment ``[begin, end)`` of a ``row`` in a range of a list of segments."""

    number: int
    body: Block

    def __str__(self) -> str:
        return f"for row, begin, end in segments[{self.number}][first:last]"


@final
@dataclass(frozen=True, slots=True)
class Tiles:
    """On a GPU: ``body`` at every ``row`` and column of a grid, in tiles down its columns (``tiles.cuh``); with a mask,
    where that holds: each thread loads it for a whole strip before it begins one."""

    domain: Domain
    mask: Mask | None
    body: Block

    def __str__(self) -> str:
        return f"for row, {self.domain[-1]} in tiles{f' where {self.mask}' if self.mask else ''}"


@final
@dataclass(frozen=True, slots=True)
class GridStride:
    """On a GPU: ``body`` at every point of a grid of one dim or none, a thread a point."""

    index: LoopVariable
    count: Integer
    body: Block

    def __str__(self) -> str:
        return f"for {self.index} in [0, {self.count}) (grid)"


@final
@dataclass(frozen=True, slots=True)
class ThreadGroups:
    """On a GPU: ``body`` at every point, each the work of ``lanes`` threads (``Context.lane_bits[number]``)."""

    number: int
    domain: Domain
    index: LoopVariable
    body: Block

    def __str__(self) -> str:
        return f"for row, {self.index} in points (groups of lanes[{self.number}])"


@final
@dataclass(frozen=True, slots=True)
class Vectors:
    """On a GPU: ``body`` for every ``width`` elements of a grid from ``at`` on, padding of rows included."""

    domain: Domain
    width: int
    mask: Mask | None
    body: Block

    def __str__(self) -> str:
        return f"for at in vectors of {self.width}{f' where {self.mask}' if self.mask else ''}"


Nest = Loop | If | Edges | Fold | BodyStage | Points | Segments | Tiles | GridStride | ThreadGroups | Vectors

Statement = (
    Nest
    | Accumulate
    | Accumulator
    | Alloc
    | Fetch
    | FunctionCall
    | Declare
    | Evaluate
    | Let
    | LetFlag
    | LetNumber
    | LetSum
    | Lookup
    | MaskLoad
    | OverLanes
    | PackAdd
    | PackLoad
    | PackStore
    | Partial
    | RunLoad
    | RunStore
    | Skip
    | Store
    | Total
    | Unravel
    | Zeros
)

_BLOCKS: dict[type, tuple[str, ...]] = {
    If: ("then", "otherwise"),
    Points: ("interior", "border"),
    **dict.fromkeys((Loop, Edges, Fold, BodyStage, Segments, Tiles, GridStride, ThreadGroups, Vectors), ("body",)),
}


@final
@dataclass(frozen=True, slots=True)
class Function:
    """One function of the target.

    Attributes:
        name: of the function.
        body: what it does.
        noinline: whether it is kept out of its callers.
    """

    name: str
    body: Block
    noinline: bool = False

    def __str__(self) -> str:
        return "\n".join([self.name, *text(self.body, 1)])


# -- walks -------------------------------------------------------------------------------------------------------------


def blocks_of(statement: Statement) -> dict[str, Block]:
    """The blocks inside a statement, by the names of their attributes."""
    return {name: getattr(statement, name) for name in _BLOCKS.get(type(statement), ())}


def walk(block: Block) -> Iterator[Statement]:
    """Every statement of a block, and of the blocks inside; each before what is inside it."""
    for statement in block:
        yield statement
        if type(statement) in _BLOCKS:
            for inner in blocks_of(statement).values():
                yield from walk(inner)


def rewrite(block: Block, rule: Callable[[Any], Block]) -> Block:
    """The block with every statement, its inner blocks rewritten before, replaced by ``rule(statement)``."""
    found: list[Statement] = []
    for statement in block:
        if type(statement) in _BLOCKS:
            inner = {name: rewrite(b, rule) for name, b in blocks_of(statement).items()}
            statement = with_blocks(statement, inner)
        found += rule(statement)
    return tuple(found)


def map_values(function: Function, rule: Callable[[Expr, tuple[Expr, ...]], Expr]) -> Function:
    """The function with every expression rewritten, bottom up: ``rule(node, its new children)`` is a node's stead."""
    done: dict[Expr, Expr] = {}

    def new(value: Expr) -> Expr:
        return done[value]

    def replaced(s: Statement) -> Block:
        match s:
            case Evaluate():
                values = tuple(map(new, s.values))
                return (s if all(map(is_, values, s.values)) else replace(s, values=values),)
            case Store() | Total() | Accumulate() | LetNumber():
                value = new(s.value)
                return (s if value is s.value else replace(s, value=value),)
            case If():
                held = (replace(c, value=new(c.value)) if isinstance(c, Holds) else c for c in s.conditions)
                return (replace(s, conditions=tuple(held)),)
        return (s,)

    transform([v for s in walk(function.body) if isinstance(s, Evaluate) for v in s.values], rule, done)
    return replace(function, body=rewrite(function.body, replaced))


def with_own_leaves(s: Statement) -> Block:
    """The statement; an evaluation with the leaves that its values have now."""
    if not isinstance(s, Evaluate):
        return (s,)
    now = evaluate(s.values, s.prefix)
    leaves = set(now.leaves)
    return (replace(now, reads=tuple((a, load) for a, load in s.reads if a in leaves)),)


def with_blocks(statement: Any, blocks: dict[str, Block]) -> Any:
    """The statement with other blocks inside; itself where they are its own, statement by statement."""
    own = blocks_of(statement)
    if all(len(b) == len(own[name]) and all(map(is_, b, own[name])) for name, b in blocks.items()):
        return statement
    return replace(statement, **blocks)


def text(block: Block, depth: int = 0) -> list[str]:
    """The lines of a block, four columns to a level."""
    lines: list[str] = []
    for statement in block:
        lines += ["    " * depth + line for line in str(statement).splitlines()]
        inner = {name: b for name, b in blocks_of(statement).items() if b}
        for name, b in inner.items():
            lines += ["    " * depth + f"  {name}:"] if len(inner) > 1 else []
            lines += text(b, depth + 1)
    return lines
