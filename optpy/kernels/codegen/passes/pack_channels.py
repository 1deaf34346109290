"""Interleaved channels of a point, side by side in memory, loaded, stored and added to by vector instructions.

What a gather costs a GPU is its load instructions, since each lane of a warp reads another line: three
numbers that one instruction of 16 bytes brings is a third of the work of three numbers, one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import final

from optpy.ir import Access, Field, loops
from optpy.kernels.codegen.conventions import Conventions
from optpy.symbolic.affine import Affine


@final
@dataclass(frozen=True, slots=True)
class Window:
    """Neighbouring channels of a point that one instruction loads or stores; the last may be padding."""

    first: int
    width: int

    @property
    def channels(self) -> range:
        """The channels from the first on, the padding counted."""
        return range(self.first, self.first + self.width)


_Pack = tuple[loops.PackStore | loops.PackAdd, dict[Access, loops.Lane]]
"""A vector instruction that ends a block, and where what it stores is meanwhile."""


def windows(channels: Collection[int], stride: int, widest: int) -> list[Window]:
    """Few vector loads that bring some channels of a point: as narrow as can be, each at a multiple of its width.

    Args:
        channels: that are needed.
        stride: numbers from one point to the next.
        widest: numbers in the widest load: a power of two.

    Returns:
        In order, without those of one number alone, which take no vector load.
    """
    unit = math.gcd(stride, widest)
    found = []
    for first in range(0, stride, unit):
        window = _narrowest([c for c in channels if first <= c < first + unit], Window(first, unit))
        if window.width > 1:
            found.append(window)
    return found


def _narrowest(used: Collection[int], window: Window) -> Window:
    """The half of a window, or the half of that, and so on, that has all that is used."""
    while window.width > 1:
        half = window.width // 2
        halves = (Window(window.first, half), Window(window.first + half, half))
        inside = next((w for w in halves if all(c in w.channels for c in used)), None)
        if inside is None:
            break
        window = inside
    return window


def pack_channels(function: loops.Function, conventions: Conventions) -> loops.Function:
    """Load, store and add to interleaved channels in as few instructions as can be.

    They are loaded before anything is computed, so that no load waits for what another one brings. A point, or a half
    of one, of which every channel is stored is stored as a whole.
    """
    return replace(function, body=_packed(function.body, conventions))


def _packed(block: loops.Block, conventions: Conventions) -> loops.Block:
    ended: list[loops.PackStore | loops.PackAdd] = []
    stored: dict[Access, loops.Lane] = {}
    for pack, lanes in (*_stores(block, conventions), *_additions(block, conventions)):
        ended.append(pack)
        stored |= lanes
    begun = [loops.Zeros(pack.name, pack.operand.field, pack.width) for pack in ended]
    found: list[loops.Statement] = []
    last = max((n for n, s in enumerate(block) if isinstance(s, loops.Evaluate)), default=-1)
    for n, s in enumerate(block):
        found += begun if n == last else []
        match s:
            case loops.Evaluate():
                found += _loaded(s, conventions)
            case loops.Store(operand=loops.MemoryOperand(access=access)) if access in stored:
                found.append(loops.Store(stored[access], s.value))
            case _:
                inner = {name: _packed(b, conventions) for name, b in loops.blocks_of(s).items()}
                found.append(loops.with_blocks(s, inner))
    return (*found, *ended)


def _stores(block: loops.Block, conventions: Conventions) -> Iterator[_Pack]:
    """The vector stores of a block, and where their numbers are meanwhile."""
    plain = (s.operand for s in block if isinstance(s, loops.Store) and not s.atomic)
    targets = [p.access for p in plain if isinstance(p, loops.MemoryOperand)]
    for n, (window, members) in enumerate(_windows(targets, conventions, conventions.widest)):
        if len(members) == sum(c < members[0].field.channels for c in window.channels):
            pack = loops.PackStore(f"out{n}", _operand(members[0], window), window.width)
            yield pack, _lanes(pack.name, window, members)


def _additions(block: loops.Block, conventions: Conventions) -> Iterator[_Pack]:
    """The same of atomic additions; what is not there is no part of them."""
    atomic = (s for s in block if isinstance(s, loops.Store) and s.atomic)
    guards = {s.operand.access: s.guards for s in atomic if isinstance(s.operand, loops.MemoryOperand)}
    for n, (window, members) in enumerate(_windows(guards, conventions, conventions.widest_add)):
        lanes = _lanes(f"add{n}", window, members)
        used = tuple(lane.lane for lane in lanes.values())
        yield loops.PackAdd(f"add{n}", _operand(members[0], window), window.width, used, guards[members[0]]), lanes


def _loaded(s: loops.Evaluate, conventions: Conventions) -> loops.Block:
    """The evaluation after the loads of its interleaved channels."""
    guards = {a: load.guards for a, load in s.reads}
    loads: list[loops.Statement] = []
    loaded: dict[Access, loops.Lane] = {}
    for n, (window, members) in enumerate(_windows([a for a, _ in s.reads], conventions, conventions.widest)):
        name = f"{s.prefix}r{n}"
        loads.append(loops.PackLoad(name, _operand(members[0], window), window.width, guards[members[0]]))
        loaded |= _lanes(name, window, members)
    reads = tuple((a, loops.Load(loaded[a]) if a in loaded else load) for a, load in s.reads)
    return (*loads, replace(s, reads=reads))


def _windows(
    accesses: Iterable[Access], conventions: Conventions, widest: Callable[[Field], int]
) -> list[tuple[Window, list[Access]]]:
    """The vector instructions for some accesses, and which of them each serves."""
    points: dict[tuple[Field, tuple[Affine, ...]], list[Access]] = {}
    for a in accesses:
        if conventions.interleaved(a.field):
            points.setdefault((a.field, a.index), []).append(a)
    return [
        (window, [a for a in members if a.channel in window.channels])
        for (field, _), members in points.items()
        for window in windows({a.channel for a in members}, conventions.point_stride(field), widest(field))
    ]


def _operand(member: Access, window: Window) -> loops.MemoryOperand:
    return loops.MemoryOperand(replace(member, channel=window.first))


def _lanes(name: str, window: Window, members: Iterable[Access]) -> dict[Access, loops.Lane]:
    return {a: loops.Lane(name, a.field, a.channel - window.first) for a in members}
