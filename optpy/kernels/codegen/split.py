"""Sums in passes of their own, which store them: those over edges on a grid, so that the grid's own loop stays plain,
and those over a whole grid at the one point of a shared unknown, so that threads share its rows.

Sums that are stored are read like any other field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optpy.ir import (
    REAL,
    Access,
    Assignment,
    Domain,
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
    taken = [x for x in routine.locals if is_over_rows(x)]
    passes: list[Routine] = []
    added: list[LocalSum] = []
    for row in dict.fromkeys(x.loops[0] for x in taken):
        assert isinstance(row, LoopVariable)
        sums = tuple(replace(x, loops=x.loops[1:]) for x in taken if x.loops[0] == row)
        names = tuple(name for x in sums for name in x.names)
        places = _places("rows", (row,), names)
        stores = tuple(Assignment(place, var(LocalName(name))) for name, place in places.items())
        passes.append(Routine(f"{routine.name}_rows{len(passes)}", (row,), stores, locals=sums, prepares=True))
        added.append(LocalSum(names, (row,), ONE, tuple(map(var, places.values()))))
    left = tuple(x for x in routine.locals if x not in taken)
    return [*passes, replace(routine, locals=(*left, *added))]


def _places(kind: str, domain: Domain, names: Sequence[str]) -> dict[str, Access]:
    """The memory of sums at the points of a grid: one for all routines, as each reads only what its own pass has just
    stored."""
    dims = tuple(i.dim for i in domain)
    memory = Field(f"{kind}.{len(names)}.{'.'.join(map(str, dims))}", dims, len(names), REAL, Role.VECTOR)
    return {name: Access(memory, point(domain), n) for n, name in enumerate(names)}


def split_edges(routine: Routine) -> list[Routine]:
    """The pass with the sums over edges of a routine, and the routine without them."""
    sums = [x for x in routine.locals if any(isinstance(k, Incidence) for k in x.loops)]
    names = [name for x in sums for name in x.names]
    places = _places("edges", routine.domain, names)
    stores = tuple(Assignment(place, var(LocalName(name))) for name, place in places.items())
    before = Routine(f"{routine.name}_edges", routine.domain, stores, locals=tuple(sums), prepares=True)
    rest = replace(routine, locals=tuple(x for x in routine.locals if x not in sums))

    def stored(v: Var) -> Var:
        return var(places[v.key.name]) if isinstance(v.key, LocalName) and v.key.name in places else v

    return [before, map_routine(rest, lambda roots: map_variables(roots, stored))]
