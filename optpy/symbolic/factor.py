"""Greedy multivariate Horner factoring: fewer multiplications, and guards pulled outward.

``b*x*y + b*x*z`` becomes ``b*x*(y + z)``. Booleans go first, so that work under one condition is one
guarded block, and the two arms of a condition that are equal become one (``b*x + ~b*x`` is x). Values are
kept (up to rounding) and the pass is idempotent. A value that may be infinite or NaN never moves out from
under its guard: ``b*y/x + c*z/x`` stays, because ``1/x*(b*y + c*z)`` would be NaN where x is 0 and both
conditions fail.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterable
from typing import Final

from optpy.symbolic.booleans import is_not, logical_not
from optpy.symbolic.expr import ONE, Expr, Number, Product, Sum, linear, mul, power, split_coefficient
from optpy.symbolic.traverse import rebuild, transform

Literal = tuple[Expr, Number]
"""A factor that monomials can share: a base and 1 or -1 (a whole power of it), or a base and a fractional exponent."""

Monomial = dict[Literal, int]
"""Literals with their multiplicities: x**-2 * y is {(x, -1): 2, (y, 1): 1}."""

Term = tuple[Number, Monomial]

_MANY_DEGREES: Final = 8


def factor(roots: Iterable[Expr]) -> list[Expr]:
    """Every sum in the expressions in Horner form."""

    def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
        new = node if children == node.children else rebuild(node, children)
        return _horner_sum(new) if isinstance(new, Sum) else new

    return transform(roots, rule)


def _horner_sum(node: Sum) -> Expr:
    """Run ``_horner`` and the calls it asks for; on a stack of our own, as the nesting may be deep."""
    running = [_horner([(c, _monomial(e)) for c, e in node.terms], node)]
    answer: Expr | None = None
    while running:
        try:
            asked = next(running[-1]) if answer is None else running[-1].send(answer)
        except StopIteration as finished:
            running.pop()
            answer = finished.value
        else:
            running.append(_horner(asked))
            answer = None
    assert answer is not None
    return node if answer is node else linear(node.constant, [(1, answer)])


def _monomial(e: Expr) -> Monomial:
    factors = e.factors if isinstance(e, Product) else () if e is ONE else ((e, 1),)
    return dict(_literal(b, x) for b, x in factors)


def _literal(base: Expr, exponent: Number) -> tuple[Literal, int]:
    if type(exponent) is not int:
        return (base, exponent), 1
    return ((base, 1), exponent) if exponent > 0 else ((base, -1), -exponent)


def _expression(monomial: Monomial) -> Expr:
    return mul(*(power(b, x * n) for (b, x), n in monomial.items()))


def _is_guard(literal: Literal) -> bool:
    return literal[0].boolean and literal[1] == 1


def _is_finite(literal: Literal) -> bool:
    return literal[0].finite and literal[1] == 1


class _Terms:
    """A changing list of monomials, and a queue of the literals that several of them share."""

    def __init__(self, terms: Iterable[Term]) -> None:
        self.live: dict[int, Term] = {}
        self._next = 0
        self._occurrences: dict[Literal, list[int]] = {}
        self._queued: set[Literal] = set()
        self._heap: list[tuple[bool, int, bytes, float, Literal]] = []
        for c, monomial in terms:
            self._enter(c, monomial)
        for literal in self._occurrences:
            self._queue(literal)

    @property
    def any_shared(self) -> bool:
        return bool(self._heap)

    def append(self, c: Number, monomial: Monomial) -> None:
        for literal in self._enter(c, monomial):
            self._queue(literal)

    def _enter(self, c: Number, monomial: Monomial) -> list[Literal]:
        n, self._next = self._next, self._next + 1
        self.live[n] = c, monomial
        guarded = any(map(_is_guard, monomial))
        shareable = [k for k in monomial if _is_finite(k) or not guarded]
        for literal in shareable:
            self._occurrences.setdefault(literal, []).append(n)
        return shareable

    def _queue(self, literal: Literal) -> None:
        n = len(self._occurrences[literal])
        if n > 1 and literal not in self._queued:
            self._queued.add(literal)
            base, exponent = literal
            heapq.heappush(self._heap, (not _is_guard(literal), -n, base.digest, float(exponent), literal))

    def take_most_shared(self) -> tuple[Literal, list[Term]] | None:
        """Remove the terms that share a literal: guards first, the most frequent first.

        Counts are corrected lazily.
        """
        while self._heap:
            *_, negative_count, _, _, literal = heapq.heappop(self._heap)
            self._queued.discard(literal)
            at = self._occurrences[literal] = [n for n in self._occurrences[literal] if n in self.live]
            if len(at) != -negative_count:
                self._queue(literal)
            elif len(at) > 1:
                return literal, [self.live.pop(n) for n in at]
        return None


def _horner(terms: list[Term], whole: Expr | None = None) -> Generator[list[Term], Expr, Expr]:
    """Factor the most frequent literal out of the terms that have it, again and again.

    Each literal's occurrences are listed once, so the pass is near linear in the number of factors.

    Args:
        terms: what to add up.
        whole: returned if there is nothing to factor.

    Yields:
        The terms inside the parentheses, to be sent back factored.
    """
    constant, flat = _flattened(terms)
    merged = _merge_complements(flat)
    open_terms = _Terms(merged)
    if whole is not None and merged is terms and not open_terms.any_shared:
        return whole
    while (shared := open_terms.take_most_shared()) is not None:
        literal, selected = shared
        base, exponent = literal
        product: list[Term] = []
        for degree, group in _by_degree(literal, selected):
            inner = yield group + product
            c, e = split_coefficient(mul(power(base, exponent * degree), inner))
            product = [(c, _monomial(e))]
        open_terms.append(*product[0])
    return linear(constant, [(c, _expression(m)) for c, m in open_terms.live.values()])


def _by_degree(literal: Literal, terms: list[Term]) -> list[tuple[int, list[Term]]]:
    """The contents of the parentheses, from the innermost: the power in front of them, and the terms.

    As a rule there is one pair, with the literal itself in front. Terms of many degrees (a long polynomial)
    are nested at once, because dividing all of them by one power at a time would take quadratic time.
    """
    degrees = sorted({m[literal] for _, m in terms}, reverse=True)
    if len(degrees) <= _MANY_DEGREES:
        return [(1, [(c, _divide(m, literal)) for c, m in terms])]
    groups: dict[int, list[Term]] = {d: [] for d in degrees}
    for c, m in terms:
        groups[m[literal]].append((c, {k: n for k, n in m.items() if k != literal}))
    return [(d - lower, groups[d]) for d, lower in zip(degrees, [*degrees[1:], 0], strict=True)]


def _flattened(terms: list[Term]) -> tuple[Number, list[Term]]:
    """A monomial that is a sum by itself (division leaves such) joins the others: its terms may share."""
    if not any(len(m) == 1 and isinstance(next(iter(m))[0], Sum) for _, m in terms):
        return 0, terms
    total = linear(0, [(c, _expression(m)) for c, m in terms])
    if isinstance(total, Sum):
        return total.constant, [(c, _monomial(e)) for c, e in total.terms]
    c, e = split_coefficient(total)
    return 0, [(c, _monomial(e))]


def _divide(monomial: Monomial, literal: Literal) -> Monomial:
    return {k: n - (k == literal) for k, n in monomial.items() if not (k == literal and n == 1)}


def _merge_complements(terms: list[Term]) -> list[Term]:
    """``c*b*m + c*~b*m`` is ``c*m``."""
    guards = {b for _, monomial in terms for b, _ in filter(_is_guard, monomial)}
    negated = {b.children[0] for b in guards if is_not(b)} & guards
    if not negated:
        return terms
    waiting: dict[tuple[Number, frozenset[tuple[Literal, int]]], Term] = {}
    pending = terms[::-1]
    while pending:
        c, monomial = pending.pop()
        key = frozenset(monomial.items())
        if (c, key) in waiting:
            del waiting[c, key]
            pending.append((c + c, monomial))
            continue
        for literal in filter(_is_guard, monomial):
            b = literal[0]
            if b in negated or (is_not(b) and b.children[0] in negated):
                other = c, key - {(literal, 1)} | {((logical_not(b), 1), 1)}
                if other in waiting:
                    del waiting[other]
                    pending.append((c, _divide(monomial, literal)))
                    break
        else:
            waiting[c, key] = c, monomial
    return list(waiting.values())
