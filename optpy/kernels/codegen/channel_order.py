"""The channels of stored fields put in the order that the schedule gives them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from optpy.ir import Access, ChannelOrder, Role, Routine
from optpy.kernels.codegen.rewrite import map_routine
from optpy.symbolic.expr import Expr, Var, var
from optpy.symbolic.traverse import map_variables


def order_channels(routine: Routine, orders: Iterable[ChannelOrder]) -> Routine:
    """The routine with each channel of the ordered fields read, stored and added to at its position."""
    positions = {x.stored: x.positions for x in orders}  # no two stored fields have one name

    def moved(a: Access) -> Access:
        found = positions.get(a.field.name) if a.field.role is Role.STORED else None
        return a if found is None else Access(a.field, a.index, found[a.channel])

    def leaf(v: Var) -> Expr:
        return var(moved(v.key)) if isinstance(v.key, Access) else v

    new = map_routine(routine, lambda roots: map_variables(roots, leaf))
    return replace(
        new,
        assignments=tuple(replace(s, target=moved(s.target)) for s in new.assignments),
        atomic_adds=tuple(replace(x, target=moved(x.target)) for x in new.atomic_adds),
    )
