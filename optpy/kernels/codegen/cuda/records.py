"""Records: the channels of a point that stand side by side in memory, loaded and stored by vector instructions.

What a gather costs a GPU is its load instructions, since each lane of a warp reads another line: a record of three
numbers that one instruction of 16 bytes brings is a third of the work of three numbers, one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import final

from optpy.ir import Access, Domain, Field, Routine
from optpy.kernels.codegen.dialect import Dialect
from optpy.kernels.codegen.layout import CUDA, record_length, storage_dtype, widest_load
from optpy.kernels.codegen.lower import Kernel
from optpy.kernels.codegen.point import PointPrinter
from optpy.kernels.codegen.slots import Slots
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import Expr
from optpy.symbolic.traverse import variables


@final
@dataclass(frozen=True, slots=True)
class Window:
    """Neighbouring numbers of a record that one instruction loads or stores; the last may be padding."""

    first: int
    width: int

    @property
    def channels(self) -> range:
        return range(self.first, self.first + self.width)


def windows(channels: Collection[int], record: int, widest: int) -> list[Window]:
    """What brings some channels of a record in few loads: as narrow as they can be, each at a multiple of its width.

    Args:
        channels: that are needed.
        record: numbers from one record to the next.
        widest: numbers in the widest load: a power of two.

    Returns:
        In order, without those of one number alone, which take no vector load.
    """
    unit = math.gcd(record, widest)
    found = []
    for first in range(0, record, unit):
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


class RecordPrinter(PointPrinter):
    """Prints the statements at a point, with records read and stored in as few instructions as can be.

    Args:
        kernel, slots, dialect, solver_scalars: see ``PointPrinter``.
    """

    layout = CUDA

    def __init__(self, kernel: Kernel, slots: Slots, dialect: Dialect, solver_scalars: tuple[str, ...]) -> None:
        super().__init__(kernel, slots, dialect, solver_scalars)
        self._vectors = False  # whether several points are taken at a time: their records are in registers by then
        self._loaded: dict[Access, str] = {}
        self._stored: dict[Access, str] = {}

    def _compute(self, roots: Sequence[Expr], checked: bool, loops: Domain, prefix: str) -> tuple[list[str], list[str]]:
        """Records are loaded before anything is computed, so that no load waits for what another one brings."""
        loads = []
        for n, (window, members) in enumerate(self._windows(v.key for v in variables(roots))):
            a, checks = members[0], self._checks(members[0], checked, loops)
            inside = f", {' && '.join(checks)}" if checks else ""
            load = f"optpy_record<{window.width}>({self._window_address(a, window)}{inside})"
            name = f"{prefix}r{n}"
            loads.append(f"const {self._pack(a.field, window)} {name} = {load};  /* {a.field.name} */")
            self._loaded |= _places(name, window, members)
        lines, texts = super()._compute(roots, checked, loops, prefix)
        self._loaded = {}
        return [*loads, *lines], texts

    def _results(self, routine: Routine, checked: bool) -> list[str]:
        """A record, or a half of one, of which every channel is stored is stored as a whole."""
        before, after = [], []
        for n, (window, members) in enumerate(self._windows(s.target for s in routine.stores)):
            field, name = members[0].field, f"out{n}"
            if len(members) == sum(c < field.channels for c in window.channels):
                before.append(f"{self._pack(field, window)} {name} = {{}};  /* {field.name} */")
                after.append(f"optpy_put({self._window_address(members[0], window)}, {name});")
                self._stored |= _places(name, window, members)
        lines = super()._results(routine, checked)
        self._stored = {}
        return [*before, *lines, *after]

    def _leaf(self, key: object, checked: bool, loops: Domain) -> tuple[str, str]:
        if isinstance(key, Access) and key in self._loaded:
            return self._dialect.types[key.field.dtype], self._loaded[key]
        return super()._leaf(key, checked, loops)

    def _target(self, access: Access) -> str:
        return self._stored.get(access) or super()._target(access)

    def _windows(self, keys: Iterable[object]) -> list[tuple[Window, list[Access]]]:
        """The vector loads or stores for some accesses, and which of them each serves."""
        records: dict[tuple[Field, tuple[Affine, ...]], list[Access]] = {}
        for a in keys:
            if isinstance(a, Access) and self._side_by_side(a.field) and not self._vectors:
                records.setdefault((a.field, a.index), []).append(a)
        return [
            (window, [a for a in members if a.channel in window.channels])
            for (field, _), members in records.items()
            for window in windows({a.channel for a in members}, self._record(field), self._widest(field))
        ]

    def _window_address(self, member: Access, window: Window) -> str:
        back = f" - {member.channel - window.first}" if member.channel > window.first else ""
        return f"{self._array(member.field, member.channel)}{back} + {self._address(member)}"

    def _pack(self, field: Field, window: Window) -> str:
        return f"Pack<{self._dialect.types[field.dtype]}, {window.width}>"

    def _side_by_side(self, field: Field) -> bool:
        return field.dims in self._slots.interleaved and field.channels > 1

    def _record(self, field: Field) -> int:
        """Numbers from one record to the next."""
        return record_length(field, self._slots, self._dialect.dtype, self.layout)

    def _widest(self, field: Field) -> int:
        """Numbers in the widest load."""
        return widest_load(storage_dtype(field, self._dialect.dtype).itemsize)


def _places(name: str, window: Window, members: Iterable[Access]) -> dict[Access, str]:
    return {a: f"{name}.value[{a.channel - window.first}]" for a in members}
