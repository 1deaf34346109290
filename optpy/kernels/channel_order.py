"""The channels of what is stored on edges and points, in the order in which graphs read them.

What is gathered together should stand together, so that few vector loads bring it: of the derivatives stored on an
edge, those that belong to one of its ends. Before, channels are in the order in which expressions were met.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..ir import Access, Field, Role, Routine
from ..symbolic.affine import Affine
from ..symbolic.expr import Expr
from ..symbolic.traverse import variables
from .schedule import map_accesses
from .slots import gathered_fields


def order_channels(groups: Mapping[str, Sequence[Routine]]) -> dict[str, list[Routine]]:
    """The routines with the channels of stored fields that are read through graphs put in order.

    Args:
        groups: all routines, by name.
    """
    routines = [r for found in groups.values() for r in found]
    stored = {f for f in gathered_fields(routines) if f.role is Role.STORED}
    together: dict[Field, dict[frozenset[int], None]] = {f: {} for f in stored}
    for f, channels in (x for r in routines for roots in _bodies(r) for x in _records(roots)):
        if f in stored:
            together[f][channels] = None
    places = {f: _places(f.channels, found) for f, found in together.items()}

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


def _places(channels: int, together: Iterable[frozenset[int]]) -> list[int]:
    """Where each channel goes: what the smallest records read comes first, so that no larger one takes it apart."""
    order: dict[int, None] = {}
    for record in sorted(together, key=len):
        order |= dict.fromkeys(sorted(record))
    order |= dict.fromkeys(range(channels))
    position = {channel: n for n, channel in enumerate(order)}
    return [position[channel] for channel in range(channels)]
