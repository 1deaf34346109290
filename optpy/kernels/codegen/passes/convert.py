"""Conversions between flags, whole numbers and numbers are told apart from what computes."""

from __future__ import annotations

from optpy.ir import Access, IndexValue, LocalName, loops
from optpy.ir.loops.arithmetic import ALL, ALWAYS, NEVER, NONZERO, NUMBER, SELECT, WHOLE_COMPARISONS, is_call, with_args
from optpy.kernels.codegen.dialect import Dialect
from optpy.symbolic.expr import Call, Const, Expr, Var, make_call

_OF_WHOLE = {ALWAYS.name, NEVER.name, *(op.name for op in WHOLE_COMPARISONS.values())}
_OF_FLAGS = {ALL.name, "not"}


def convert(function: loops.Function, dialect: Dialect) -> loops.Function:
    """Leaves that are no numbers of the dialect's, and flags among numbers, become such numbers; bytes become flags."""

    def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
        if isinstance(node, Var):
            return _leaf(node, dialect)
        if not isinstance(node, Call):
            return node
        if node.op.name in _OF_WHOLE:
            return node
        if node.op.name in _OF_FLAGS:
            return with_args(node, children)
        flags = 1 if node.op is SELECT else 0
        return with_args(node, (*children[:flags], *map(_number, children[flags:])))

    return loops.map_values(function, rule)


def _leaf(node: Var, dialect: Dialect) -> Expr:
    match node.key:
        case Access(field=field) if node.boolean:
            return node if dialect.types[field.dtype] == "int" else make_call(NONZERO, (node,))
        case Access(field=field):
            return node if dialect.types[field.dtype] == dialect.real else make_call(NUMBER, (node,))
        case LocalName():  # a sum, in double
            return node if dialect.real == "double" else make_call(NUMBER, (node,))
        case IndexValue():
            return make_call(NUMBER, (node,))
    return node


def _number(e: Expr) -> Expr:
    is_flag = e.boolean and not isinstance(e, Const) and not is_call(e, NUMBER)
    return make_call(NUMBER, (e,)) if is_flag else e
