"""Kernels to CUDA device functions: the loop harness of the GPU around the bodies.

A function visits its points together with all other threads of the grid, in one of three ways:

- elementwise, where nothing but the point itself is read: four numbers at a time, by vector loads and stores;
- in tiles, down the columns of a grid (``native/tiles.cuh``), so that a stencil finds its neighbours in the cache;
- by lanes, where there are local sums: each point is the work of one thread, one warp or one block, whichever fits
  the length of its loops (``Context.lanes``).

Every thread adds up its sums in double; ``native/reduce.cuh`` makes totals of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cached_property

from optpy.ir import Access, Field, InBounds, IndexCondition, IndexValue, LocalSum, Routine, point
from optpy.kernels.codegen.cuda.records import RecordPrinter
from optpy.kernels.codegen.dialect import Dialect
from optpy.kernels.codegen.lower import Kernel
from optpy.kernels.codegen.point import indent, uses
from optpy.kernels.codegen.slots import Slots
from optpy.symbolic.traverse import variables

_NUMBERS, _NUMBERS_BESIDE_GATHERS = 64, 48
"""Read and stored at the points that a thread takes at a time, padding included: all are in registers. Fewer on grids
that graphs point into: the one kernel that sweeps and gathers has as many registers as its hungriest part needs, and
gathers wait less the more warps fit beside one another."""


class DevicePrinter(RecordPrinter):
    """Prints the device function of one kernel.

    Args:
        kernel, slots, dialect, solver_scalars: see ``PointPrinter``.
        number: of the kernel: what ``Context.lanes`` has for it.
        sums: for each of its reductions, which of its launch's sums it adds to.
        mask: where on its grid something is solved for, if other points are to be left out.
    """

    def __init__(
        self,
        kernel: Kernel,
        slots: Slots,
        dialect: Dialect,
        solver_scalars: tuple[str, ...],
        number: int,
        sums: tuple[int, ...],
        mask: Field | None,
    ) -> None:
        super().__init__(kernel, slots, dialect, solver_scalars)
        self._number = number
        self._sums = sums
        self._mask = mask
        self._vectors = is_elementwise(kernel.border, slots)

    def source(self) -> str:
        routine = self._kernel.border
        if routine.locals:
            points = self._by_lanes()
        elif self._vectors:
            points = self._elementwise()
        elif len(self._domain) > 1:
            points = self._tiles()
        else:
            points = self._line()
        return "\n".join(
            [
                f"OPTPY_FN void {routine.name}(const Context *c, const double *scalar, double *sum, bool on_delta) {{",
                *indent(_without_unused(self._prologue(routine), points)),
                *indent(self._mask_prologue()),
                *indent(points),
                *indent(uses("scalar", "sum", "on_delta")),
                "}",
            ]
        )

    def _memory(self, f: Field) -> tuple[str, str]:
        base, plane = super()._memory(f)
        if f.name.startswith("p."):
            # The true residual of conjugate gradients takes A delta: with delta in the place of p.
            own, delta = (f"[{slot}]" for slot in (self._slots.fields[f], self._delta(f)))
            base = f"(on_delta ? c->field{delta} : c->field{own})"
            plane = f"(on_delta ? c->plane{delta} : c->plane{own})"
        # That it is 1 saves a register for each channel; but where it knows that atomics are side by side, the compiler
        # for sm_100 keeps all that they add until the end.
        added = any(x.target.field == f for x in self._kernel.border.accumulates)
        return base, "1" if self._side_by_side(f) and not added else plane

    def _delta(self, p: Field) -> int:
        name = "delta." + p.name.removeprefix("p.")
        return next(slot for f, slot in self._slots.fields.items() if f.name == name)

    # -- which points ------------------------------------------------------------------------------------------------

    @property
    def _length(self) -> str:
        """Points of a row."""
        return self._size(self._domain[-1].dim) if self._domain else "1"

    @property
    def _rows(self) -> str:
        return " * ".join(self._size(i.dim) for i in self._domain[:-1]) or "1"

    @property
    def _last(self) -> str:
        return str(self._domain[-1]) if self._domain else "only"

    def _tiles(self) -> list[str]:
        last, index = self._last, self._dialect.index
        ahead, skip = self._skip_ahead() if self._mask is not None else ([], [])
        return [
            f"{self._int} rows = {self._rows};",
            f"const Tiles tiles = optpy_tiles(rows, {self._length});",
            f"for ({self._dialect.unsigned} strip = blockIdx.x; strip < tiles.strips; strip += gridDim.x) {{",
            f"    {self._int} {last} = optpy_tile_column(&tiles, strip), top = optpy_tile_row(&tiles, strip);",
            f"    if ({last} >= {self._length}) continue;",
            f"    {self._int} end = top + tiles.height < rows ? top + tiles.height : rows;",
            f"    {index} row = top + (threadIdx.x >> tiles.shift);",
            *indent(ahead),
            "    for (; row < end; row += tiles.tall) {",
            *indent(skip, 2),
            *indent(self._point(), 2),
            "    }",
            "}",
        ]

    def _skip_ahead(self) -> tuple[list[str], list[str]]:
        """Before a strip, and at each of its rows: whether the point is solved for, which is loaded while the row above
        is worked on. Beyond the strip's end another point's is loaded instead, which takes no branch."""
        below = "(row + tiles.tall < end ? row + tiles.tall : row)"
        return (
            [f"uint8_t next = {self._solved('(row < end ? row : top)')};"],
            ["const uint8_t here = next;", f"next = {self._solved(below)};", "if (!here) continue;"],
        )

    def _line(self) -> list[str]:
        """Along a grid of one dim, or the only point."""
        last, index = self._last, self._dialect.index
        return [
            f"{self._int} row = 0;",
            f"for ({index} {last} = blockIdx.x * blockDim.x + threadIdx.x; {last} < {self._length}; "
            f"{last} += gridDim.x * blockDim.x) {{",
            *indent(self._skip()),
            *indent(self._point()),
            "}",
            *uses("row"),
        ]

    def _by_lanes(self) -> list[str]:
        return [
            f"const int lanes = c->lanes[{self._number}], lane = threadIdx.x % lanes;",
            f"{self._int} points = {self._rows} * {self._length}, together = OPTPY_THREADS / lanes;",
            f"for ({self._dialect.index} at = blockIdx.x * together + threadIdx.x / lanes; at < points; "
            "at += gridDim.x * together) {",
            *indent(self._of_point_number()),
            *indent(self._skip()),
            *indent(self._point()),
            *indent(uses("row")),
            "}",
        ]

    def _of_point_number(self) -> list[str]:
        """The row and the last index of the point ``at``, counted in C order."""
        if len(self._domain) < 2:
            return [f"{self._int} row = 0, {self._last} = at;"]
        return [f"{self._int} row = at / {self._length}, {self._last} = at % {self._length};"]

    def _point(self) -> list[str]:
        """What happens at a point: in the interior with fewer checks."""
        lines = [*self._outer_indices(), *uses(self._last)]
        if all(m == (0, 0) for m in self._kernel.margins):
            return [*lines, *self._body(self._kernel.border, checked=False)]
        inside = " && ".join(
            f"{i} >= {low} && {i} < {self._size(i.dim)} - {high}"
            for i, (low, high) in zip(self._domain, self._kernel.margins, strict=True)
            if (low, high) != (0, 0)
        )
        return [
            *lines,
            f"if ({inside}) {{",
            *indent(self._body(self._kernel.interior, checked=False)),
            "} else {",
            *indent(self._body(self._kernel.border, checked=True)),
            "}",
        ]

    # -- what is solved for --------------------------------------------------------------------------------------------

    def _mask_prologue(self) -> list[str]:
        if self._mask is None:
            return []
        return [f"const uint8_t *solved = (const uint8_t *)c->field[{self._slots.fields[self._mask]}];"]

    def _skip(self) -> list[str]:
        return [] if self._mask is None else [f"if (!{self._solved('row')}) continue;"]

    def _solved(self, row: str) -> str:
        if len(self._domain) < 2:
            return f"solved[{self._last}]"
        grid = self._slots.grids[tuple(i.dim for i in self._domain)]
        return f"solved[{row} * pitch{grid} + {self._last}]"

    # -- elementwise ---------------------------------------------------------------------------------------------------

    def _elementwise(self) -> list[str]:
        """Runs over the padding of rows, too, which is never read by anything else and left out of the sums."""
        routine = self._kernel.border
        pitch = f"pitch{self._slots.grids[tuple(i.dim for i in self._domain)]}"
        skip = [
            "uint8_t visited[W];",
            "optpy_load<W>(visited, solved + at);",
            f"if (!({' | '.join(f'visited[{u}]' for u in range(self._width))})) continue;",
        ]
        valid = []
        if routine.reductions:
            valid = [f"const bool valid = at % {pitch} + u < {self._length};"]
        return [
            f"enum {{ W = {self._width} }};",
            f"{self._int} vectors = ({self._rows} * {pitch} + W - 1) / W;",
            f"for ({self._dialect.index} v = blockIdx.x * blockDim.x + threadIdx.x; v < vectors; "
            "v += gridDim.x * blockDim.x) {",
            f"    {self._int} at = v * W;",
            *(indent(skip) if self._mask is not None else []),
            *indent(self._vector_loads(routine)),
            "#pragma unroll",
            "    for (int u = 0; u < W; ++u) {",
            *indent(valid, 2),
            *indent(self._body(routine, checked=False), 2),
            "    }",
            *indent(self._vector_stores(routine)),
            "}",
        ]

    @cached_property
    def _width(self) -> int:
        """How many points a thread takes at a time: as many as one load holds, and registers allow."""
        routine = self._kernel.border
        accesses = {*routine.accesses(), *(s.target for s in routine.stores)}
        padding = {a.field: self._record(a.field) - a.field.channels for a in accesses if self._side_by_side(a.field)}
        numbers = len(accesses) + sum(padding.values())
        gathers = tuple(i.dim for i in self._domain) in self._slots.interleaved
        room = _NUMBERS_BESIDE_GATHERS if gathers else _NUMBERS
        widest = 4 if self._dialect.real == "float" else 2
        return next((w for w in (4, 2) if w <= widest and w * numbers <= room), 1)

    def _blocks(self, accesses: list[Access]) -> dict[str, tuple[Field, str, int]]:
        """The runs of numbers that some accesses take: name, field, where it begins, numbers for each point."""
        found = {}
        for a in accesses:
            if not a.field.dims:
                continue
            own = self._array(a.field, a.channel)
            slot = self._slots.fields[a.field]
            if self._side_by_side(a.field):
                record = self._record(a.field)
                found[f"{slot}"] = (a.field, f"{own} - {a.channel} + at * {record}", record)
            else:
                found[f"{slot}_{a.channel}"] = (a.field, f"{own} + at", 1)
        return found

    def _vector_loads(self, routine: Routine) -> list[str]:
        lines = []
        for name, (field, begin, numbers) in self._blocks(routine.accesses()).items():
            lines.append(f"{self._dialect.types[field.dtype]} in{name}[W * {numbers}];  /* {field.name} */")
            load = f"optpy_load<{self._step(field, numbers)}>"
            lines += [f"{load}(in{name} + {n}, {begin} + {n});" for n in self._steps(field, numbers)]
        for name, (field, _, numbers) in self._blocks([s.target for s in routine.stores]).items():
            zero = " = {}" if numbers > field.channels else ""  # whole vectors are stored, padding included
            lines.append(f"{self._dialect.types[field.dtype]} out{name}[W * {numbers}]{zero};  /* {field.name} */")
        return lines

    def _vector_stores(self, routine: Routine) -> list[str]:
        return [
            f"optpy_store<{self._step(field, numbers)}>({begin} + {n}, out{name} + {n});"
            for name, (field, begin, numbers) in self._blocks([s.target for s in routine.stores]).items()
            for n in self._steps(field, numbers)
        ]

    def _step(self, field: Field, numbers: int) -> int:
        """Numbers that one instruction brings of those that the points of a thread have in one run."""
        padded = numbers > field.channels
        return math.gcd(self._width * numbers, self._widest(field)) if padded else self._width

    def _steps(self, field: Field, numbers: int) -> range:
        return range(0, self._width * numbers, self._step(field, numbers))

    def _element(self, access: Access) -> str:
        return super()._element(access) if not self._vectors or not access.field.dims else self._lane("in", access)

    def _target(self, access: Access) -> str:
        return self._lane("out", access) if self._vectors else super()._target(access)

    def _lane(self, prefix: str, access: Access) -> str:
        slot = self._slots.fields[access.field]
        if self._side_by_side(access.field):
            return f"{prefix}{slot}[u * {self._record(access.field)} + {access.channel}]"
        return f"{prefix}{slot}_{access.channel}[u]"

    # -- sums ---------------------------------------------------------------------------------------------------------

    def _add(self, k: int, value: str) -> str:
        return self._counted_in(f"sum[{self._sums[k]}] += (double)({value});")

    def _take_maximum(self, k: int, value: str) -> str:
        total = f"sum[{self._sums[k]}]"
        return self._counted_in(f"{total} = optpy_max({total}, (double)fabs({value}));")

    def _counted_in(self, statement: str) -> str:
        return f"if (valid) {statement}" if self._vectors else statement

    def _local_sum(self, x: LocalSum, checked: bool, n: int) -> list[str]:
        return [*super()._local_sum(x, checked, n), *(f"{name} = optpy_over_lanes({name}, lanes);" for name in x.names)]

    def _counted(self, name: str, begin: str, end: str, innermost: bool) -> str:
        if not innermost:
            return super()._counted(name, begin, end, innermost)
        return f"for ({self._dialect.index} {name} = {begin} + lane; {name} < {end}; {name} += lanes) {{"

    def _results(self, routine: Routine, checked: bool) -> list[str]:
        lines = super()._results(routine, checked)
        return ["if (lane == 0) {", *indent(lines), "}"] if routine.locals else lines


def _without_unused(prologue: list[str], body: list[str]) -> list[str]:
    """The declarations but for those of arrays that the body does not name: of channels that stand side by side, all
    are reached from one."""
    array = re.compile(r"\bf\d+_\d+\b")
    named = set(array.findall("\n".join(body)))
    declared = [(line, array.search(line)) for line in prologue]
    return [line for line, found in declared if found is None or found[0] in named]


def is_elementwise(routine: Routine, slots: Slots) -> bool:
    """Whether a routine reads and stores nothing but its own point, so that several points can be taken at a time."""
    if routine.locals or routine.accumulates or not routine.domain or not routine.stores:
        return False
    here = point(routine.domain)
    dims = tuple(i.dim for i in routine.domain)
    accesses = [*routine.accesses(), *(s.target for s in routine.stores)]
    if any(a.field.dims and (a.field.dims != dims or a.index != here) for a in accesses):
        return False
    if any(isinstance(v.key, InBounds | IndexValue | IndexCondition) for v in variables(routine.roots)):
        return False
    return all(n == f.channels for f, n in _stored_channels(routine).items() if f.dims in slots.interleaved)


def _stored_channels(routine: Routine) -> Mapping[Field, int]:
    found: dict[Field, int] = {}
    for s in routine.stores:
        found[s.target.field] = found.get(s.target.field, 0) + 1
    return found
