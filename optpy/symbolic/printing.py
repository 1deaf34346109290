"""Readable text of an expression, in Python's notation."""

from __future__ import annotations

from .expr import Call, Const, Expr, Product, Sum, Var


def to_text(root: Expr) -> str:
    """Python-like text; used in messages and ``repr``. Shared nodes are written out at each use."""
    return _text(root, 0)


_SUM, _PRODUCT, _POWER = 1, 2, 3


def _text(node: Expr, level: int) -> str:
    if isinstance(node, Const):
        return str(node.value) if node.value >= 0 or level < _PRODUCT else f"({node.value})"
    if isinstance(node, Var):
        return str(node.key)
    if isinstance(node, Sum):
        return _parenthesise(_sum_text(node), level > _SUM)
    if isinstance(node, Product):
        parts = [
            _text(b, _PRODUCT) if x == 1 else f"{_text(b, _POWER + 1)}**{x if x >= 0 and isinstance(x, int) else f'({x})'}"
            for b, x in node.factors
        ]
        return _parenthesise("*".join(parts), level > _PRODUCT)
    assert isinstance(node, Call)
    if node.op.name == "not":
        return f"~{_text(node.args[0], _POWER)}"
    return f"{node.op.name}({', '.join(_text(a, 0) for a in node.args)})"


def _parenthesise(text: str, needed: bool) -> str:
    return f"({text})" if needed else text


def _sum_text(node: Sum) -> str:
    text = "" if node.constant == 0 else str(node.constant)
    for c, e in node.terms:
        magnitude = abs(c)
        body = _text(e, _PRODUCT) if magnitude == 1 else f"{magnitude}*{_text(e, _PRODUCT)}"
        if not text:
            text = f"-{body}" if c < 0 else body
        else:
            text += f" - {body}" if c < 0 else f" + {body}"
    return text
