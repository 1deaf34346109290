"""Equal expressions in different forms, found by their values at one random point, and one form kept of each.

``(a + b)**2`` and ``a**2 + 2*a*b + b**2`` are different nodes. Every node gets a value in a finite field, at random
values of the leaves: sums, products and whole powers are computed; all else (a function, a comparison, a reciprocal, a
root) is a random number of its own for each operation and values of its arguments. Two polynomials of degree d that
differ have the same value with probability d / 2**127 at most: as with two primes near 2**61, in one evaluation.

What is equal as a polynomial may differ in floating point. So of two forms one is kept only where

- both read the same leaves and are made of the same functions, reciprocals and roots: neither divides by what the
  other does not;
- a condition selects the same in both: a product whose factors may be infinite or NaN is a number of its own under its
  conditions, so that nothing leaves them;
- the one that is kept has no fewer additions below products, as ``(1 - x) * (1 + x)`` has, which is exact near 1 where
  ``1 - x**2`` is not.

Reference: R. DeMillo and R. Lipton, 1978; R. Zippel, 1979; J. Schwartz, "Fast probabilistic algorithms for verification
of polynomial identities", Journal of the ACM 27(4), 1980.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from random import Random
from typing import Final, final

from optpy.symbolic.booleans import is_not
from optpy.symbolic.count import count_nodes
from optpy.symbolic.expr import Call, Const, Expr, Number, Product, Sum, Var, linear
from optpy.symbolic.order import topological
from optpy.symbolic.traverse import rebuild

_PRIME: Final = 2**127 - 1
_ODD: Final = frozenset(("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "sign", "cbrt"))
_EVEN: Final = frozenset(("cos", "cosh"))
_TRIED: Final = 4
"""Forms of a value that may be kept in place of another: those of fewest operations."""
_VISITS: Final = 16
"""Nodes that are visited to compare what equal forms read, for each node that there is: then no more are compared."""
_LARGEST: Final = 10**9
"""Additions that are counted: repeated squares would be more than fit into a word."""


@final
class ValueNumbers:
    """The values of nodes at one random point; kept, as several lists of expressions share most of their nodes."""

    def __init__(self) -> None:
        self._of: dict[Expr, int] = {}
        self._own: dict[Hashable, int] = {}
        self._random = Random(0)  # the same energy must always give the same text

    def in_one_form(self, roots: Sequence[Expr]) -> list[Expr]:
        """The expressions, with one form of whatever stands in them in several.

        Args:
            roots: what is computed together.
        """
        nodes = topological(roots)
        equal = self._equal(nodes)
        return _Forms(nodes, equal, self).kept(roots) if equal else list(roots)

    def of(self, node: Expr) -> int:
        """The value of a node that stands in expressions that were seen."""
        return self._of[node]

    def _equal(self, nodes: Sequence[Expr]) -> list[list[Expr]]:
        """The nodes that are equal but for a sign, of those that are operations."""
        values = self._of
        first: dict[tuple[int, bool], Expr] = {}
        several: dict[tuple[int, bool], list[Expr]] = {}
        for node in nodes:
            value = values.get(node)
            if value is None:
                value = values[node] = self._value(node)
            if not node.children or (type(node) is Sum and len(node.terms) == 1 and node.constant == 0):
                continue
            key = (min(value, _PRIME - value), node.boolean)
            other = first.setdefault(key, node)
            if other is not node:
                several.setdefault(key, [other]).append(node)
        return list(several.values())

    def _number_of(self, *what: Hashable) -> int:
        """The random number of something that is not computed."""
        found = self._own.get(what)
        if found is None:
            found = self._own[what] = self._random.randrange(1, _PRIME)
        return found

    def _value(self, node: Expr) -> int:
        values = self._of
        if isinstance(node, Sum):
            total = _in_field(node.constant)
            for c, e in node.terms:
                total += (c if type(c) is int else _in_field(c)) * values[e]
            return total % _PRIME
        if isinstance(node, Product):
            return self._product(node)
        if isinstance(node, Const):
            return _in_field(node.value)
        if is_not(node):
            return (1 - values[node.children[0]]) % _PRIME
        if isinstance(node, Call):
            return self._call(node)
        return self._number_of(node)

    def _call(self, node: Call) -> int:
        args = tuple([self._of[a] for a in node.args])
        name = node.op.name
        if name in _ODD and args[0] > _PRIME - args[0]:
            return _PRIME - self._number_of(name, _PRIME - args[0])
        if name in _EVEN:
            args = (min(args[0], _PRIME - args[0]),)
        return self._number_of(name, *args)

    def _product(self, node: Product) -> int:
        values, guards, rest, finite = self._of, 1, 1, True
        for base, exponent in node.factors:
            if base in node.guards:
                guards = guards * values[base] % _PRIME
                continue
            finite = finite and base.finite and type(exponent) is int and exponent > 0
            rest = rest * (values[base] if exponent == 1 else self._power(values[base], exponent)) % _PRIME
        return guards * rest % _PRIME if finite else self._number_of("select", guards, rest) if node.guards else rest

    def _power(self, base: int, exponent: Number) -> int:
        """A power; whole powers of the base or of its reciprocal, times a root."""
        whole = int(exponent)
        value = pow(base if whole >= 0 else self._number_of("reciprocal", base), abs(whole), _PRIME)
        return value if whole == exponent else value * self._number_of("root", base, exponent - whole) % _PRIME

    def read_by(self, nodes: Sequence[Expr]) -> frozenset[Hashable]:
        """The leaves, functions, reciprocals, roots and selections in expressions; all but leaves by value."""
        found: set[Hashable] = set()
        for node in nodes:
            if isinstance(node, Product):
                found.update((self._of[b], x) for b, x in node.factors if type(x) is not int)
                found.update((self._of[b], -1) for b, x in node.factors if x < 0)
                if node.guards and not node.finite and not node.boolean:
                    found.add(self._of[node])
            elif isinstance(node, Var):
                found.add(node)
            elif isinstance(node, Call):
                found.add(min(self._of[node], _PRIME - self._of[node]))
        return frozenset(found)


@lru_cache(maxsize=4096, typed=True)
def _in_field(number: Number) -> int:
    numerator, denominator = number.as_integer_ratio()
    return numerator * pow(denominator, -1, _PRIME) % _PRIME


@final
class _Forms:
    """The choice among forms of equal value, and the expressions with those that are kept.

    Nodes are ordered by operations without loads, what is shared counted at each use: children come before parents, and
    what is kept before what it stands for.
    """

    def __init__(self, nodes: Sequence[Expr], equal: Sequence[Sequence[Expr]], values: ValueNumbers) -> None:
        self._values = values
        self._below: dict[Expr, int] = {}
        self._order: dict[Expr, tuple[int, int, int]] = {}
        self._left = _VISITS * len(nodes)
        self._read: dict[Expr, frozenset[Hashable]] = {}
        cost: dict[Expr, int] = {}
        for n, node in enumerate(nodes):
            own = count_nodes([node]).cost if node.children else 0
            cost[node] = min(own + sum(cost[c] for c in node.children), _LARGEST)
            below = sum(self._below[c] for c in node.children)
            if isinstance(node, Product):
                below += sum(len(b.terms) - (b.constant == 0) for b in node.children if isinstance(b, Sum))
            self._below[node] = min(below, _LARGEST)
            self._order[node] = cost[node], -below if cost[node] < _LARGEST else 0, n
        self._stead = {node: e for forms in equal for node, e in self._replaced(forms)}

    def kept(self, roots: Sequence[Expr]) -> list[Expr]:
        """The expressions, with the forms that are kept."""
        if not self._stead:
            return list(roots)
        new: dict[Expr, Expr] = {}
        for node in sorted(self._order, key=self._order.__getitem__):
            stead = self._stead.get(node)
            if stead is not None:
                same = self._values.of(stead) == self._values.of(node)
                new[node] = new[stead] if same else linear(0, [(-1, new[stead])])
                continue
            children = tuple([new[c] for c in node.children])
            new[node] = node if children == node.children else rebuild(node, children)
        return [new[r] for r in roots]

    def _replaced(self, forms: Sequence[Expr]) -> list[tuple[Expr, Expr]]:
        """The forms that are not kept, each with the one that stands for it."""
        forms = [e for e in sorted(forms, key=self._order.__getitem__) if self._order[e][0] < _LARGEST]
        found = []
        for n, node in enumerate(forms):
            stead = next((e for e in forms[: min(n, _TRIED)] if self._may_stand_for(e, node)), None)
            if stead is not None:
                found.append((node, stead))
        return found

    def _may_stand_for(self, kept: Expr, other: Expr) -> bool:
        if self._below[kept] < self._below[other]:
            return False
        if (other.boolean or isinstance(kept, Sum)) and self._values.of(kept) != self._values.of(other):
            return False  # the negative of a sum is another sum
        reads = self._reads(kept)
        return reads is not None and reads == self._reads(other)

    def _reads(self, e: Expr) -> frozenset[Hashable] | None:
        """The things that an expression is made of; None where too much has been looked at already."""
        if e not in self._read and self._left > 0:
            nodes = topological([e])
            self._left -= len(nodes)
            self._read[e] = self._values.read_by(nodes)
        return self._read.get(e)
