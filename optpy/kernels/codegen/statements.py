"""The loop IR to text: statements that C and CUDA spell alike. A record has one spelling; nothing is decided here."""

from __future__ import annotations

import math

from optpy.errors import InternalError
from optpy.ir import Access, Extent, Hoisted, InBounds, IndexCondition, IndexValue, LocalName, Plane, Scalar, loops
from optpy.kernels.codegen.body import Body
from optpy.kernels.codegen.conventions import Conventions
from optpy.kernels.codegen.spelling import Spelling
from optpy.symbolic.inversion import Divides

_BEFORE = {"independent": "OPTPY_INDEPENDENT", "narrow": "OPTPY_NARROW", "unrolled": "#pragma unroll"}
"""The line before a loop, by its kind."""


class StatementPrinter:
    """Prints blocks of statements; each target adds its own.

    Args:
        conventions: names, numbers and types.
    """

    def __init__(self, conventions: Conventions) -> None:
        self._conventions = conventions
        self._dialect = conventions.dialect
        self._spell = Spelling(conventions)
        self._int = f"const {conventions.dialect.index}"

    def block(self, block: loops.Block, depth: int = 0) -> list[str]:
        """The lines of a block, so many levels to the right."""
        return [line for s in block for line in indent(self.statement(s), depth)]

    def statement(self, s: loops.Statement) -> list[str]:
        """The lines of a statement."""
        spell = self._spell
        match s:
            case loops.Declare():
                return [self._declaration(s.what)]
            case loops.Let():
                return [f"{self._int} {s.name} = {spell.integer(s.value)};"]
            case loops.LetFlag():
                return [f"const int {s.name} = {spell.all_of(s.conditions)};"]
            case loops.LetNumber():
                return [f"const {self._dialect.real} {s.name} = {spell.values[s.value]};"]
            case loops.LetSum():
                return [f"const double {s.name} = {self.element(s.operand)};"]
            case loops.Unravel():
                return self._unravel(s)
            case loops.Lookup():
                return [self._lookup(s)]
            case loops.Evaluate():
                return self._evaluate(s)
            case loops.Store():
                return [self._store(s)]
            case loops.Accumulator():
                return [f"{self._accumulator(s.maximum)} {s.name} = 0;"]
            case loops.Accumulate():
                guard = f"if ({spell.condition(s.guard)}) " if s.guard else ""
                return [guard + (self._raise(s) if s.maximum else f"{s.name} += (double)({spell.values[s.value]});")]
            case loops.Loop():
                return self._loop(s)
            case loops.If():
                then = [f"if ({spell.all_of(s.conditions)}) {{", *self.block(s.then, 1)]
                return [*then, *(["} else {", *self.block(s.otherwise, 1)] if s.otherwise else []), "}"]
            case loops.BodyStage():
                return ["{", *indent(["OPTPY_ANEW;", *self.block(s.body)]), "}"]
            case loops.Alloc():
                zeros = " = {0}" if s.cleared else ""
                return [f"{spell.ctype(s.field)} {s.field}[{math.prod(s.extents)}]{zeros};"]
        raise InternalError(f"no text for {s}")

    # -- declarations --------------------------------------------------------------------------------------------------

    def _declaration(self, what: object) -> str:
        symbols, spell, restrict = self._conventions.symbols, self._spell, self._dialect.restrict
        match what:
            case Extent():
                return f"{self._int} {spell.size(what)} = c->size[{symbols.sizes[what]}];"
            case loops.Pitch():
                return f"{self._int} {spell.pitch(what.dims)} = c->pitch[{symbols.grids[what.dims]}];"
            case loops.TablePointer():
                return f"const int32_t *{restrict} {spell.table(what.key)} = c->table[{symbols.tables[what.key]}];"
            case loops.ChannelPointer():
                const, (base, plane) = "" if what.writable else "const ", self._memory(what)
                pointer = f"{const}{spell.ctype(what.field)} *"
                name = f"{pointer}{restrict} {spell.array(what.field, what.channel)}"
                return f"{name} = ({pointer}){base} + {what.channel} * {plane};  /* {what.field.name} */"
            case Scalar():
                real = self._dialect.real
                return f"const {real} {spell.scalar(what)} = ({real}){self._given(what)};"
            case loops.Mask():
                return f"const uint8_t *solved = (const uint8_t *)c->field[{symbols.fields[what.field]}];"
        raise InternalError(f"no text for {what}")

    def _memory(self, array: loops.ChannelPointer) -> tuple[str, str]:
        """The address of a field, and the elements from one channel to the next."""
        number = self._conventions.symbols.fields[array.field]
        return f"c->field[{number}]", f"c->plane[{number}]"

    def _given(self, key: Scalar) -> str:
        if key.of_solver:
            return f"scalar[{self._conventions.scalars.index(key.name)}]"
        return f"c->param[{self._conventions.symbols.params[key.name]}]"

    # -- integers ------------------------------------------------------------------------------------------------------

    def _unravel(self, s: loops.Unravel) -> list[str]:
        lines, rest = [], s.number
        for n, i in enumerate(s.domain):
            inner = " * ".join(self._spell.size(k.dim) for k in s.domain[n + 1 :])
            if inner:
                lines.append(f"{self._int} {i} = ({rest}) / ({inner});")
                rest = f"({rest}) % ({inner})"
            else:
                lines.append(f"{self._int} {i} = {rest};")
        return lines + uses(*map(str, s.domain))

    def _lookup(self, s: loops.Lookup) -> str:
        load = self._spell.integer(s.value)
        if s.guard is not None:  # -1 is outside of every grid, so that a check refuses it
            load = f"{self._spell.condition(s.guard)} ? {load} : -1"
        self._spell.entries[s.entry] = s.name
        return f"{self._int} {s.name} = {load};  /* {s.entry} */"

    # -- numbers -------------------------------------------------------------------------------------------------------

    def _evaluate(self, s: loops.Evaluate) -> list[str]:
        reads = dict(s.reads)
        body = Body(self._dialect, lambda key: self._leaf(key, reads), s.prefix)
        self._spell.values = dict(zip(s.values, body.compute(s.values), strict=True))
        return body.lines

    def _leaf(self, key: object, reads: dict[Access, loops.Load]) -> tuple[str, str]:
        """(C type, text) of a leaf."""
        spell = self._spell
        match key:
            case Access():
                load = reads[key]
                text = self.element(load.operand)
                return spell.ctype(key.field), f"({spell.all_of(load.guards)}) ? {text} : 0" if load.guards else text
            case Plane():
                return f"{spell.ctype(key.field)} *", spell.array(key.field, key.channel)
            case Scalar():
                return self._dialect.real, spell.scalar(key)
            case LocalName():
                return "double", key.name
            case Hoisted():
                return self._dialect.real, key.name
            case InBounds():
                return "int", spell.condition(key)
            case IndexValue():
                return self._dialect.index, spell.integer(key.index)
            case IndexCondition():
                c = key.condition
                if isinstance(c, Divides):
                    return "int", f"({spell.integer(c.numerator)}) % {c.denominator} == 0"
                return "int", f"({spell.integer(c.value)}) == 0"
        raise InternalError(f"no text for the leaf {key}")

    def element(self, operand: loops.MemoryOperand | loops.Lane) -> str:
        """The number that an operand holds."""
        if isinstance(operand, loops.Lane):
            if operand.stride is None:
                return f"{operand.name}.value[{operand.lane}]"
            return (
                f"{operand.name}[u]"
                if operand.stride == 1
                else f"{operand.name}[u * {operand.stride} + {operand.lane}]"
            )
        assert operand.address is not None
        return (
            f"{self._spell.array(operand.access.field, operand.access.channel)}[{self._spell.integer(operand.address)}]"
        )

    def _store(self, s: loops.Store) -> str:
        value, target = self._spell.values[s.value], self.element(s.operand)
        guard = f"if ({self._spell.all_of(s.guards)}) " if s.guards else ""
        if s.atomic:
            return f"{guard}optpy_add(&{target}, {value});"
        if s.update == "max=":
            return f"{guard}{target} = {self._dialect.functions['maximum']}({target}, {value});"
        ctype = self._spell.ctype(s.operand.field)
        value = value if ctype == self._dialect.real else f"({ctype})({value})"
        return f"{guard}{target} {s.update} {value};"

    def _accumulator(self, maximum: bool) -> str:
        """The type of a sum, or of the largest magnitude."""
        return "double"

    def _raise(self, s: loops.Accumulate) -> str:
        """The largest magnitude so far."""
        raise NotImplementedError

    # -- loops ---------------------------------------------------------------------------------------------------------

    def _loop(self, s: loops.Loop) -> list[str]:
        name, step = str(s.variable), f"++{s.variable}" if s.step == 1 else f"{s.variable} += {s.step}"
        low, high = self._spell.integer(s.low), self._spell.integer(s.high)
        before = [_BEFORE[s.kind]] if s.kind in _BEFORE else []
        start = f"{low} + lane" if s.kind == "lanes" else low
        step = f"{name} += lanes" if s.kind == "lanes" else step
        return [
            *before,
            f"for ({self._dialect.index} {name} = {start}; {name} < {high}; {step}) {{",
            *self.block(s.body, 1),
            *indent(uses(name)),
            "}",
        ]


def indent(lines: list[str], depth: int = 1) -> list[str]:
    """The lines, so many levels to the right."""
    return ["    " * depth + line for line in lines if line]


def uses(*names: str) -> list[str]:
    """Marks names as used: not every block needs every loop variable."""
    return [f"{' '.join(f'(void){n};' for n in names)}"] if names else []
