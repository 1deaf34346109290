"""Canonical sums and products get the order in which they are computed."""

from __future__ import annotations

from collections.abc import Sequence

from optpy.ir import loops
from optpy.ir.loops.arithmetic import ALL, SELECT, raised, signed_sum, times, with_args
from optpy.symbolic.expr import Expr, Number, Product, Sum, const, make_call


def in_order(function: loops.Function) -> loops.Function:
    """Sums with signs, their positive terms first; products of powers, their conditions apart: a condition selects."""
    return loops.map_values(function, _ordered)


def _ordered(node: Expr, children: tuple[Expr, ...]) -> Expr:
    if isinstance(node, Sum):
        return _sum(node, children)
    return _product(node, children) if isinstance(node, Product) else with_args(node, children)


def _sum(node: Sum, children: Sequence[Expr]) -> Expr:
    terms = sorted(((c, e) for (c, _), e in zip(node.terms, children, strict=True)), key=lambda t: t[0] < 0)
    signed = [(_sign(c), e if c in (1, -1) else times((_magnitude(c), e))) for c, e in terms]
    if node.constant != 0:
        signed.append((_sign(node.constant), _magnitude(node.constant)))
    return signed_sum(signed)


def _sign(c: Number) -> str:
    return "-" if c < 0 else "+"


def _magnitude(c: Number) -> Expr:
    return const(-c if c < 0 else c)


def _product(node: Product, children: Sequence[Expr]) -> Expr:
    flags: list[Expr] = []
    powers: list[Expr] = []
    for (base, exponent), e in zip(node.factors, children, strict=True):
        if base.boolean and exponent == 1:
            flags.append(e)
        else:
            powers.append(raised(e, exponent))
    if not flags:
        return times(powers)
    flag = flags[0] if len(flags) == 1 else make_call(ALL, flags)
    return make_call(SELECT, (flag, times(powers))) if powers else flag
