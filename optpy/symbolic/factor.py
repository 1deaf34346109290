"""Greedy multivariate Horner factoring: fewer multiplications, and guards pulled outward.

``b*x*y + b*x*z`` becomes ``b*x*(y + z)``. Booleans go first, so that work under one condition is one guarded block.
Values are kept (up to rounding) and the pass is idempotent.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from .expr import Expr, Number, Product, Sum, const, linear, mul, power
from .traverse import rebuild, transform

Monomial = dict[Expr, Number]


def factor(roots: Iterable[Expr]) -> list[Expr]:
    """Every sum in the expressions in Horner form."""

    def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
        new = node if children == node.children else rebuild(node, children)
        return _horner_sum(new) if isinstance(new, Sum) else new

    return transform(roots, rule)


def _horner_sum(node: Sum) -> Expr:
    monomials: list[tuple[Number, Monomial]] = [(c, _powers(e)) for c, e in node.terms]
    return linear(node.constant, [(1, _horner(monomials))])


def _powers(e: Expr) -> Monomial:
    return dict(e.factors) if isinstance(e, Product) else {e: 1}


def _divisible(base: Expr, exponent: Number) -> bool:
    # Only whole positive powers are shared factors; dividing b out of b leaves nothing (booleans are idempotent).
    return isinstance(exponent, int) and exponent >= 1


def _horner(monomials: list[tuple[Number, Monomial]]) -> Expr:
    """Factor the most frequent base out of the monomials that have it, again and again.

    Each base's occurrences are listed once and a heap with lazily corrected counts picks the next base, so the
    pass is near linear in the number of factors.
    """
    occurrences: dict[Expr, list[int]] = {}
    for n, (_, powers) in enumerate(monomials):
        for base, exponent in powers.items():
            if _divisible(base, exponent):
                occurrences.setdefault(base, []).append(n)
    heap = [(not b.boolean, -len(at), b.digest, b) for b, at in occurrences.items() if len(at) > 1]
    heapq.heapify(heap)
    live = [True] * len(monomials)
    parts: list[tuple[Number, Expr]] = []
    while heap:
        plain, negative_count, digest, base = heapq.heappop(heap)
        at = [n for n in occurrences[base] if live[n]]
        if len(at) < 2:
            continue
        if len(at) != -negative_count:
            heapq.heappush(heap, (plain, -len(at), digest, base))
            continue
        for n in at:
            live[n] = False
        parts.append((1, mul(base, _horner([(monomials[n][0], _divide(monomials[n][1], base)) for n in at]))))
    parts.extend((c, _product_of(powers)) for n, (c, powers) in enumerate(monomials) if live[n])
    return linear(0, parts)


def _divide(powers: Monomial, base: Expr) -> Monomial:
    return {b: (x - 1 if b is base else x) for b, x in powers.items() if not (b is base and x == 1)}


def _product_of(powers: Monomial) -> Expr:
    return mul(*(power(b, x) for b, x in powers.items())) if powers else const(1)
