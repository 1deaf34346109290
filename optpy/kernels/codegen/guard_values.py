"""Stored values under the conditions that all who read them have in common, where computing them is dear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from optpy.ir import Access, Group, Role, Routine
from optpy.kernels.codegen.store import Centred, read_points
from optpy.kernels.codegen.tables import incidences
from optpy.symbolic.booleans import literals
from optpy.symbolic.expr import Expr, Product, Var, mul
from optpy.symbolic.order import topological
from optpy.symbolic.traverse import variables


def guard_values(groups: Mapping[Group, Sequence[Routine]]) -> list[Routine]:
    """The routines that compute stored values, each 0 wherever nobody needs it.

    Args:
        groups: of routines that read what is stored.
    """
    computing = groups.get(Group.PRECOMPUTE, ())
    stored = {s.target for r in computing for s in r.assignments}
    readers = (r for group, found in groups.items() if group is not Group.PRECOMPUTE for r in found)
    common = _common_conditions(stored, readers)

    def guarded(routine: Routine) -> Routine:
        stores = (replace(s, value=mul(*common.get(s.target, ()), s.value)) for s in routine.assignments)
        return replace(routine, assignments=tuple(stores))

    return [*map(guarded, computing)]


def _common_conditions(stored: set[Access], readers: Iterable[Routine]) -> dict[Access, list[Expr]]:
    """For each stored value the conditions on data, at its own point, under which alone it is read."""
    found: dict[Access, dict[Expr, None]] = {}
    centred = Centred()
    for routine in readers:
        points = read_points(routine.roots, routine.domain, set(incidences(routine)))
        for node, known in _known(routine.roots).items():
            at = points.get(node)
            if at is None or not isinstance(node, Var) or replace(node.key, index=at.centre) not in stored:
                continue
            here = {centred.of(b, at): None for b in known if points.get(b) == at and _on_data(b)}
            value = replace(node.key, index=at.centre)
            found[value] = {b: None for b in found.get(value, here) if b in here}
    return {value: [*conditions] for value, conditions in found.items()}


def _known(roots: Sequence[Expr]) -> dict[Expr, frozenset[Expr]]:
    """For each node the conditions that hold wherever it is needed."""
    known: dict[Expr, frozenset[Expr]] = dict.fromkeys(roots, frozenset())
    for node in reversed(topological(roots)):
        inside = known[node]
        guards: tuple[Expr, ...] = node.guards if isinstance(node, Product) else ()
        for child in node.children:
            holds = inside.union(*map(literals, guards)) if guards and child not in guards else inside
            known[child] = known[child] & holds if child in known else holds
    return known


def _on_data(condition: Expr) -> bool:
    """Whether a condition can be asked before anything is stored."""
    return all(v.key.field.role is Role.DATA for v in variables([condition]) if isinstance(v.key, Access))
