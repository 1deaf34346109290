"""Quotients by what others divide by, too, become products with one reciprocal.

Derivatives of a normal, or of a projection, are many quotients by few numbers; a division or a root takes a processor
as long as ten products. What depends on params alone has its reciprocal in any case, as that leaves the loops
(``hoist``).

Two kinds of quotient stay: those of high powers, whose parts no compiler may reorder (``split_quotients``); and those
that are compared or rounded to a whole number, alone or in a sum without another one: ``floor(49 / 49)`` is 1, and 0 by
the reciprocal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Final

from optpy.ir import Scalar, loops
from optpy.ir.loops.arithmetic import POWER, SELECT, TIMES, is_call, over, power_of, raised, signs_of, times, with_args
from optpy.kernels.codegen.passes.split_quotients import split_quotient
from optpy.symbolic.expr import ONE, Call, Const, Expr, Number, Var
from optpy.symbolic.order import topological

_HALF: Final = Fraction(1, 2)
_LARGEST: Final = 4
"""Of the whole part of exponents that become powers of reciprocals."""

_JUMPS: Final = {"floor", "sign", "less", "less_equal", "equal"}
_EXACT: Final = {"minimum", "maximum", "abs"}


def share_reciprocals(function: loops.Function) -> loops.Function:
    """Divide once by each number that several products divide by."""
    blocks = [s.values for s in loops.walk(function.body) if isinstance(s, loops.Evaluate)]
    chosen = {product for values in blocks for product in _chosen(values)}
    quotients: dict[Expr, Expr] = {}

    def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
        if is_call(node, POWER):
            quotients[node] = with_args(node, children)
            return times(_reciprocals(quotients[node])) if node in chosen else quotients[node]
        if not is_call(node, TIMES):
            return with_args(node, children)
        factors = [quotients.get(old, new) for old, new in zip(node.args, children, strict=True)]
        return times(r for f in factors for r in _reciprocals(f)) if node in chosen else times(factors)

    return loops.map_values(function, rule) if chosen else function


def given_alone(values: Iterable[Expr]) -> set[Expr]:
    """The nodes that nothing but params and constants is in."""
    found: set[Expr] = set()
    for node in topological(values):
        if isinstance(node, Var):
            if isinstance(node.key, Scalar):
                found.add(node)
        elif isinstance(node, Const) or all(c in found for c in node.children):
            found.add(node)
    return found


def _chosen(values: Iterable[Expr]) -> set[Expr]:
    """The products whose divisors are all shared, so that no division is left of them."""
    values = tuple(values)
    divisors = {p: found for p in _quotients(values) if (found := _divisors(p))}
    if not divisors:
        return set()
    given, chosen = given_alone(values), set(divisors)
    while True:
        users = Counter(d for p in chosen for d in divisors[p])
        lonely = {p for p in chosen if any(users[d] < 2 and d[0] not in given for d in divisors[p])}
        if not lonely:
            break
        chosen -= lonely
    free = {p for p in chosen if all(base in given for base, _ in divisors[p])}
    shared = {d for p in chosen - free for d in divisors[p] if d[0] not in given}
    return chosen if len(shared) < len(chosen - free) else free


def _quotients(values: tuple[Expr, ...]) -> Iterator[Expr]:
    """Products with negative powers, and negative powers alone, that may become products with reciprocals."""
    order = topological(values)
    if not any(is_call(node, POWER) and power_of(node)[1] < 0 for node in order):
        return
    kept = set(_compared(order))
    inside = Counter(a for node in order if is_call(node, TIMES) for a in node.args)
    uses = Counter(a for node in order for a in node.children) + Counter(values)
    for node in order:
        alone = is_call(node, POWER) and uses[node] > inside[node]
        if node not in kept and (alone or (is_call(node, TIMES) and _is_one_quotient(node))):
            yield node


def _is_one_quotient(product: Call) -> bool:
    parts = split_quotient(tuple(map(power_of, product.args)))
    return len(parts) == 1 and parts[0][1] == 1


def _compared(order: Iterable[Expr]) -> Iterator[Expr]:
    """Products of which a comparison, or a whole number, may tell whether they are exact."""
    pending = [a for node in order if isinstance(node, Call) and node.op.name in _JUMPS for a in node.args]
    seen: set[Expr] = set()
    while pending:
        node = pending.pop()
        if node in seen or not isinstance(node, Call):
            continue
        seen.add(node)
        if signs_of(node.op) is not None:
            pending += node.args if sum(bool(_divisors(_primitive(a))) for a in node.args) < 2 else ()
        elif _primitive(node) is not node or node.op is SELECT or node.op.name in _EXACT:
            pending += node.args
        elif node.op in (TIMES, POWER):
            yield node


def _primitive(e: Expr) -> Expr:
    """A multiple without its number; another expression as it is."""
    return e.args[1] if is_call(e, TIMES) and len(e.args) == 2 and isinstance(e.args[0], Const) else e


def _divisors(product: Expr) -> frozenset[tuple[Expr, Number]]:
    """(base, 1) for each base by which a product divides, (base, 1/2) for each root; none if not by reciprocals."""
    found: set[tuple[Expr, Number]] = set()
    for factor in product.children if is_call(product, TIMES) else (product,):
        base, exponent = power_of(factor)
        if exponent >= 0:
            continue
        whole, rest = divmod(-exponent, 1)
        if rest not in (0, _HALF) or isinstance(exponent, float) or whole > _LARGEST:
            return frozenset()
        found |= {(base, x) for x, there in ((1, whole), (_HALF, rest)) if there}
    return frozenset(found)


def _reciprocals(factor: Expr) -> Iterator[Expr]:
    """A negative power as powers of reciprocals; another factor as it is."""
    base, exponent = power_of(factor)
    if exponent >= 0:
        yield factor
        return
    whole, rest = divmod(-exponent, 1)
    if whole:
        yield raised(over(ONE, base), int(whole))
    if rest:
        yield over(ONE, raised(base, _HALF))
