"""Scheduled routines to kernels with numbers: lowered, and a number for all that they use. For C and CUDA alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from optpy.ir import Extent, Field, Group, Role, Routine, Task, Vector, VectorKind
from optpy.kernels.codegen.lower import Kernel, lower
from optpy.kernels.codegen.symbol_table import SymbolTable, gathered_fields, segment_list


@final
@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers by which kernels are called, and what they visit and leave. No expressions: it can be pickled.

    Attributes:
        groups: the numbers of the kernels of each group of routines.
        names: of the kernels.
        lists: the list of segments that each kernel visits.
        reductions: the number of each kernel's first reduction.
        sums: of each kernel's reductions, the names, each with whether it is the largest magnitude, not the sum.
        prepares: of each kernel, whether later ones of the same group read what it stores.
        solved: of each grid on which not everything is solved for, where it is.
        symbols: the numbering of the context.
    """

    groups: dict[Group, tuple[int, ...]]
    names: tuple[str, ...]
    lists: tuple[int, ...]
    reductions: tuple[int, ...]
    sums: tuple[tuple[tuple[str, bool], ...], ...]
    prepares: tuple[bool, ...]
    solved: dict[tuple[Extent, ...], Field]
    symbols: SymbolTable


@final
@dataclass(frozen=True, slots=True)
class Numbered:
    """All kernels of an energy.

    Attributes:
        kernels: in the order of their numbers.
        numbers: by which they are called.
    """

    kernels: tuple[Kernel, ...]
    numbers: Numbers


class AbstractProgram:
    """The numbers of a program, in C and CUDA alike."""

    __slots__ = ()
    numbers: Numbers

    @property
    def symbols(self) -> SymbolTable:
        """The numbers of fields, tables and sums in the structure that native code takes."""
        return self.numbers.symbols

    @property
    def groups(self) -> dict[Group, tuple[int, ...]]:
        """The numbers of the kernels of each group."""
        return self.numbers.groups


def numbered_kernels(
    groups: Mapping[Group, Sequence[Routine]],
    interleaved: Collection[tuple[Extent, ...]],
    padded: Collection[tuple[Extent, ...]] = (),
) -> Numbered:
    """Lower every routine, and give numbers to the kernels and to all that they use.

    Args:
        groups: scheduled routines.
        interleaved: grids whose fields keep the channels of a point side by side.
        padded: those of them on which a GPU pads the points of what graphs read, and products add to.
    """
    products = [r for group, found in groups.items() if group.task is Task.PRODUCT for r in found]
    symbols = SymbolTable(
        interleaved=set(interleaved),
        padded=set(padded),
        gathered=gathered_fields(r for found in groups.values() for r in found),
        added={x.target.field for r in products for x in r.atomic_adds},
    )
    numbers: dict[Group, tuple[int, ...]] = {}
    kernels: list[Kernel] = []
    lists: list[int] = []
    reductions: list[int] = []
    for group, found in groups.items():
        numbers[group] = tuple(range(len(kernels), len(kernels) + len(found)))
        for routine in found:
            reductions.append(len(symbols.reductions))
            symbols.add(routine, group.task.over_unknowns)
            lists.append(symbols.lists[segment_list(routine, group.task.over_unknowns)])
            kernels.append(lower(routine))
    symbols.gathered |= {f for f in symbols.fields if _stand_in(f) in symbols.gathered}
    sums = tuple(tuple((r.name, r.maximum) for r in k.border.reductions) for k in kernels)
    solved = _solved(kernels[n] for n in numbers.get(Group.SOLVED, ()))
    names, prepares = tuple(k.name for k in kernels), tuple(k.border.prepares for k in kernels)
    numbered = Numbers(numbers, names, tuple(lists), tuple(reductions), sums, prepares, solved, symbols)
    return Numbered(tuple(kernels), numbered)


def _solved(kernels: Iterable[Kernel]) -> dict[tuple[Extent, ...], Field]:
    """Of each grid, the field that says where something is solved for, by the kernels that store it."""
    return {s.target.field.dims: s.target.field for k in kernels for s in k.border.assignments}


def _stand_in(f: Field) -> Field | None:
    """The field whose memory this one takes, or is read in place of: a step makes the candidate x, and the true
    residual of conjugate gradients takes delta for p."""
    if f.role is Role.UNKNOWN:
        return Vector(VectorKind.CANDIDATE, f).field
    match f.identity:
        case Vector(kind=VectorKind.CANDIDATE, unknown=unknown):
            return unknown
        case Vector(kind=VectorKind.P) as p:
            return replace(p, kind=VectorKind.DELTA).field
        case Vector(kind=VectorKind.DELTA) as delta:
            return replace(delta, kind=VectorKind.P).field
    return None
