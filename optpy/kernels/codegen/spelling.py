"""Names, integers and conditions of the loop IR in the C family."""

from __future__ import annotations

from collections.abc import Iterable

from optpy.ir import Extent, Field, InBounds, LoopVariable, Scalar, loops
from optpy.kernels.codegen.conventions import Conventions
from optpy.kernels.codegen.tables import index_is_inside
from optpy.symbolic.affine import Affine, FloorDiv, RowNumber, TableEntry
from optpy.symbolic.expr import Expr


class Spelling:
    """Spells what is no statement.

    Args:
        conventions: numbers and types.

    Attributes:
        entries: names of the entries that have been looked up.
        values: texts of the expressions that have been evaluated.
    """

    def __init__(self, conventions: Conventions) -> None:
        self.conventions = conventions
        self.entries: dict[TableEntry, str] = {}
        self.values: dict[Expr, str] = {}

    # -- names ---------------------------------------------------------------------------------------------------------

    def size(self, dim: Extent) -> str:
        plain = dim.name.isascii() and dim.name.isidentifier()
        return f"n_{dim.name}" if plain else f"n{self.conventions.symbols.sizes[dim]}"

    def pitch(self, dims: tuple[Extent, ...]) -> str:
        return f"pitch{self.conventions.symbols.grids[dims]}"

    def table(self, key: object) -> str:
        return f"table{self.conventions.symbols.tables[key]}"  # type: ignore[index]

    def array(self, field: Field, channel: int) -> str:
        number = self.conventions.symbols.fields.get(field)
        return field.name if number is None else f"f{number}_{channel}"

    def scalar(self, key: Scalar) -> str:
        return f"s_solver_{key.name}" if key.of_solver else f"s_{key.name}"

    def ctype(self, field: Field) -> str:
        return self.conventions.dialect.types[field.dtype]

    # -- integers ------------------------------------------------------------------------------------------------------

    def integer(self, value: loops.Integer) -> str:
        match value:
            case Affine():
                return self._affine(value)
            case loops.Count():
                return " * ".join(map(self.size, value.dims)) or "1"
            case loops.Flat():
                return self._flat(value)
            case loops.TableLoad():
                return f"{self.table(value.table)}[{self.integer(value.position)}]"
            case loops.MinMax():
                left, right, sign = (
                    self.integer(value.left),
                    self.integer(value.right),
                    "<" if value.which == "min" else ">",
                )
                return f"{left} {sign} {right} ? {left} : {right}"
            case loops.Select():
                then, otherwise = self.integer(value.then), self.integer(value.otherwise)
                return f"{self.all_of(value.conditions)} ? {then} : {otherwise}"
            case loops.WholeVectors():
                return f"optpy_vectors_{value.which}({self._affine(value.place)})"

    def _affine(self, a: Affine) -> str:
        text = ""
        for atom, c in a.terms:
            name = self._atom(atom)
            part = name if abs(c) == 1 else f"{abs(c)} * {name}"
            text += (f" - {part}" if text else f"-{part}") if c < 0 else (f" + {part}" if text else part)
        if a.constant or not text:
            text += f" {'-' if a.constant < 0 else '+'} {abs(a.constant)}" if text else str(a.constant)
        return text

    def _atom(self, atom: object) -> str:
        match atom:
            case FloorDiv():
                return f"optpy_floordiv({self._affine(atom.numerator)}, {atom.denominator})"
            case TableEntry():
                return self.entries[atom]
            case RowNumber():
                return self._row(atom)
            case Extent():
                return self.size(atom)
            case loops.Pitch():
                return self.pitch(atom.dims)
        assert isinstance(atom, LoopVariable | loops.Variable)
        return atom.name

    def _row(self, number: RowNumber) -> str:
        counted: tuple[Extent, ...] = number.table.counted
        flat = self._flat(loops.Flat(number.index, tuple(map(Affine.of, counted[1:]))))
        if index_is_inside(number):
            return f"({flat})"
        return f"({self.all_of(map(InBounds, number.index, counted))} ? {flat} : -1)"

    def _flat(self, value: loops.Flat) -> str:
        text = self.integer(value.index[0])
        for i, extent in zip(value.index[1:], value.extents, strict=True):
            text = f"({text}) * {self.integer(extent)} + {self.integer(i)}"
        return text if value.stride == 1 else f"({text}) * {value.stride}"

    # -- conditions ----------------------------------------------------------------------------------------------------

    def all_of(self, conditions: Iterable[loops.Condition]) -> str:
        return " && ".join(map(self.condition, conditions)) or "1"

    def condition(self, c: loops.Condition) -> str:
        match c:
            case InBounds():
                unsigned = self.conventions.dialect.unsigned
                bound = self.size(c.dim) if c.dim.value is None else f"({self._affine(c.dim.value)})"
                return f"({unsigned})({self._affine(c.index)}) < ({unsigned}){bound}"
            case loops.Within():
                return f"{c.index} >= {c.low} && {c.index} < {self.size(c.index.dim)} - {c.high}"
            case loops.Less():
                return f"{self._affine(c.left)} < {self._affine(c.right)}"
            case loops.Flag():
                return c.name if c.value else f"{c.name} == 0"
            case loops.InRow():
                return f"column + u < {self.size(c.dims[-1])}"
            case loops.Holds():
                return self.values[c.value]
