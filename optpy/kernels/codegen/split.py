"""Sums in passes of their own, which store them: those over edges on a grid, so that the grid's own loop stays plain,
and those over a whole grid at the one point of a shared unknown, so that threads share its rows.

Sums that are stored are read like any other field.
"""

from __future__ import annotations

from dataclasses import replace

from optpy.ir import (
    REAL,
    Access,
    Assignment,
    Field,
    Incidence,
    LocalName,
    LocalSum,
    LoopVariable,
    Role,
    Routine,
    point,
)
from optpy.kernels.codegen.rewrite import map_routine
from optpy.symbolic.expr import ONE, Var, var
from optpy.symbolic.traverse import map_variables


def split_sums(routine: Routine) -> list[Routine]:
    """The passes with sums of a routine that are apart, and the routine that reads them."""
    return split_edges(routine) if routine.domain else split_rows(routine)


def is_over_rows(x: LocalSum) -> bool:
    """Whether a sum is over the rows of a grid whose size data has."""
    outer, *inner = x.loops
    found = [k for k in (outer, *inner) if isinstance(k, LoopVariable) and not k.dim.length.is_constant]
    return outer in found and len(found) > 1


def split_rows(routine: Routine) -> list[Routine]:
    """The passes with the sums over single rows, a routine's that has one point; and the routine, which adds up these.

    So the order in which numbers are added is that of rows, whatever the number of threads.
    """
    passes: list[Routine] = []
    left: list[LocalSum] = []
    for x in routine.locals:
        row, *loops = x.loops
        if not is_over_rows(x):
            left.append(x)
            continue
        assert isinstance(row, LoopVariable)
        n, size = len(passes), len(x.names)
        # One for all routines: each reads only what its own pass has just stored.
        memory = Field(f"rows.{n}.{size}.{row.dim}", (row.dim,), size, REAL, Role.VECTOR)
        places = [Access(memory, point((row,)), k) for k in range(size)]
        stores = tuple(Assignment(p, var(LocalName(name))) for p, name in zip(places, x.names, strict=True))
        of_row = replace(x, loops=tuple(loops))
        passes.append(Routine(f"{routine.name}_rows{n}", (row,), stores, locals=(of_row,), prepares=True))
        left.append(LocalSum(x.names, (row,), ONE, tuple(map(var, places))))
    return [*passes, replace(routine, locals=tuple(left))]


def split_edges(routine: Routine) -> list[Routine]:
    """The pass with the sums over edges of a routine, and the routine without them."""
    sums = [x for x in routine.locals if any(isinstance(k, Incidence) for k in x.loops)]
    names = [name for x in sums for name in x.names]
    # One for all routines on this grid: each reads only what its own pass has just stored.
    dims = tuple(i.dim for i in routine.domain)
    memory = Field(f"edges.{len(names)}.{'.'.join(map(str, dims))}", dims, len(names), REAL, Role.VECTOR)
    places = {name: Access(memory, point(routine.domain), n) for n, name in enumerate(names)}
    stores = tuple(Assignment(place, var(LocalName(name))) for name, place in places.items())
    before = Routine(f"{routine.name}_edges", routine.domain, stores, locals=tuple(sums), prepares=True)
    rest = replace(routine, locals=tuple(x for x in routine.locals if x not in sums))

    def stored(v: Var) -> Var:
        return var(places[v.key.name]) if isinstance(v.key, LocalName) and v.key.name in places else v

    return [before, map_routine(rest, lambda roots: map_variables(roots, stored))]
