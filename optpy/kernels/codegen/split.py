"""Sums over edges on a grid in a pass of their own, so that the grid's own loop stays plain.

The pass stores the sums, and the grid's loop reads them like any other field.
"""

from __future__ import annotations

from dataclasses import replace

from optpy.ir import REAL, Access, Assignment, Field, Incidence, LocalName, Role, Routine, point
from optpy.kernels.codegen.rewrite import map_routine
from optpy.symbolic.expr import Var, var
from optpy.symbolic.traverse import map_variables


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
