"""Kernels to C functions: the loop harness of the CPU around the bodies.

Each kernel visits a range of segments (runs of points of one row). In a segment, points of the interior run in a
plain inner loop over contiguous memory that compilers vectorise; the rest goes through a function of its own that
checks its reads. Sums are kept in double, one for each segment, so that they do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..errors import InternalError
from ..ir import (
    Access,
    Dim,
    Domain,
    Field,
    InBounds,
    Index,
    IndexCondition,
    IndexValue,
    LocalName,
    LocalSum,
    Loop,
    Reduce,
    Routine,
    Scalar,
    entries_of,
    entry_dim,
)
from ..symbolic.affine import Affine, Divides, Entry, FloorDiv
from ..symbolic.expr import ONE, Expr
from ..symbolic.traverse import variables
from .body import Body
from .dialect import Dialect
from .lower import Kernel, loop_offset
from .slots import Slots
from .tables import Offsets, Sorted, TableKey, incidences, row_of, table_of, tables_of


class KernelPrinter:
    """Prints the functions of one kernel.

    Args:
        kernel: what to print.
        slots: the numbering of the context.
        dialect: the spellings.
        solver_scalars: names of the run-time scalars, in order.
        segments: slot of the list of segments that it visits.
        first_reduction: slot of the kernel's first reduction.
    """

    def __init__(
        self,
        kernel: Kernel,
        slots: Slots,
        dialect: Dialect,
        solver_scalars: tuple[str, ...],
        segments: int,
        first_reduction: int,
    ) -> None:
        if kernel.border.accumulates:
            raise InternalError(f"{kernel.name} adds to what other points add to: there is no C for atomic additions")
        self._kernel = kernel
        self._slots = slots
        self._dialect = dialect
        self._scalars = solver_scalars
        self._segments = segments
        self._first_reduction = first_reduction
        self._domain = kernel.domain
        self._inner = str(self._domain[-1]) if self._domain else "only"
        self._loops = incidences(kernel.border)
        self._tables = tables_of(kernel.border)

    def source(self) -> str:
        if all(m == (0, 0) for m in self._kernel.margins):
            return self._function("", self._points("begin", "end", checked=False), self._partials(add=False))
        # Border and interior in passes of their own: what a function sets up costs more than a border point.
        border = [
            "for (int part = 0; part < 2; ++part) {",
            "    const int64_t start = part ? high : begin, stop = part ? end : low;",
            *_indent(self._points("start", "stop", checked=True)),
            "}",
        ]
        interior = self._points("low", "high", checked=False)
        first = f"{self._kernel.name}_border(c, scalar, first, last);"
        return "\n\n".join(
            [
                self._function("_border", [*self._limits(), *border], self._partials(add=False)),
                self._function("", [*self._limits(), *interior], self._partials(add=True), first),
            ]
        )

    # -- functions -----------------------------------------------------------------------------------------------

    def _function(self, suffix: str, segment: list[str], partials: list[str], before: str = "") -> str:
        """A function that visits the segments [first, last)."""
        routine = self._kernel.border if suffix else self._kernel.interior
        attribute = "__attribute__((noinline)) " if suffix else ""
        arguments = "const Context *c, const double *scalar, int64_t first, int64_t last"
        lines = [
            f"static {attribute}void {routine.name}{suffix}({arguments}) {{",
            *_indent([before] if before else []),
            *_indent(self._prologue(routine)),
            f"    const Segment *segments = c->segments[{self._segments}];",
            "    for (int64_t at = first; at < last; ++at) {",
            "        const int64_t row = segments[at].row, begin = segments[at].begin, end = segments[at].end;",
            *_indent(self._outer_indices(), 2),
            *_indent([self._accumulator(k, r) for k, r in enumerate(routine.reductions)], 2),
            *_indent(segment, 2),
            *_indent(partials, 2),
            *_indent(_uses("row"), 2),
            "    }",
            *_indent(_uses("scalar")),
            "}",
        ]
        return "\n".join(lines)

    def _points(self, begin: str, end: str, checked: bool) -> list[str]:
        """The loop over the points of a row from begin to end."""
        routine = self._kernel.border if checked else self._kernel.interior
        return [
            "OPTPY_INDEPENDENT",
            f"for (int64_t {self._inner} = {begin}; {self._inner} < {end}; ++{self._inner}) {{",
            *_indent(self._body(routine, checked)),
            "}",
        ]

    def _limits(self) -> list[str]:
        """The interior [low, high) of this segment; empty on a border row."""
        margins = self._kernel.margins
        outer = [
            f"{i} >= {low} && {i} < {self._size(i.dim)} - {high}"
            for i, (low, high) in zip(self._domain[:-1], margins[:-1], strict=True)
            if (low, high) != (0, 0)
        ]
        low, high = margins[-1]
        inside = " && ".join(outer) or "1"
        length = self._size(self._domain[-1].dim)
        return [
            f"const int inside = {inside};",
            # Rows and segments begin on cache lines: from there, few loads straddle two of them.
            f"const int64_t first_inside = optpy_whole_vectors({low}, {length});",
            "const int64_t from = begin > first_inside ? begin : first_inside;",
            f"const int64_t to = end < {length} - {high} ? end : {length} - {high};",
            "const int64_t low = inside && from < to ? from : end, high = inside && from < to ? to : end;",
        ]

    # -- what a function needs before its loops --------------------------------------------------------------------

    def _prologue(self, routine: Routine) -> list[str]:
        stored = {s.target.field for s in routine.stores}
        channels: dict[tuple[Field, int], None] = {}
        keys = [v.key for v in variables(routine.roots)]
        for a in (*(k for k in keys if isinstance(k, Access)), *(s.target for s in routine.stores)):
            channels[a.field, a.channel] = None
        lines = [f"const int64_t {self._size(d)} = c->size[{n}];" for d, n in self._slots.sizes.items()]
        lines += [f"const int64_t pitch{n} = c->pitch[{n}];" for n in self._slots.grids.values()]
        for key in self._tables:
            lines.append(f"const int32_t *restrict {self._table(key)} = c->table[{self._slots.tables[key]}];")
        for f, channel in channels:
            const = "" if f in stored else "const "
            ctype = self._dialect.types[f.dtype]
            slot = self._slots.fields[f]
            lines.append(
                f"{const}{ctype} *restrict {self._array(f, channel)} = "
                f"({const}{ctype} *)c->field[{slot}] + {channel} * c->plane[{slot}];  /* {f.name} */"
            )
        for name, text in self._scalar_values(keys).items():
            lines.append(f"const {self._dialect.real} {name} = ({self._dialect.real}){text};")
        return lines + _uses(
            *map(self._table, self._tables),
            *(self._size(d) for d in self._slots.sizes),
            *(f"pitch{n}" for n in self._slots.grids.values()),
        )

    def _scalar_values(self, keys: list[object]) -> dict[str, str]:
        found: dict[str, str] = {}
        for key in keys:
            if isinstance(key, Scalar):
                name = self._scalar(key)
                if "." in key.name:
                    found[name] = f"scalar[{self._scalars.index(key.name.partition('.')[2])}]"
                else:
                    found[name] = f"c->param[{self._slots.params[key.name]}]"
        return found

    def _outer_indices(self) -> list[str]:
        outer = self._domain[:-1]
        lines = []
        rest = "row"
        for n, i in enumerate(outer):
            inner_rows = " * ".join(self._size(k.dim) for k in outer[n + 1 :])
            if inner_rows:
                lines.append(f"const int64_t {i} = ({rest}) / ({inner_rows});")
                rest = f"({rest}) % ({inner_rows})"
            else:
                lines.append(f"const int64_t {i} = {rest};")
        return lines + _uses(*map(str, outer))

    # -- bodies --------------------------------------------------------------------------------------------------

    def _body(self, routine: Routine, checked: bool) -> list[str]:
        body = Body(self._dialect, self._leaf_printer(checked, ()))
        lines = self._entries(routine.roots, set(routine.domain))
        for n, x in enumerate(routine.locals):
            lines += self._local_sum(x, checked, n)
        values = body.compute([s.value for s in routine.stores] + [r.value for r in routine.reductions])
        lines += body.lines
        n_stores = len(routine.stores)
        for store, value in zip(routine.stores, values, strict=False):
            f, ctype = store.target.field, self._dialect.types[store.target.field.dtype]
            target = f"{self._array(f, store.target.channel)}[{self._address(store.target)}]"
            lines.append(f"{target} = {value};" if ctype == self._dialect.real else f"{target} = ({ctype})({value});")
        for k, (reduction, value) in enumerate(zip(routine.reductions, values[n_stores:], strict=True)):
            if reduction.maximum:
                lines.append(self._take_maximum(f"sum{k}", value))
            else:
                lines.append(f"sum{k} += (double)({value});")
        return [*lines, *_uses(self._inner)]

    def _take_maximum(self, total: str, value: str) -> str:
        """The largest magnitude so far. NaN is kept: as bits, it is larger than every number, infinity included."""
        magnitude = f"{self._dialect.functions['abs']}({value})"
        bits = f"optpy_bits{self._dialect.suffix}({magnitude})"
        return f"{total} = {bits} > {total} ? {bits} : {total};"

    def _accumulator(self, n: int, reduction: Reduce) -> str:
        ctype = f"optpy_bits{self._dialect.suffix}_t" if reduction.maximum else "double"
        return f"{ctype} sum{n} = 0;"

    def _partials(self, add: bool) -> list[str]:
        """Store what the segment's points add up to, or add it to what the border has left there."""
        lines = []
        for n, reduction in enumerate(self._kernel.border.reductions):
            partial = f"c->partial[{self._first_reduction + n}][at]"
            total = f"sum{n}"
            if reduction.maximum:
                total = f"(double)optpy_from_bits{self._dialect.suffix}(sum{n})"
            if add:
                total = f"optpy_max({partial}, {total})" if reduction.maximum else f"{partial} + {total}"
            lines.append(f"{partial} = {total};")
        return lines

    def _local_sum(self, x: LocalSum, checked: bool, n: int) -> list[str]:
        lines = [f"double {name} = 0;" for name in x.names]
        guard = Body(self._dialect, self._leaf_printer(checked, ()), f"g{n}_")
        text = guard.compute([x.condition])[0]
        body = Body(self._dialect, self._leaf_printer(checked, x.variables), f"l{n}_")
        results = body.compute(x.values)
        inner = self._entries(x.values, set(x.variables)) + body.lines
        inner += [f"{name} += (double)({value});" for name, value in zip(x.names, results, strict=True)]
        for loop in reversed(x.loops):
            inner = self._loop(loop, inner)
        if x.condition is not ONE:
            inner = [f"if ({text}) {{", *_indent(inner), "}"]
        return [*lines, *guard.lines, *inner]

    def _loop(self, loop: Loop, inner: list[str]) -> list[str]:
        """The loop over a dim, or over the edges at a point: positions in the tables sorted by a slot."""
        if isinstance(loop, Index):
            head = f"for (int64_t {loop} = 0; {loop} < {self._size(loop.dim)}; ++{loop}) {{"
            return [head, *_indent(inner + _uses(str(loop))), "}"]
        offsets, at, position = self._table(Offsets(loop.graph, loop.slot)), f"{loop.edge}_at", f"{loop.edge}_q"
        numbers = Sorted(loop.graph, loop.slot, None)
        number = []
        if numbers in self._tables:
            number = [f"const int64_t {loop.edge} = {self._table(numbers)}[{position}];", *_uses(str(loop.edge))]
        return [
            f"const int64_t {at} = {self._flat(loop.at, loop.graph.slots[loop.slot])};",
            f"for (int64_t {position} = {offsets}[{at}]; {position} < {offsets}[{at} + 1]; ++{position}) {{",
            *_indent(number + inner),
            "}",
        ]

    def _flat(self, index: tuple[Affine, ...], dims: tuple[Dim, ...]) -> str:
        """The number of a point of a grid in C order, without the padding of rows."""
        text = self._affine(index[0])
        for a, dim in zip(index[1:], dims[1:], strict=True):
            text = f"({text}) * {self._size(dim)} + ({self._affine(a)})"
        return text

    def _entries(self, roots: Iterable[Expr], rows: set[Index]) -> list[str]:
        """Names for what the slots of the edges point at."""
        entries = [e for v in variables(roots) for e in entries_of(v.key) if row_of(e) in rows]
        lines = []
        for e in dict.fromkeys(entries):
            row, key = row_of(e), table_of(e, self._loops)
            position = f"{row}_q" if isinstance(key, Sorted) else str(row)
            lines.append(f"const int64_t {self._entry(e)} = {self._table(key)}[{position}];  /* {e} */")
        return lines

    def _entry(self, e: Entry) -> str:
        return f"{self._table(table_of(e, self._loops))}_{row_of(e)}"

    def _table(self, key: TableKey) -> str:
        return f"table{self._slots.tables[key]}"

    def _leaf_printer(self, checked: bool, loops: Domain) -> Callable[[object], tuple[str, str]]:
        return lambda key: self._leaf(key, checked, loops)

    def _leaf(self, key: object, checked: bool, loops: Domain) -> tuple[str, str]:
        """(C type, text) of a leaf."""
        real = self._dialect.real
        match key:
            case Access():
                ctype = self._dialect.types[key.field.dtype]
                load = f"{self._array(key.field, key.channel)}[{self._address(key)}]"
                checks = self._checks(key, checked, loops)
                return ctype, f"({' && '.join(checks)}) ? {load} : 0" if checks else load
            case Scalar():
                return real, self._scalar(key)
            case LocalName():
                return "double", key.name
            case InBounds():
                return "int", self._inside(key.index, key.dim)
            case IndexValue():
                return "int64_t", self._affine(key.index)
            case IndexCondition():
                c = key.condition
                if isinstance(c, Divides):
                    return "int", f"({self._affine(c.numerator)}) % {c.denominator} == 0"
                return "int", f"({self._affine(c.value)}) == 0"
        raise InternalError(f"no C for the leaf {key}")

    def _checks(self, access: Access, checked: bool, loops: Domain) -> list[str]:
        """The bound checks that a read needs: those axes that are not known to be inside."""
        found = []
        for a, dim in zip(access.index, access.field.dims, strict=True):
            if any(isinstance(x, Entry) and entry_dim(x) == dim and a.offset_from(x) == 0 for x in a.atoms):
                continue  # checked when the graph was bound
            own, free = loop_offset(a, self._domain), loop_offset(a, loops)
            inside = own is not None and own[0].dim == dim and (own[1] == 0 or not checked)
            if not inside and not (free is not None and free[0].dim == dim and free[1] == 0):
                found.append(self._inside(a, dim))
        return found

    def _inside(self, a: Affine, dim: Dim) -> str:
        return f"(uint64_t)({self._affine(a)}) < (uint64_t){self._size(dim)}"

    # -- names and addresses ---------------------------------------------------------------------------------------

    def _address(self, access: Access) -> str:
        if not access.index:
            return "0"
        text = ""
        for a, dim in zip(access.index[:-1], access.field.dims[:-1], strict=True):
            text = f"({text}) * {self._size(dim)} + ({self._affine(a)})" if text else self._affine(a)
        last = self._affine(access.index[-1])
        if access.field.dims in self._slots.interleaved and access.field.channels > 1:
            return f"({last}) * {access.field.channels}"
        return f"({text}) * pitch{self._slots.grids[access.field.dims]} + {last}" if text else last

    def _affine(self, a: Affine) -> str:
        text = ""
        for atom, c in a.terms:
            if isinstance(atom, FloorDiv):
                name = f"optpy_floordiv({self._affine(atom.numerator)}, {atom.denominator})"
            elif isinstance(atom, Entry):
                name = self._entry(atom)
            elif isinstance(atom, Dim):
                name = self._size(atom)
            else:
                assert isinstance(atom, Index)
                name = atom.name
            part = name if abs(c) == 1 else f"{abs(c)} * {name}"
            text += (f" - {part}" if text else f"-{part}") if c < 0 else (f" + {part}" if text else part)
        if a.constant or not text:
            text += f" {'-' if a.constant < 0 else '+'} {abs(a.constant)}" if text else str(a.constant)
        return text

    def _size(self, dim: Dim) -> str:
        return f"n_{dim.name}" if dim.name.isascii() and dim.name.isidentifier() else f"n{self._slots.sizes[dim]}"

    def _array(self, f: Field, channel: int) -> str:
        return f"f{self._slots.fields[f]}_{channel}"

    def _scalar(self, key: Scalar) -> str:
        return f"s_{key.name.replace('.', '_')}"


def _indent(lines: list[str], depth: int = 1) -> list[str]:
    return ["    " * depth + line for line in lines if line]


def _uses(*names: str) -> list[str]:
    """Marks names as used: not every body needs every size."""
    return [f"{' '.join(f'(void){n};' for n in names)}"] if names else []
