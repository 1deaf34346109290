"""The layout of each grid's fields in memory, and the order of the channels of what is stored there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from optpy.ir import Access, ChannelOrder, Coupling, Field, GridLayout, Group, Role, Routine, Target, Task, Uncoupled
from optpy.kernels.codegen.symbol_table import Dims, gathered_fields, gathered_grids
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import Expr
from optpy.symbolic.traverse import variables


def layouts(routines: Iterable[Routine], coupling: Coupling | Uncoupled, target: Target) -> tuple[GridLayout, ...]:
    """Interleaved for grids whose points are reached through graphs: one line of memory brings all channels of a point.

    On GPUs their points are padded: a gather costs its loads, and the sectors of 32 bytes that it touches. Whole vector
    loads are fewer, and none straddles two sectors; so are whole vector additions, where edges scatter. A sweep costs
    bytes: what is only swept over has no padding.

    Args:
        routines: all.
        coupling: of the unknowns; what solves by it walks along rows, channel by channel.
        target: where they run.
    """
    routines = list(routines)
    gathered = gathered_grids(routines)
    return tuple(_layout(dims, dims in gathered, coupling, target) for dims in _grids(routines))


def _layout(dims: Dims, gathered: bool, coupling: Coupling | Uncoupled, target: Target) -> GridLayout:
    if not gathered:
        return GridLayout(dims, False, reason="its points are visited along rows, which are loaded whole")
    if isinstance(coupling, Coupling) and coupling.dims == dims:
        return GridLayout(
            dims, False, reason="its points are reached through graphs, but what solves on the grid walks along rows"
        )
    reason = "its points are reached through graphs, each with all its channels"
    if not target.gpu:
        return GridLayout(dims, True, reason=reason)
    return GridLayout(dims, True, True, f"{reason}; whole vector loads bring a point from one sector of memory")


def _grids(routines: Iterable[Routine]) -> list[Dims]:
    """The grids of all fields that are read or written, in the order in which they are met."""
    found: dict[Dims, None] = {}
    for r in routines:
        targets = [*(s.target for s in r.assignments), *(x.target for x in r.atomic_adds)]
        found |= dict.fromkeys(a.field.dims for a in (*r.accesses(), *targets) if a.field.dims)
    return list(found)


# -- the order of channels ---------------------------------------------------------------------------------------------


def channel_orders(groups: Mapping[Group, Sequence[Routine]]) -> tuple[ChannelOrder, ...]:
    """The channels of what is stored on edges and points, in the order in which graphs read them.

    What is gathered together should stand together, so that few vector loads bring it: of the derivatives stored on an
    edge, those that belong to one of its ends. Before, channels are in the order in which expressions were met.

    Args:
        groups: all routines; what products with J^T J read counts most.
    """
    stored = {f for f in gathered_fields(r for found in groups.values() for r in found) if f.role is Role.STORED}
    together: dict[Field, dict[frozenset[int], bool]] = {f: {} for f in stored}
    for group, found in groups.items():
        for f, channels in (x for r in found for roots in _bodies(r) for x in _channels_read(roots)):
            if f in stored:
                together[f][channels] = together[f].get(channels, False) or group.task is Task.PRODUCT
    return tuple(_order(f, together[f]) for f in sorted(stored, key=str))


def _order(f: Field, sets: Mapping[frozenset[int], bool]) -> ChannelOrder:
    smallest = min([r for r, product in sets.items() if product] or sets, key=len, default=frozenset())
    reason = f"vector loads bring the {len(smallest)} channels that are read together first"
    return ChannelOrder(f.name, tuple(_positions(f.channels, sets)), reason)


def _bodies(routine: Routine) -> Iterator[Sequence[Expr]]:
    """The expressions that are computed together: of each local loop, and of what comes after."""
    yield from (x.values for x in routine.locals)
    yield [s.value for s in routine.assignments] + [x.value for x in routine.atomic_adds]


def _channels_read(roots: Iterable[Expr]) -> Iterator[tuple[Field, frozenset[int]]]:
    """The channels of each point that are read."""
    found: dict[tuple[Field, tuple[Affine, ...]], set[int]] = {}
    for v in variables(list(roots)):
        if isinstance(v.key, Access):
            found.setdefault((v.key.field, v.key.index), set()).add(v.key.channel)
    return ((field, frozenset(channels)) for (field, _), channels in found.items())


def _positions(channels: int, sets: Mapping[frozenset[int], bool]) -> list[int]:
    """The position of each channel: those of the smallest sets come first, so that no larger one takes them apart.

    Args:
        channels: of the field.
        sets: what is read together, and whether a product reads it.
    """
    order: dict[int, None] = {}
    for channels_read, _ in sorted(sets.items(), key=lambda item: (not item[1], len(item[0]))):
        order |= dict.fromkeys(sorted(channels_read))
    order |= dict.fromkeys(range(channels))
    position = {channel: n for n, channel in enumerate(order)}
    return [position[channel] for channel in range(channels)]
