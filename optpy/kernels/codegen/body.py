"""Expressions to straight-line C: the body of a loop, branch-free, every shared node computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from optpy.errors import EnergyError, InternalError
from optpy.ir import Access, Plane
from optpy.ir.loops import arithmetic
from optpy.ir.loops.arithmetic import signs_of
from optpy.kernels.codegen.dialect import Dialect
from optpy.symbolic.expr import Call, Const, Expr, Number, Var
from optpy.symbolic.order import topological

_INLINE_LENGTH = 48
"""Longest text of a node used once that is written where it is used instead of getting a name."""


class Body:
    """Collects the statements that compute some expressions, and where each value stands.

    Args:
        dialect: spellings.
        leaf: prints a leaf: (C type, text).
        prefix: of the temporaries' names.
    """

    def __init__(self, dialect: Dialect, leaf: Callable[[object], tuple[str, str]], prefix: str = "t") -> None:
        self._dialect = dialect
        self._leaf = leaf
        self._prefix = prefix
        self._text: dict[Expr, str] = {}
        self.lines: list[str] = []

    def compute(self, roots: Iterable[Expr]) -> list[str]:
        """Append what computes the roots, and return their texts (of type real; conditions: int).

        Raises:
            EnergyError: a constant is too large for the dialect's dtype.
        """
        roots = list(roots)
        order = topological(roots)
        uses: dict[Expr, int] = dict.fromkeys(roots, 2)
        for node in order:
            for child in node.children:
                uses[child] = uses.get(child, 0) + 1
        for node in order:
            if node not in self._text:
                self._define(node, uses[node])
        return [self._text[r] for r in roots]

    def _define(self, node: Expr, uses: int) -> None:
        if isinstance(node, Const):
            self._text[node] = self._number(node.value)
            return
        if isinstance(node, Var):
            self._define_leaf(node)
            return
        assert isinstance(node, Call)
        text = self._expression(node)
        if uses == 1 and len(text) <= _INLINE_LENGTH:
            self._text[node] = f"({text})"
        else:
            name = self._name()
            self.lines.append(f"const {self._type(node)} {name} = {text};")
            self._text[node] = name

    def _type(self, node: Call) -> str:
        if node.op in arithmetic.WHOLE_VALUED:
            return self._dialect.index
        return "int" if node.boolean else self._dialect.real

    def _define_leaf(self, node: Var) -> None:
        ctype, text = self._leaf(node.key)
        if isinstance(node.key, Plane):  # an array has its name already
            self._text[node] = text
            return
        name = self._text[node] = self._name()
        comment = f"  /* {node.key} */" if isinstance(node.key, Access) else ""
        self.lines.append(f"const {ctype} {name} = {text};{comment}")

    def _name(self) -> str:
        return f"{self._prefix}{len(self.lines)}"

    def _number(self, value: Number) -> str:
        if isinstance(value, int) and abs(value) < 2**53:
            return f"{value}.0{self._dialect.suffix}"
        number = float(value)
        with np.errstate(over="ignore"):
            fits = np.isfinite(np.dtype(self._dialect.dtype).type(number))
        if not fits:
            raise EnergyError(
                f"the constant {number}, in the energy or in its derivatives, does not fit {self._dialect.dtype}; "
                "use dtype=np.float64"
            )
        return f"{number!r}{self._dialect.suffix}"

    # -- one node ------------------------------------------------------------------------------------------------

    def _expression(self, node: Call) -> str:
        signs, args = signs_of(node.op), [self._text[a] for a in node.args]
        if signs is not None:
            return _sum(signs, args)
        match node.op:
            case op if op.name in _INFIX:
                return _INFIX[op.name].join(args)
            case op if op.name in _WHOLE:
                return _WHOLE[op.name].join(map(self._whole, node.args))
            case arithmetic.SELECT:
                return f"{args[0]} ? {args[1]} : {self._number(0)}"
            case arithmetic.NUMBER:
                return f"({self._dialect.real}){args[0]}"
            case arithmetic.NONZERO:
                return f"{args[0]} != 0"
            # Of its argument, without warnings of values that are never used.
            case arithmetic.ALWAYS:
                return f"{args[0]} - {args[0]} == 0"
            case arithmetic.NEVER:
                return f"{args[0]} - {args[0]} != 0"
            case arithmetic.CLAMPED:
                return f"{self._dialect.clamped}({', '.join(args)})"
            case arithmetic.PLACE:
                return f"{args[0]} * {args[1]} + {args[2]}"
            case arithmetic.READ:
                plane, place = args[:2]
                stride = self._whole(node.args[2])
                return f"{plane}[{place}]" if stride == "1" else f"{plane}[{place} * {stride}]"
            case op if op.name == "not":
                return f"!{args[0]}"
            case op if op.name in self._dialect.functions:
                return f"{self._dialect.functions[op.name]}({', '.join(args)})"
        raise InternalError(f"the dialect has no spelling for {node.op.name}")

    def _whole(self, e: Expr) -> str:
        return str(e.value) if isinstance(e, Const) else self._text[e]


_INFIX = {"times": " * ", "over": " / ", "all": " & ", "less": " < ", "less_equal": " <= ", "equal": " == "}
_WHOLE = {"whole_less": " < ", "whole_less_equal": " <= ", "whole_equal": " == "}


def _sum(signs: str, terms: Sequence[str]) -> str:
    first = f"-{terms[0]}" if signs[0] == "-" else terms[0]
    return first + "".join(f" {sign} {term}" for sign, term in zip(signs[1:], terms[1:], strict=True))
