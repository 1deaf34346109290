"""The loop IR to CUDA device functions: who visits which point, vector loads and stores.

Every thread adds up its sums in double; ``kernels/cuda/reduce.cuh`` makes totals of them.
"""

from __future__ import annotations

from optpy.ir import Extent, Field, loops
from optpy.kernels.codegen.statements import StatementPrinter, indent, uses

_STRIDE = "blockIdx.x * blockDim.x + threadIdx.x", "gridDim.x * blockDim.x"
"""The first step of a thread, and the steps of the whole grid."""


class CudaPrinter(StatementPrinter):
    """Prints the functions of a GPU."""

    def function(self, f: loops.Function) -> str:
        """A function that a whole grid runs together."""
        arguments = "const Context *c, const double *scalar, double *sum, bool on_delta"
        unused = indent(uses("scalar", "sum", "on_delta"))
        return "\n".join([f"OPTPY_FN void {f.name}({arguments}) {{", *self.block(f.body, 1), *unused, "}"])

    def statement(self, s: loops.Statement) -> list[str]:
        """The lines of a statement."""
        match s:
            case loops.Tiles():
                return self._tiles(s)
            case loops.GridStride():
                return self._grid_stride(s)
            case loops.ThreadGroups():
                return self._thread_groups(s)
            case loops.Vectors():
                return self._vectors(s)
            case loops.Unravel():
                return self._unravelled(s)
            case loops.Skip():
                return [f"if (!{self._spell.condition(s.flag)}) continue;"]
            case loops.MaskLoad():
                return [f"const uint8_t {s.name} = {self._solved(s)};"]
            case loops.OverLanes():
                return [f"{s.name} = optpy_over_lanes({s.name}, lanes);"]
            case loops.PackLoad():
                inside = f", {self._spell.all_of(s.guards)}" if s.guards else ""
                load = f"optpy_get<{s.width}>({self._begin(s.operand)}{inside})"
                field = s.operand.access.field
                return [f"const {self._pack(field, s.width)} {s.name} = {load};  /* {field.name} */"]
            case loops.PackStore():
                return [f"optpy_put({self._begin(s.operand)}, {s.name});"]
            case loops.PackAdd():
                guard = f"if ({self._spell.all_of(s.guards)}) " if s.guards else ""
                lanes = sum(1 << lane for lane in s.lanes)
                return [f"{guard}optpy_add<{lanes}>({self._begin(s.operand)}, {s.name});"]
            case loops.Zeros(stride=None):
                return [f"{self._pack(s.field, s.length)} {s.name} = {{}};  /* {s.field.name} */"]
            case loops.Zeros():
                return [self._run(s.field, s.name, s.stride or 1, " = {}" if s.cleared else "")]
            case loops.RunLoad():
                return [self._run(s.access.field, s.name, s.stride, ""), *self._moves(s, "load")]
            case loops.RunStore():
                return self._moves(s, "store")
        return super().statement(s)

    # -- which points --------------------------------------------------------------------------------------------------

    def _tiles(self, s: loops.Tiles) -> list[str]:
        last, index = str(s.domain[-1]), self._dialect.index
        rows, length = (
            self._spell.integer(loops.Count(tuple(i.dim for i in d))) for d in (s.domain[:-1], s.domain[-1:])
        )
        dims = tuple(i.dim for i in s.domain)
        each, skip = ["    for (; row < end; row += tiles->tall) {"], []
        if s.mask is not None:
            found = f"optpy_rows_to_solve(tiles, solved + {last}, {self._spell.pitch(dims)}, row, end)"
            head = f"uint32_t left = {found}; left && row < end; left >>= 1, row += tiles->tall"
            each = [f"    for ({head}) {{"]
            skip = ["        if (!(left & 1)) continue;"]
        return [
            f"{self._int} rows = {rows};",
            f"const Tiles *const tiles = &c->tiles[{self._conventions.symbols.grids[dims]}];",
            "for (uint32_t strip = blockIdx.x; strip < tiles->strips; strip += gridDim.x) {",
            f"    {self._int} {last} = optpy_tile_column(tiles, strip), top = optpy_tile_row(tiles, strip);",
            f"    if ({last} >= {length}) continue;",
            f"    {self._int} end = top + tiles->height < rows ? top + tiles->height : rows;",
            f"    {index} row = top + (threadIdx.x >> tiles->shift);",
            *each,
            *skip,
            *indent(uses(last), 2),
            *self.block(s.body, 2),
            "    }",
            "}",
        ]

    def _grid_stride(self, s: loops.GridStride) -> list[str]:
        first, stride = _STRIDE
        count = self._spell.integer(s.count)
        return [
            f"{self._int} row = 0;",
            f"for ({self._dialect.index} {s.index} = {first}; {s.index} < {count}; {s.index} += {stride}) {{",
            *indent(uses(str(s.index))),
            *self.block(s.body, 1),
            "}",
            *uses("row"),
        ]

    def _unravelled(self, s: loops.Unravel) -> list[str]:
        """The place along each dim of a row, from the last one on."""
        lines, rest = [], s.number
        for i in reversed(s.domain[1:]):
            above, size = f"above_{i}", self._spell.size(i.dim)
            lines.append(f"{self._int} {above} = {self._divided(rest, i.dim)}, {i} = {rest} - {above} * {size};")
            rest = above
        return [*lines, f"{self._int} {s.domain[0]} = {rest};", *uses(*map(str, s.domain))]

    def _divided(self, number: str, dim: Extent) -> str:
        return f"optpy_divided({number}, c->by_size[{self._conventions.symbols.sizes[dim]}])"

    def _thread_groups(self, s: loops.ThreadGroups) -> list[str]:
        points = self._spell.integer(loops.Count(tuple(i.dim for i in s.domain)))
        row, last = "0", "at"
        if len(s.domain) > 1:
            size = self._spell.size(s.domain[-1].dim)
            row, last = self._divided("at", s.domain[-1].dim), f"at - row * {size}"
        return [
            f"const int bits = c->lane_bits[{s.number}], lanes = 1 << bits, lane = threadIdx.x & (lanes - 1);",
            f"{self._int} points = {points}, groups = OPTPY_THREADS >> bits;",
            f"for ({self._dialect.index} at = blockIdx.x * groups + (threadIdx.x >> bits); at < points; "
            "at += gridDim.x * groups) {",
            f"    {self._int} row = {row}, {s.index} = {last};",
            *indent(uses(str(s.index))),
            *self.block(s.body, 1),
            *indent(uses("row")),
            "}",
        ]

    def _vectors(self, s: loops.Vectors) -> list[str]:
        dims = tuple(i.dim for i in s.domain)
        first, stride = _STRIDE
        skip = [
            "uint8_t visited[W];",
            "optpy_load<W>(visited, solved + at);",
            f"if (!({' | '.join(f'visited[{u}]' for u in range(s.width))})) continue;",
        ]
        pitch = self._spell.pitch(dims)
        elements = f"{self._spell.integer(loops.Count(dims[:-1]))} * {pitch}"
        column = []
        if any(isinstance(x, loops.LetFlag) and loops.InRow(dims) in x.conditions for x in loops.walk(s.body)):
            quotient = f"optpy_divided(at, c->by_pitch[{self._conventions.symbols.grids[dims]}])"
            column = [f"{self._int} column = at - {quotient} * {pitch};"]
        return [
            f"enum {{ W = {s.width} }};",
            f"{self._int} vectors = ({elements} + W - 1) / W;",
            f"for ({self._dialect.index} v = {first}; v < vectors; v += {stride}) {{",
            f"    {self._int} at = v * W;",
            *(indent(skip) if s.mask is not None else []),
            *indent(column),
            *self.block(s.body, 1),
            "}",
        ]

    def _solved(self, s: loops.MaskLoad) -> str:
        """Whether something is solved for at a point."""
        last = str(s.domain[-1]) if s.domain else "only"
        if len(s.domain) < 2:
            return f"solved[{last}]"
        return f"solved[({self._spell.integer(s.row)}) * {self._spell.pitch(tuple(i.dim for i in s.domain))} + {last}]"

    # -- vector loads and stores ---------------------------------------------------------------------------------------

    def _pack(self, field: Field, width: int) -> str:
        return f"Pack<{self._spell.ctype(field)}, {width}>"

    def _begin(self, operand: loops.MemoryOperand) -> str:
        assert operand.address is not None
        access = operand.access
        return f"{self._spell.array(access.field, access.channel)} + {self._spell.integer(operand.address)}"

    def _run(self, field: Field, name: str, stride: int, value: str) -> str:
        return f"{self._spell.ctype(field)} {name}[W * {stride}]{value};  /* {field.name} */"

    def _moves(self, s: loops.RunLoad | loops.RunStore, verb: str) -> list[str]:
        """The instructions that load or store a run of numbers."""
        begin = f"{self._spell.array(s.access.field, s.access.channel)} + at"
        begin += f" * {s.stride}" if s.stride > 1 else ""
        ends = ((f"{s.name} + {n}", f"{begin} + {n}") for n in range(0, s.width * s.stride, s.step))
        return [f"optpy_{verb}<{s.step}>({', '.join(e if verb == 'load' else e[::-1])});" for e in ends]

    # -- declarations and sums -----------------------------------------------------------------------------------------

    def _memory(self, array: loops.ChannelPointer) -> tuple[str, str]:
        base, plane = super()._memory(array)
        if array.instead is not None:
            other_base, other_plane = super()._memory(loops.ChannelPointer(array.instead, array.channel, False))
            base, plane = f"(on_delta ? {other_base} : {base})", f"(on_delta ? {other_plane} : {plane})"
        return base, "1" if array.adjacent else plane

    def _raise(self, s: loops.Accumulate) -> str:
        return f"{s.name} = optpy_max({s.name}, (double)fabs({self._spell.values[s.value]}));"
