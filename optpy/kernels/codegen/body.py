"""Expressions to straight-line C: the body of a loop, branch-free, every shared node computed once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np

from optpy.errors import EnergyError, InternalError
from optpy.ir import Access
from optpy.kernels.codegen.dialect import Dialect
from optpy.kernels.codegen.quotient import Powers, split_quotient
from optpy.symbolic.expr import Call, Const, Expr, Number, Product, Sum, Var
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
        self._raw: dict[Expr, str] = {}
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
            if isinstance(node.value, int):
                self._raw[node] = str(node.value)
            return
        if isinstance(node, Var):
            self._define_leaf(node)
            return
        text = self._expression(node)
        if uses == 1 and len(text) <= _INLINE_LENGTH:
            self._text[node] = f"({text})"
        else:
            name = self._name()
            self.lines.append(f"const {'int' if node.boolean else self._dialect.real} {name} = {text};")
            self._text[node] = name

    def _define_leaf(self, node: Var) -> None:
        ctype, text = self._leaf(node.key)
        name = self._name()
        comment = f"  /* {node.key} */" if isinstance(node.key, Access) else ""
        self.lines.append(f"const {ctype} {name} = {text};{comment}")
        integer = ctype not in ("float", "double")
        if integer:
            self._raw[node] = name
        if node.boolean:
            self._text[node] = name if ctype == "int" else f"({name} != 0)"
        else:
            self._text[node] = name if ctype == self._dialect.real else f"({self._dialect.real}){name}"

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

    def _expression(self, node: Expr) -> str:
        if isinstance(node, Sum):
            return self._sum(node)
        if isinstance(node, Product):
            return self._product(node)
        assert isinstance(node, Call)
        return self._call(node)

    def _sum(self, node: Sum) -> str:
        # Positive terms first, so that the text starts without a sign.
        terms = sorted(node.terms, key=lambda t: t[0] < 0)
        text = ""
        for c, e in terms:
            body = self._real(e) if c in (1, -1) else f"{self._number(magnitude(c))} * {self._real(e)}"
            if not text:
                text = f"-{body}" if c < 0 else body
            else:
                text += f" - {body}" if c < 0 else f" + {body}"
        if node.constant != 0:
            text += f" {'-' if node.constant < 0 else '+'} {self._number(magnitude(node.constant))}"
        return text

    def _real(self, e: Expr) -> str:
        return f"({self._dialect.real}){self._text[e]}" if e.boolean and not isinstance(e, Const) else self._text[e]

    def _product(self, node: Product) -> str:
        guards = [self._text[b] for b, x in node.factors if b.boolean and x == 1]
        numeric = tuple((b, x) for b, x in node.factors if not (b.boolean and x == 1))
        guard = " & ".join(guards)
        if not numeric:
            return guard
        parts = split_quotient(numeric)
        if len(parts) == 1 and parts[0][1] == 1:
            text = self._quotient(numeric)
        else:
            text = " * ".join(self._whole_power(f"({self._quotient(p)})", n) for p, n in parts)
        # Selection, not multiplication: under a false guard the value is 0 even where the product is infinite or NaN.
        return f"{guard if len(guards) == 1 else f'({guard})'} ? {text} : {self._number(0)}" if guards else text

    def _quotient(self, powers: Powers) -> str:
        over = [self._power(b, x) for b, x in powers if x > 0]
        under = [self._power(b, -x) for b, x in powers if x < 0]
        text = " * ".join(over) or self._number(1)
        if under:
            text += f" / {under[0]}" if len(under) == 1 else f" / ({' * '.join(under)})"
        return text

    def _power(self, base: Expr, exponent: Number) -> str:
        text = self._real(base)
        if exponent == 1:
            return text
        name = self._dialect.functions
        if isinstance(exponent, int) and exponent <= 64:
            return self._whole_power(text, exponent)
        if isinstance(exponent, Fraction) and exponent.denominator == 2 and exponent.numerator <= 9:
            root = f"{name['sqrt']}({text})"
            whole = exponent.numerator // 2
            return root if whole == 0 else f"({self._whole_power(text, whole)} * {root})"
        return f"{name['pow']}({text}, {self._number(exponent)})"

    def _whole_power(self, text: str, exponent: int) -> str:
        if exponent == 1:
            return text
        if not text.isidentifier():
            name = self._name()
            self.lines.append(f"const {self._dialect.real} {name} = {text};")
            text = name
        half = self._whole_power(text, exponent // 2)
        if exponent // 2 > 1:
            name = self._name()
            self.lines.append(f"const {self._dialect.real} {name} = {half};")
            half = name
        return f"({half} * {half}{f' * {text}' if exponent % 2 else ''})"

    def _call(self, node: Call) -> str:
        match node.op.name:
            case "not":
                return f"!{self._text[node.args[0]]}"
            case "less":
                return self._comparison(node, "<")
            case "less_equal":
                return self._comparison(node, "<=")
            case "equal":
                return self._comparison(node, "==")
            case "stop_gradient" | "whole":
                return self._real(node.args[0])
            case name if name in self._dialect.functions:
                return f"{self._dialect.functions[name]}({', '.join(self._real(a) for a in node.args)})"
        raise InternalError(f"the dialect has no spelling for {node.op.name}")

    def _comparison(self, node: Call, sign: str) -> str:
        a, b = node.args
        # Whole numbers are compared as such: exact, and narrower. A fraction gives way to the whole number next to it.
        left = self._raw.get(a) or self._whole(a, math.ceil if sign == "<=" else math.floor)
        right = self._raw.get(b) or self._whole(b, math.floor if sign == "<=" else math.ceil)
        if left is None or right is None or (a not in self._raw and b not in self._raw):
            return f"({self._real(a)} {sign} {self._real(b)})"
        # Without warnings of comparisons that are always true, or of values that are never used.
        if a is b:
            return f"({left} - {left} {sign} 0)"
        if sign == "==" and not (a in self._raw and b in self._raw):  # no whole number is a fraction
            whole = left if a in self._raw else right
            return f"({whole} - {whole} != 0)"
        return f"({left} {sign} {right})"

    def _whole(self, e: Expr, nearest: Callable[[Fraction | float], int]) -> str | None:
        if not isinstance(e, Const) or isinstance(e.value, int) or magnitude(e.value) > 2**62:
            return None
        return str(nearest(e.value))


def magnitude(c: Number) -> Number:
    """|c|, of the same kind of number."""
    return -c if c < 0 else c
