"""The channels of what is stored on edges and points, in the order in which graphs read them.

What is gathered together should stand together, so that few vector loads bring it: of the derivatives stored on an
edge, those that belong to one of its ends. Before, channels are in the order in which expressions were met.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from optpy.ir import Access, Field, Role, Routine
from optpy.kernels.codegen.schedule import map_accesses
from optpy.kernels.codegen.slots import gathered_fields
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import Expr
from optpy.symbolic.traverse import variables


def order_channels(groups: Mapping[str, Sequence[Routine]]) -> dict[str, list[Routine]]:
    """The routines with the channels of stored fields that are read through graphs put in order.

    Args:
        groups: all routines, by name; what products with J^T J read counts most.
    """
    stored = {f for f in gathered_fields(r for found in groups.values() for r in found) if f.role is Role.STORED}
    together: dict[Field, dict[frozenset[int], bool]] = {f: {} for f in stored}
    for name, found in groups.items():
        for f, channels in (x for r in found for roots in _bodies(r) for x in _records(roots)):
            if f in stored:
                together[f][channels] = together[f].get(channels, False) or name.startswith("applyJTJ")
    places = {f: _places(f.channels, records) for f, records in together.items()}
    places = {f: found for f, found in places.items() if found != sorted(found)}
    if not places:
        return {name: list(found) for name, found in groups.items()}

    def place(a: Access) -> Access:
        return Access(a.field, a.index, places[a.field][a.channel]) if a.field in places else a

    return {name: [map_accesses(r, place) for r in found] for name, found in groups.items()}


def _bodies(routine: Routine) -> Iterator[Sequence[Expr]]:
    """The expressions that are computed together: of each local loop, and of what comes after."""
    yield from (x.values for x in routine.locals)
    yield [s.value for s in routine.stores] + [x.value for x in routine.accumulates]


def _records(roots: Iterable[Expr]) -> Iterator[tuple[Field, frozenset[int]]]:
    """Which channels of each record are read."""
    found: dict[tuple[Field, tuple[Affine, ...]], set[int]] = {}
    for v in variables(list(roots)):
        if isinstance(v.key, Access):
            found.setdefault((v.key.field, v.key.index), set()).add(v.key.channel)
    return ((field, frozenset(channels)) for (field, _), channels in found.items())


def _places(channels: int, records: Mapping[frozenset[int], bool]) -> list[int]:
    """Where each channel goes: what the smallest records read comes first, so that no larger one takes it apart.

    Args:
        channels: of the field.
        records: what is read together, and whether a product reads it.
    """
    order: dict[int, None] = {}
    for record, _ in sorted(records.items(), key=lambda item: (not item[1], len(item[0]))):
        order |= dict.fromkeys(sorted(record))
    order |= dict.fromkeys(range(channels))
    position = {channel: n for n, channel in enumerate(order)}
    return [position[channel] for channel in range(channels)]
