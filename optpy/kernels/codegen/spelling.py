"""Names, whole numbers and conditions of the loop IR in the C family."""

from __future__ import annotations

from collections.abc import Iterable

from optpy.ir import Dim, Field, InBounds, Index, Scalar, loops
from optpy.kernels.codegen.target import Target
from optpy.symbolic.affine import Affine, Entry, FloorDiv
from optpy.symbolic.expr import Expr


class Spelling:
    """Spells what is no statement.

    Args:
        target: numbers and types.

    Attributes:
        entries: names of the entries that have been looked up.
        values: texts of the expressions that have been evaluated.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.entries: dict[Entry, str] = {}
        self.values: dict[Expr, str] = {}

    # -- names -------------------------------------------------------------------------------------------------------

    def size(self, dim: Dim) -> str:
        plain = dim.name.isascii() and dim.name.isidentifier()
        return f"n_{dim.name}" if plain else f"n{self.target.slots.sizes[dim]}"

    def pitch(self, dims: tuple[Dim, ...]) -> str:
        return f"pitch{self.target.slots.grids[dims]}"

    def table(self, key: object) -> str:
        return f"table{self.target.slots.tables[key]}"  # type: ignore[index]

    def array(self, field: Field, channel: int) -> str:
        slot = self.target.slots.fields.get(field)
        return field.name if slot is None else f"f{slot}_{channel}"

    def scalar(self, key: Scalar) -> str:
        return f"s_solver_{key.name}" if key.of_solver else f"s_{key.name}"

    def ctype(self, field: Field) -> str:
        return self.target.dialect.types[field.dtype]

    # -- whole numbers -----------------------------------------------------------------------------------------------

    def whole(self, value: loops.Whole) -> str:
        match value:
            case Affine():
                return self._affine(value)
            case loops.Count():
                return " * ".join(map(self.size, value.dims)) or "1"
            case loops.Flat():
                return self._flat(value)
            case loops.Fetch():
                return f"{self.table(value.table)}[{self.whole(value.position)}]"
            case loops.Extreme():
                left, right, sign = (
                    self.whole(value.left),
                    self.whole(value.right),
                    "<" if value.which == "min" else ">",
                )
                return f"{left} {sign} {right} ? {left} : {right}"
            case loops.Choose():
                then, otherwise = self.whole(value.then), self.whole(value.otherwise)
                return f"{self.all_of(value.conditions)} ? {then} : {otherwise}"
            case loops.VectorStart():
                return f"optpy_whole_vectors({value.margin}, {self._affine(value.length)})"

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
            case Entry():
                return self.entries[atom]
            case Dim():
                return self.size(atom)
            case loops.Pitch():
                return self.pitch(atom.dims)
        assert isinstance(atom, Index | loops.Variable)
        return atom.name

    def _flat(self, value: loops.Flat) -> str:
        text = self.whole(value.index[0])
        for i, extent in zip(value.index[1:], value.extents, strict=True):
            text = f"({text}) * {self.whole(extent)} + {self.whole(i)}"
        return text if value.record == 1 else f"({text}) * {value.record}"

    # -- conditions --------------------------------------------------------------------------------------------------

    def all_of(self, conditions: Iterable[loops.Condition]) -> str:
        return " && ".join(map(self.condition, conditions)) or "1"

    def condition(self, c: loops.Condition) -> str:
        match c:
            case InBounds():
                unsigned = self.target.dialect.unsigned
                return f"({unsigned})({self._affine(c.index)}) < ({unsigned}){self.size(c.dim)}"
            case loops.Within():
                return f"{c.index} >= {c.low} && {c.index} < {self.size(c.index.dim)} - {c.high}"
            case loops.Less():
                return f"{self._affine(c.left)} < {self._affine(c.right)}"
            case loops.Flag():
                return c.name if c.value else f"{c.name} == 0"
            case loops.InRow():
                return f"at % {self.pitch(c.dims)} + u < {self.size(c.dims[-1])}"
            case loops.Holds():
                return self.values[c.value]
