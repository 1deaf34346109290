"""Scheduled routines to kernels with numbers: lowered, and a number for all that they use. For C and CUDA alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from optpy.ir import Extent, Field, Group, Role, Routine, Vector, VectorKind
from optpy.kernels.codegen.lower import Kernel, lower
from optpy.kernels.codegen.symbol_table import SymbolTable, gathered_fields, segment_list


@final
@dataclass(frozen=True, slots=True)
class Numbered:
    """All kernels of an energy.

    Attributes:
        groups: the numbers of the kernels of each group of routines.
        kernels: in the order of their numbers.
        lists: the list of segments that each kernel visits.
        reductions: the number of each kernel's first reduction.
        symbols: the numbering of the context.
    """

    groups: dict[Group, tuple[int, ...]]
    kernels: tuple[Kernel, ...]
    lists: tuple[int, ...]
    reductions: tuple[int, ...]
    symbols: SymbolTable

    @property
    def solved(self) -> dict[tuple[Extent, ...], Field]:
        """Of each grid on which not everything is solved for, where it is."""
        stores = [s for n in self.groups.get(Group.SOLVED, ()) for s in self.kernels[n].border.assignments]
        return {s.target.field.dims: s.target.field for s in stores}


class AbstractProgram:
    """The kernels of a program, in C and CUDA alike."""

    __slots__ = ()
    numbered: Numbered

    @property
    def symbols(self) -> SymbolTable:
        return self.numbered.symbols

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return self.numbered.kernels

    @property
    def groups(self) -> dict[Group, tuple[int, ...]]:
        """The numbers of the kernels of each group."""
        return self.numbered.groups

    def routine(self, kernel: int) -> Routine:
        return self.kernels[kernel].border


def numbered_kernels(
    groups: Mapping[Group, Sequence[Routine]], interleaved: Collection[tuple[Extent, ...]]
) -> Numbered:
    """Lower every routine, and give numbers to the kernels and to all that they use.

    Args:
        groups: scheduled routines.
        interleaved: grids whose fields keep the channels of a point side by side.
    """
    symbols = SymbolTable(
        interleaved=set(interleaved), gathered=gathered_fields(r for found in groups.values() for r in found)
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
    return Numbered(numbers, tuple(kernels), tuple(lists), tuple(reductions), symbols)


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
