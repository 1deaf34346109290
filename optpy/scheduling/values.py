"""Values that are computed once for each linearisation and stored, instead of again in every product with J^T J.

Stored are functions that cost much (``sin(Angle[i, j])``) and conditions on wide data (``Constraints[i, j] >= 0``)
that depend on one point only: one evaluation instead of one for each neighbour, one byte instead of eight.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from optpy.ir import REAL, Access, Extent, Field, Role, Routine, StoredValue, ValueSchedule
from optpy.kernels.codegen.store import Centred, ReadPoint, conditions_at, read_points
from optpy.kernels.codegen.tables import incidences
from optpy.symbolic.count import count_nodes, is_dear
from optpy.symbolic.expr import Expr, Product, Var, mul
from optpy.symbolic.nodes import to_short_text
from optpy.symbolic.order import topological
from optpy.symbolic.traverse import variables


def worth_storing(e: Expr, points: Mapping[Expr, ReadPoint]) -> bool:
    """Whether an expression is a function that costs much, of a single point."""
    return is_dear(e) and e in points


def storage_candidates(routines: Iterable[Routine]) -> list[StorageCandidate]:
    """The values that are worth storing, each once, wherever it is read.

    They are computed before all else at a linearisation, and so not from what other routines store there.

    Args:
        routines: that run many times at one linearisation point.
    """
    centred = Centred()
    routines = list(routines)
    later = {s.target.field for r in routines for s in r.assignments}
    found: dict[Expr, StorageCandidate] = {}
    texts: dict[Expr, tuple[str, int]] = {}
    for routine in routines:
        stored_later = _made_of(routine.roots, later)
        for e, at in _candidates(routine):
            if e in stored_later:
                continue
            value = centred.of(e, at)
            if value not in found:
                found[value] = StorageCandidate(value, at.dims, to_short_text(value, texts))
            found[value].readers[routine.name] = None
            found[value].points.add(at)
    for c in found.values():
        own = topological(c.value.children, leaves=found.keys())
        c.operations = count_nodes([*(x for x in own if x not in found), c.value]).cost
    return list(found.values())


def _made_of(roots: Iterable[Expr], fields: Collection[Field]) -> set[Expr]:
    """The nodes that read some fields, or are made of such."""
    found: set[Expr] = set()
    for node in topological(roots):
        reads = isinstance(node, Var) and isinstance(node.key, Access) and node.key.field in fields
        if reads or not found.isdisjoint(node.children):
            found.add(node)
    return found


def stored_values(
    candidates: Sequence[StorageCandidate], packed: Collection[tuple[Extent, ...]]
) -> tuple[StoredValue, ...]:
    """Values with their memory.

    Args:
        candidates: that are stored.
        packed: grids on which all stored numbers are the channels of one field.
    """
    memory = _memory(candidates, packed)
    return tuple(StoredValue(c.value, memory[c.value], tuple(c.readers)) for c in candidates)


@final
@dataclass(slots=True)
class StorageCandidate:
    """A value at its own point, who would read it, and at which points.

    Attributes:
        value: over ``canonical_domain(dims)``.
        dims: of the grid of its points.
        name: its text, by which schedules name it.
        operations: additions, beside those of other such values that it is made of.
        readers: the names of the routines that would read it.
        points: at which they do.
    """

    value: Expr
    dims: tuple[Extent, ...]
    name: str
    operations: int = 0
    readers: dict[str, None] = field(default_factory=dict)
    points: set[ReadPoint] = field(default_factory=set)

    @property
    def decision(self) -> ValueSchedule:
        """That it is stored."""
        return ValueSchedule(self.name, True, self.reason)

    @property
    def reason(self) -> str:
        """A sentence with the counted costs."""
        places = f"{len(self.points)} place{'s' if len(self.points) > 1 else ''} in {', '.join(self.readers)}"
        if not self.value.boolean:
            return f"{self.operations} additions once at each linearisation; read at {places}"
        fields = dict.fromkeys(v.key.field.name for v in variables([self.value]) if isinstance(v.key, Access))
        return f"one byte in place of {' and '.join(fields)}; read at {places}"


def _candidates(routine: Routine) -> Iterator[tuple[Expr, ReadPoint]]:
    """The values of a routine that are worth storing, with the point at which each is read."""
    roots = routine.roots
    points = read_points(roots, routine.domain, set(incidences(routine)))
    wide = fields_read_in_conditions_only(roots)
    functions = {e for e in topological(roots) if worth_storing(e, points)}
    read = set(topological(roots, leaves=functions))
    for node in topological(roots):
        if node not in read:  # only what is stored is made of it
            continue
        if node in functions:
            yield node, points[node]
        elif isinstance(node, Product):
            for at, group in conditions_at(node, points).items():
                if {v.key.field for v in variables(group) if isinstance(v.key, Access)} & wide:
                    yield mul(*group), at


def fields_read_in_conditions_only(roots: Iterable[Expr]) -> set[Field]:
    """Fields wider than a byte whose values are needed in comparisons only."""
    numeric: set[Field] = set()
    all_fields: set[Field] = set()
    for node in topological(roots):
        if isinstance(node, Var) and isinstance(node.key, Access):
            all_fields.add(node.key.field)
        if not node.boolean:
            numeric |= {c.key.field for c in node.children if isinstance(c, Var) and isinstance(c.key, Access)}
    numeric |= {r.key.field for r in roots if isinstance(r, Var) and isinstance(r.key, Access)}
    return {f for f in all_fields - numeric if f.dtype not in ("uint8", "bool")}


def _memory(candidates: Iterable[StorageCandidate], packed: Collection[tuple[Extent, ...]]) -> dict[Expr, Access]:
    """A channel for each value: of a field of its own, or of the one for all numbers on its grid."""
    together: dict[tuple[Extent, ...], list[tuple[str, Expr]]] = {}
    alone: dict[Expr, Field] = {}
    for n, c in enumerate(candidates):
        if c.dims in packed and not c.value.boolean:
            together.setdefault(c.dims, []).append((f"stored.{n}", c.value))
        else:
            dtype = "bool" if c.value.boolean else REAL
            alone[c.value] = Field(f"stored.{n}", c.dims, 1, dtype, Role.STORED, finite=c.value.finite)
    found = {e: Access(f, ReadPoint(f.dims, ()).centre, 0) for e, f in alone.items()}
    for dims, group in together.items():
        finite = all(e.finite for _, e in group)
        f = Field(group[0][0], dims, len(group), REAL, Role.STORED, finite=finite)
        found |= {e: Access(f, ReadPoint(dims, ()).centre, n) for n, (_, e) in enumerate(group)}
    return found
