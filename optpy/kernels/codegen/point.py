"""What happens at one point of a routine's domain, in the C family: the same text for every target.

A harness, one for each target, decides which points are visited, by whom, and where the sums go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from optpy.errors import InternalError
from optpy.ir import (
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
    Routine,
    Scalar,
    atoms_of,
    entries_of,
    entry_dim,
)
from optpy.kernels.codegen.body import Body
from optpy.kernels.codegen.dialect import Dialect
from optpy.kernels.codegen.layout import CPU, Layout, record_length
from optpy.kernels.codegen.lower import Kernel, loop_offset
from optpy.kernels.codegen.slots import Slots
from optpy.kernels.codegen.tables import (
    Offsets,
    Sorted,
    TableKey,
    incidences,
    loop_row,
    row_is_inside,
    table_of,
    tables_of,
)
from optpy.symbolic.affine import Affine, Atom, Divides, Entry, FloorDiv
from optpy.symbolic.expr import ONE, Expr
from optpy.symbolic.traverse import variables


class PointPrinter:
    """Prints the statements at a point.

    Attributes:
        layout: how fields lie in memory.

    Args:
        kernel: what to print.
        slots: the numbering of the context.
        dialect: the spellings.
        solver_scalars: names of the run-time scalars, in order.
    """

    layout: Layout = CPU

    def __init__(self, kernel: Kernel, slots: Slots, dialect: Dialect, solver_scalars: tuple[str, ...]) -> None:
        self._kernel = kernel
        self._slots = slots
        self._dialect = dialect
        self._scalars = solver_scalars
        self._domain = kernel.domain
        self._loops = incidences(kernel.border)
        self._tables = tables_of(kernel.border)
        self._numbers: dict[Entry, int] = {}
        self._int = f"const {dialect.index}"

    # -- what a function needs before its loops --------------------------------------------------------------------

    def _prologue(self, routine: Routine) -> list[str]:
        stored = {s.target.field for s in routine.stores}
        channels: dict[tuple[Field, int], None] = {}
        stored |= {x.target.field for x in routine.accumulates}
        keys = routine.keys
        for a in (*(k for k in keys if isinstance(k, Access)), *(s.target for s in routine.stores)):
            channels[a.field, a.channel] = None
        lines = [f"{self._int} {self._size(d)} = c->size[{n}];" for d, n in self._slots.sizes.items()]
        lines += [f"{self._int} pitch{n} = c->pitch[{n}];" for n in self._slots.grids.values()]
        restrict = self._dialect.restrict
        for key in self._tables:
            lines.append(f"const int32_t *{restrict} {self._table(key)} = c->table[{self._slots.tables[key]}];")
        for f, channel in channels:
            const = "" if f in stored else "const "
            ctype = self._dialect.types[f.dtype]
            base, plane = self._memory(f)
            lines.append(
                f"{const}{ctype} *{restrict} {self._array(f, channel)} = "
                f"({const}{ctype} *){base} + {channel} * {plane};  /* {f.name} */"
            )
        for name, text in self._scalar_values(keys).items():
            lines.append(f"const {self._dialect.real} {name} = ({self._dialect.real}){text};")
        return lines + uses(
            *map(self._table, self._tables),
            *(self._size(d) for d in self._slots.sizes),
            *(f"pitch{n}" for n in self._slots.grids.values()),
        )

    def _memory(self, f: Field) -> tuple[str, str]:
        """Where a field begins, and the elements from one channel to the next."""
        slot = self._slots.fields[f]
        return f"c->field[{slot}]", f"c->plane[{slot}]"

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
                lines.append(f"{self._int} {i} = ({rest}) / ({inner_rows});")
                rest = f"({rest}) % ({inner_rows})"
            else:
                lines.append(f"{self._int} {i} = {rest};")
        return lines + uses(*map(str, outer))

    # -- bodies --------------------------------------------------------------------------------------------------

    def _body(self, routine: Routine, checked: bool) -> list[str]:
        lines = self._entries(routine.keys, local=False)
        for n, x in enumerate(routine.locals):
            lines += self._local_sum(x, checked, n)
        return lines + self._results(routine, checked)

    def _results(self, routine: Routine, checked: bool) -> list[str]:
        """What is stored and added up, once the local sums are there."""
        stores, accumulates = routine.stores, routine.accumulates
        roots = [s.value for s in stores] + [x.value for x in accumulates] + [r.value for r in routine.reductions]
        lines, values = self._compute(roots, checked, (), "t")
        for store, value in zip(stores, values, strict=False):
            ctype = self._dialect.types[store.target.field.dtype]
            cast = value if ctype == self._dialect.real else f"({ctype})({value})"
            lines.append(f"{self._target(store.target)} = {cast};")
        for addition, value in zip(accumulates, values[len(stores) :], strict=False):
            checks = self._checks(addition.target, checked, ())
            guard = f"if ({' && '.join(checks)}) " if checks else ""
            lines.append(f"{guard}atomicAdd(&{self._target(addition.target)}, {value});")
        summed = values[len(stores) + len(accumulates) :]
        for k, (reduction, value) in enumerate(zip(routine.reductions, summed, strict=True)):
            lines.append(self._take_maximum(k, value) if reduction.maximum else self._add(k, value))
        return lines

    def _compute(self, roots: Sequence[Expr], checked: bool, loops: Domain, prefix: str) -> tuple[list[str], list[str]]:
        """The statements that compute some expressions, and the text of each value.

        Args:
            roots: the expressions.
            checked: whether reads at an offset from the point are checked.
            loops: the variables of the local loops around.
            prefix: of the temporaries' names.
        """
        body = Body(self._dialect, lambda key: self._leaf(key, checked, loops), prefix)
        texts = body.compute(roots)
        return body.lines, texts

    def _add(self, k: int, value: str) -> str:
        """Add to the k-th sum."""
        return f"sum{k} += (double)({value});"

    def _take_maximum(self, k: int, value: str) -> str:
        """The largest magnitude so far. NaN is kept: as bits, it is larger than every number, infinity included."""
        magnitude = f"{self._dialect.functions['abs']}({value})"
        bits = f"optpy_bits{self._dialect.suffix}({magnitude})"
        return f"sum{k} = {bits} > sum{k} ? {bits} : sum{k};"

    def _local_sum(self, x: LocalSum, checked: bool, n: int) -> list[str]:
        """The sums of a local loop, and the loop, under its condition."""
        lines = [f"double {name} = 0;" for name in x.names]
        guard, (text,) = self._compute([x.condition], checked, (), f"g{n}_")
        computed, results = self._compute(x.values, checked, x.variables, f"l{n}_")
        inner = self._entries([v.key for v in variables(x.values)], local=True) + computed
        inner += [f"{name} += (double)({value});" for name, value in zip(x.names, results, strict=True)]
        for position, loop in reversed(list(enumerate(x.loops))):
            inner = self._loop(loop, inner, innermost=position == len(x.loops) - 1)
        if x.condition is not ONE:
            inner = [f"if ({text}) {{", *indent(inner), "}"]
        return [*lines, *guard, *inner]

    def _loop(self, loop: Loop, inner: list[str], innermost: bool) -> list[str]:
        """The loop over a dim, or over the edges at a point: positions in the tables sorted by a slot."""
        if isinstance(loop, Index):
            return [
                self._counted(str(loop), "0", self._size(loop.dim), innermost),
                *indent(inner + uses(str(loop))),
                "}",
            ]
        offsets, at, position = self._table(Offsets(loop.graph, loop.slot)), f"{loop.edge}_at", f"{loop.edge}_q"
        numbers = Sorted(loop.graph, loop.slot, None)
        number = []
        if numbers in self._tables:
            number = [f"{self._int} {loop.edge} = {self._table(numbers)}[{position}];", *uses(str(loop.edge))]
        return [
            f"{self._int} {at} = {self._flat(loop.at, loop.graph.slots[loop.slot])};",
            self._counted(position, f"{offsets}[{at}]", f"{offsets}[{at} + 1]", innermost),
            *indent(number + inner),
            "}",
        ]

    def _counted(self, name: str, begin: str, end: str, innermost: bool) -> str:
        """The head of a loop of a local sum."""
        return f"for ({self._dialect.index} {name} = {begin}; {name} < {end}; ++{name}) {{"

    def _flat(self, index: tuple[Affine, ...], dims: tuple[Dim, ...]) -> str:
        """The number of a point of a grid in C order, without the padding of rows."""
        text = self._affine(index[0])
        for a, dim in zip(index[1:], dims[1:], strict=True):
            text = f"({text}) * {self._size(dim)} + ({self._affine(a)})"
        return text

    def _entries(self, keys: Iterable[object], local: bool) -> list[str]:
        """Names for what the slots of the edges point at: those that the point determines, or (local) the others."""
        found = dict.fromkeys(e for key in keys for e in entries_of(key))
        entries = [e for e in found if all(i in self._domain for i in _indices(e)) is not local]
        lines = []
        for e in sorted(entries, key=lambda e: len(atoms_of([e.row]))):  # those inside the rows of others come first
            key, row = table_of(e, self._loops), self._affine(e.row)
            load = f"{self._table(key)}[{f'{row}_q' if isinstance(key, Sorted) else row}]"
            if not row_is_inside(e):  # -1 is outside of every grid, so that a check refuses it
                load = f"{self._inside(e.row, e.table.edges)} ? {load} : -1"
            lines.append(f"{self._int} {self._entry(e)} = {load};  /* {e} */")
        return lines

    def _entry(self, e: Entry) -> str:
        row = loop_row(e)
        if row is None:
            return f"entry{self._numbers.setdefault(e, len(self._numbers))}"
        return f"{self._table(table_of(e, self._loops))}_{row}"

    def _table(self, key: TableKey) -> str:
        return f"table{self._slots.tables[key]}"

    def _leaf(self, key: object, checked: bool, loops: Domain) -> tuple[str, str]:
        """(C type, text) of a leaf."""
        match key:
            case Access():
                ctype, load = self._dialect.types[key.field.dtype], self._element(key)
                checks = self._checks(key, checked, loops)
                return ctype, f"({' && '.join(checks)}) ? {load} : 0" if checks else load
            case Scalar():
                return self._dialect.real, self._scalar(key)
            case LocalName():
                return "double", key.name
            case InBounds():
                return "int", self._inside(key.index, key.dim)
            case IndexValue():
                return self._dialect.index, self._affine(key.index)
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
            if any(_is_bound(x, dim) and a.offset_from(x) == 0 for x in a.atoms):
                continue  # checked when the graph was bound
            own, free = loop_offset(a, self._domain), loop_offset(a, loops)
            inside = own is not None and own[0].dim == dim and (own[1] == 0 or not checked)
            if not inside and not (free is not None and free[0].dim == dim and free[1] == 0):
                found.append(self._inside(a, dim))
        return found

    def _inside(self, a: Affine, dim: Dim) -> str:
        unsigned = self._dialect.unsigned
        return f"({unsigned})({self._affine(a)}) < ({unsigned}){self._size(dim)}"

    # -- names and addresses ---------------------------------------------------------------------------------------

    def _element(self, access: Access) -> str:
        """Where an access reads or stores."""
        return f"{self._array(access.field, access.channel)}[{self._address(access)}]"

    def _target(self, access: Access) -> str:
        """Where a store goes."""
        return self._element(access)

    def _address(self, access: Access) -> str:
        if not access.index:
            return "0"
        text = ""
        for a, dim in zip(access.index[:-1], access.field.dims[:-1], strict=True):
            text = f"({text}) * {self._size(dim)} + ({self._affine(a)})" if text else self._affine(a)
        last = self._affine(access.index[-1])
        if access.field.dims in self._slots.interleaved and access.field.channels > 1:
            return f"({last}) * {record_length(access.field, self._slots, self._dialect.dtype, self.layout)}"
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


def _indices(entry: Entry) -> list[Index]:
    """The loop variables inside an entry's row."""
    return [a for a in atoms_of([entry.row]) if isinstance(a, Index)]


def _is_bound(atom: Atom, dim: Dim) -> bool:
    """Whether an atom is an entry that points into a dim, and is read at an edge for certain."""
    return isinstance(atom, Entry) and entry_dim(atom) == dim and row_is_inside(atom)


def indent(lines: list[str], depth: int = 1) -> list[str]:
    """The lines, so many levels to the right."""
    return ["    " * depth + line for line in lines if line]


def uses(*names: str) -> list[str]:
    """Marks names as used: not every body needs every size."""
    return [f"{' '.join(f'(void){n};' for n in names)}"] if names else []
