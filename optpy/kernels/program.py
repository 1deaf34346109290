"""Routines to one C source: schedule, lower, number, print."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from ..ir import Coupling, Dim, Field, Index, NormalMatrix, Routine, Uncoupled
from .aggregation import aggregation_source
from .assembly import assembly_source
from .cholesky import cholesky_source
from .compiler import native_header
from .dialect import Dialect, c_dialect
from .lower import Kernel, lower
from .multigrid import multigrid_source
from .printer import KernelPrinter
from .schedule import Storage, move_fields, store_intermediates
from .slots import Slots, gathered_grids, segment_list
from .split import split_edges


@final
@dataclass(frozen=True, slots=True)
class Program:
    """Everything needed to compile and call the kernels of an energy.

    Attributes:
        groups: the numbers of the kernels of each group of routines.
        kernels: in the order of their numbers.
        functions: the C text of each kernel.
        lists: the list of segments that each kernel visits.
        reductions: the slot of each kernel's first reduction.
        slots: the numbering of the context.
        source: the whole C source.
        dtype: the solver's precision.
        coupling: for the multigrid of a grid, where it applies; else why it does not.
        normal: the assembled J^T J, where there is one; else why there is none.
        traffic: of each kernel: loads and stores at each point, and the dims of its loops within a point.
        solved: of each grid on which not everything is solved for, where it is.
    """

    groups: dict[str, tuple[int, ...]]
    kernels: tuple[Kernel, ...]
    functions: tuple[str, ...]
    lists: tuple[int, ...]
    reductions: tuple[int, ...]
    slots: Slots
    source: str
    dtype: str
    coupling: Coupling | Uncoupled
    normal: NormalMatrix | Uncoupled
    traffic: tuple[tuple[int, tuple[tuple[Dim, ...], ...]], ...]
    solved: dict[tuple[Dim, ...], Field]

    def routine(self, kernel: int) -> Routine:
        return self.kernels[kernel].border


def build_program(
    groups: Mapping[str, Sequence[Routine]],
    dtype: str,
    solver_scalars: tuple[str, ...],
    at_linearisation: Collection[str],
    solved_only: Collection[str],
    coupling: Coupling | Uncoupled,
    normal: NormalMatrix | Uncoupled,
) -> Program:
    """Print all routines into one source.

    Args:
        groups: routines by name.
        dtype: the solver's precision: "float32" or "float64".
        solver_scalars: names of the run-time scalars, in the order in which they are passed.
        at_linearisation: groups that read stored intermediates; "precompute" is added to compute them.
        solved_only: groups that visit only the points where something is solved for.
        coupling: of the unknowns; where there is one, the multigrid of their grid is compiled too.
        normal: where there is one, so are its assembly and what solves with it.
    """
    numbered = numbered_kernels(groups, at_linearisation, solved_only, split=True)
    slots = numbered.slots
    if isinstance(coupling, Coupling):
        slots.interleaved.discard(coupling.dims)  # multigrid walks along rows, channel by channel
    dialect = c_dialect(dtype)
    functions = tuple(
        KernelPrinter(k, slots, dialect, solver_scalars, n, r).source()
        for k, n, r in zip(numbered.kernels, numbered.lists, numbered.reductions, strict=True)
    )
    source = _source(
        numbered,
        functions,
        dialect,
        {"SCALARS": len(solver_scalars), "FIELDS": len(slots.fields)},
        "enum { " + ", ".join(name.upper() for name in solver_scalars) + " };",
        "\n\n".join(_preconditioners(coupling, normal, slots, dialect)),
    )
    return Program(
        groups=numbered.groups,
        kernels=numbered.kernels,
        functions=functions,
        lists=numbered.lists,
        reductions=numbered.reductions,
        slots=slots,
        source=source,
        dtype=dtype,
        coupling=coupling,
        normal=normal,
        traffic=tuple(_traffic(k.border) for k in numbered.kernels),
        solved=numbered.solved,
    )


def _preconditioners(
    coupling: Coupling | Uncoupled, normal: NormalMatrix | Uncoupled, slots: Slots, dialect: Dialect
) -> Iterator[str]:
    yield f"#define OPTPY_REAL {dialect.real}"
    if isinstance(coupling, Coupling):
        yield multigrid_source(coupling, slots, dialect)
    if isinstance(normal, NormalMatrix):
        yield assembly_source(normal, slots, dialect)
        yield aggregation_source(len(normal.elements), dialect)
        yield cholesky_source(len(normal.elements), dialect)
        yield native_header("assembled.h")


@final
@dataclass(frozen=True, slots=True)
class Numbered:
    """All kernels in the order of their numbers; the attributes are those of ``Program``."""

    groups: dict[str, tuple[int, ...]]
    kernels: tuple[Kernel, ...]
    lists: tuple[int, ...]
    reductions: tuple[int, ...]
    slots: Slots

    @property
    def solved(self) -> dict[tuple[Dim, ...], Field]:
        """Of each grid on which not everything is solved for, where it is."""
        stores = [s for n in self.groups.get("solved", ()) for s in self.kernels[n].border.stores]
        return {s.target.field.dims: s.target.field for s in stores}


def numbered_kernels(
    groups: Mapping[str, Sequence[Routine]],
    at_linearisation: Collection[str],
    solved_only: Collection[str],
    split: bool,
) -> Numbered:
    """Schedule and lower every routine, and give numbers to the kernels and to all that they use.

    Args:
        groups, at_linearisation, solved_only: see ``build_program``.
        split: whether sums over edges on grids get passes of their own (see ``split_edges``).
    """
    scheduled = _schedule(groups, at_linearisation, split)
    slots = Slots(interleaved=gathered_grids(r for routines in scheduled.values() for r in routines))
    numbers: dict[str, tuple[int, ...]] = {}
    kernels: list[Kernel] = []
    lists: list[int] = []
    reductions: list[int] = []
    for name, routines in scheduled.items():
        numbers[name] = tuple(range(len(kernels), len(kernels) + len(routines)))
        for routine in routines:
            reductions.append(len(slots.reductions))
            slots.add(routine, name in solved_only)
            lists.append(slots.lists[segment_list(routine, name in solved_only)])
            kernels.append(lower(routine))
    return Numbered(numbers, tuple(kernels), tuple(lists), tuple(reductions), slots)


def _schedule(
    groups: Mapping[str, Sequence[Routine]], at_linearisation: Collection[str], split: bool
) -> dict[str, list[Routine]]:
    storage = Storage()
    scheduled = {
        name: store_intermediates(routines, storage) if name in at_linearisation else list(routines)
        for name, routines in groups.items()
    }
    stored = storage.routines()
    scheduled |= {"precompute": stored} if stored else {}
    if split:
        scheduled = {name: [part for r in routines for part in split_edges(r)] for name, routines in scheduled.items()}
    moved = storage.side_by_side(gathered_grids(r for routines in scheduled.values() for r in routines))
    if not moved:
        return scheduled
    return {name: [move_fields(r, moved) for r in routines] for name, routines in scheduled.items()}


def _source(
    numbered: Numbered,
    functions: Sequence[str],
    dialect: Dialect,
    sizes: Mapping[str, int],
    scalars: str,
    preconditioners: str,
) -> str:
    table = [
        f"    {{{k.name}, {n}, {r}, {len(k.border.reductions)}, {_maximum(k.border)}, {int(k.border.prepares)}}},"
        for k, n, r in zip(numbered.kernels, numbered.lists, numbered.reductions, strict=True)
    ]
    parts = [
        "/* Generated by optpy from an energy; do not edit. */",
        "#include <time.h>",
        native_header("prelude.h"),
        native_header("vecmath.h"),
        native_header("team.h"),
        f"#define OPTPY_WIDTH {dialect.lanes}",
        native_header("kernel.h"),
        *functions,
        "static const Kernel optpy_kernels[] = {\n" + "\n".join(table) + "\n};",
        "\n".join(f"#define OPTPY_{name} {n}" for name, n in sizes.items()),
        scalars,
        preconditioners,
        native_header("pcg.h"),
    ]
    return "\n\n".join(parts) + "\n"


def _maximum(routine: Routine) -> int:
    return int(any(r.maximum for r in routine.reductions))


def _traffic(routine: Routine) -> tuple[int, tuple[tuple[Dim, ...], ...]]:
    loops = tuple(tuple(i.dim for i in x.loops if isinstance(i, Index)) for x in routine.locals)
    return len(routine.accesses()) + len(routine.stores) + len(routine.accumulates), loops
