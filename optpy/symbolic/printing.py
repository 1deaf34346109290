"""Readable text of an expression, in Python's notation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from optpy.symbolic.expr import Call, Const, Expr, Number, Product, Sum, Var
from optpy.symbolic.traverse import topological

_LONGEST = 400
"""Longest text of a node that is written inside another one."""

_COMPARED, _ALL, _ADDED, _MULTIPLIED, _RAISED, _ATOM = range(6)
"""How tightly a text binds."""

_COMPARISONS: Final = {"less": "<", "less_equal": "<=", "equal": "=="}

_Text = tuple[str, int]


def to_text(root: Expr) -> str:
    """Python-like text; used in messages and ``repr``.

    Short expressions are written out. In long ones, parts get names in front (``t0 = sin(x); t0*y + ...``),
    so that the text is never longer than a multiple of the number of nodes.
    """
    texts: dict[Expr, _Text] = {}
    names: list[str] = []
    for node in topological([root]):
        text, level = _node(node, texts)
        if len(text) > _LONGEST and node is not root:
            names.append(f"t{len(names)} = {text}; ")
            text, level = f"t{len(names) - 1}", _ATOM
        texts[node] = text, level
    return "".join(names) + texts[root][0]


def _node(node: Expr, texts: Mapping[Expr, _Text]) -> _Text:
    if isinstance(node, Const):
        return str(node.value), _ATOM if node.value >= 0 and type(node.value) is int else _ADDED
    if isinstance(node, Var):
        return str(node.key), _ATOM
    if isinstance(node, Sum):
        return _sum(node, texts), _ADDED
    if isinstance(node, Product):
        if node.boolean:
            return " & ".join(_within(b, _ADDED, texts) for b, _ in node.factors), _ALL
        text = "*".join(_factor(b, x, texts) for b, x in node.factors)
        return text, _MULTIPLIED if len(node.factors) > 1 else _RAISED
    assert isinstance(node, Call)
    if node.op.name == "not":
        return f"~{_within(node.args[0], _ATOM, texts)}", _RAISED
    if node.op.name in _COMPARISONS:
        # A number stands on the right of ==, as users write it; of the others the order is the meaning.
        args = node.args[::-1] if node.op.name == "equal" and isinstance(node.args[0], Const) else node.args
        left, right = (_within(a, _ALL, texts) for a in args)
        return f"{left} {_COMPARISONS[node.op.name]} {right}", _COMPARED
    return f"{node.op.name}({', '.join(texts[a][0] for a in node.args)})", _ATOM


def _within(node: Expr, level: int, texts: Mapping[Expr, _Text]) -> str:
    """The text of a part, in parentheses if it binds less tightly than its place needs."""
    text, own = texts[node]
    return f"({text})" if own < level else text


def _factor(base: Expr, exponent: Number, texts: Mapping[Expr, _Text]) -> str:
    if exponent == 1:
        return _within(base, _RAISED, texts)
    power = exponent if type(exponent) is int and exponent > 0 else f"({exponent})"
    return f"{_within(base, _ATOM, texts)}**{power}"


def _sum(node: Sum, texts: Mapping[Expr, _Text]) -> str:
    text = "" if node.constant == 0 else str(node.constant)
    for c, e in node.terms:
        # A sum inside a sum (long sums stay nested) must keep its parentheses.
        body = _within(e, _MULTIPLIED, texts)
        if abs(c) != 1:
            body = f"{abs(c)}*{body}"
        text += (f" - {body}" if text else f"-{body}") if c < 0 else (f" + {body}" if text else body)
    return text
