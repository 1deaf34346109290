"""Rewriting the DAG. All walks are iterative: expressions may be deeper than Python's stack."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from optpy.symbolic.expr import Call, Expr, Number, Product, Sum, Var, call, linear, make_product, mul, power
from optpy.symbolic.order import topological


def variables(roots: Iterable[Expr]) -> list[Var]:
    """The leaves that are variables, each once."""
    return [node for node in topological(roots) if isinstance(node, Var)]


def rebuild(node: Expr, children: tuple[Expr, ...]) -> Expr:
    """The node with other children, simplified anew."""
    if isinstance(node, Sum):
        return linear(node.constant, [(c, e) for (c, _), e in zip(node.terms, children, strict=True)])
    if isinstance(node, Product):
        return mul(*(_power(b, x) for b, (_, x) in zip(children, node.factors, strict=True)))
    if isinstance(node, Call):
        return call(node.op, *children)
    return node


def _power(base: Expr, exponent: Number) -> Expr:
    """Like ``power``; but 0 ** -1 and its kin, which substitution may leave under a guard, stay nodes."""
    try:
        return power(base, exponent)
    except (ZeroDivisionError, ValueError):
        return make_product([(base, exponent)])


def transform(
    roots: Iterable[Expr],
    rule: Callable[[Expr, tuple[Expr, ...]], Expr],
    done: dict[Expr, Expr] | None = None,
) -> list[Expr]:
    """Rewrite bottom-up: ``rule(node, new_children)`` gives the node's replacement.

    Args:
        roots: what to rewrite.
        rule: how.
        done: the replacements made by the same rule before; those made now are added.
    """
    roots = list(roots)
    new = {} if done is None else done
    for node in topological(roots, leaves=new.keys()):
        if node not in new:
            new[node] = rule(node, tuple([new[c] for c in node.children]))
    return [new[r] for r in roots]


def substitute(roots: Iterable[Expr], replacement: Mapping[Expr, Expr]) -> list[Expr]:
    """Replace nodes, everywhere they occur."""

    def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
        found = replacement.get(node)
        if found is not None:
            return found
        return node if children == node.children else rebuild(node, children)

    return transform(roots, rule)


def map_variables(
    roots: Iterable[Expr], function: Callable[[Var], Expr], done: dict[Expr, Expr] | None = None
) -> list[Expr]:
    """Replace every leaf variable by ``function(variable)``; ``done`` as in ``transform``."""

    def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
        if isinstance(node, Var):
            return function(node)
        return node if children == node.children else rebuild(node, children)

    return transform(roots, rule, done)
