"""Derivatives of the DAG: OnePass partials, Jacobian-vector products J p and adjoints J^T v.

All three take local partials from the table of operations alone.

References: OnePass: B. Guenter, J. Rapp, M. Finch, "Symbolic Differentiation in GPU Shaders", 2011;
D*: B. Guenter, "Efficient Symbolic Differentiation for Graphics Applications", SIGGRAPH 2007.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from optpy.symbolic.booleans import literals
from optpy.symbolic.expr import (
    ONE,
    ZERO,
    Call,
    Expr,
    Number,
    Product,
    Sum,
    Var,
    add,
    assume,
    const,
    logical_or,
    mul,
    power,
)
from optpy.symbolic.order import topological


def local_partials(node: Expr) -> tuple[Expr, ...]:
    """d node / d child for each child. Booleans are constant (almost everywhere)."""
    if node.boolean:
        return (ZERO,) * len(node.children)
    if isinstance(node, Sum):
        return tuple(const(c) for c, _ in node.terms)
    if isinstance(node, Product):
        return _product_partials(node.factors)
    if isinstance(node, Call):
        return node.op.partials(*node.args)
    return ()


def _product_partials(factors: Sequence[tuple[Expr, Number]]) -> tuple[Expr, ...]:
    """``x * base ** (x - 1)`` times the other factors, for each factor that is not boolean."""
    powers: list[Expr] = [power(b, x) for b, x in factors]
    one: Expr = ONE
    # Products of all factors before and after each one: linear work where multiplying out the others is
    # quadratic.
    before = list(accumulate(powers[:-1], mul, initial=one))
    after = list(accumulate(powers[:0:-1], mul, initial=one))[::-1]
    return tuple(
        ZERO if base.boolean else mul(const(exponent), power(base, exponent - 1), before[n], after[n])
        for n, (base, exponent) in enumerate(factors)
    )


class Derivative:
    """Derivatives of a fixed list of expressions, memoised on (expression, variable).

    Args:
        roots: the expressions.
        wrt: the variables that may be differentiated by; everything else is constant.
    """

    def __init__(self, roots: Iterable[Expr], wrt: Iterable[Var]) -> None:
        self._bit = {v: 1 << n for n, v in enumerate(dict.fromkeys(wrt))}
        self._depends: dict[Expr, int] = {}
        for node in topological(roots):
            mask = self._bit.get(node, 0) if isinstance(node, Var) else 0
            if not node.boolean and not (isinstance(node, Call) and node.op.name == "stop_gradient"):
                for child in node.children:
                    mask |= self._depends[child]
            self._depends[node] = mask
        self._locals: dict[Expr, tuple[Expr, ...]] = {}
        self._partials: dict[tuple[Expr, Var], Expr] = {}

    def variables(self, root: Expr) -> list[Var]:
        """The variables that the derivative of root can differ from zero for, in order of declaration."""
        mask = self._depends[root]
        return [v for v, bit in self._bit.items() if mask & bit]

    def _local(self, node: Expr) -> tuple[Expr, ...]:
        found = self._locals.get(node)
        if found is None:
            found = self._locals[node] = local_partials(node)
        return found

    def partial(self, root: Expr, variable: Var) -> Expr:
        """d root / d variable by one memoised pass over the nodes that depend on the variable (OnePass)."""
        bit = self._bit[variable]
        if not self._depends[root] & bit:
            return ZERO
        memo = self._partials
        stack = [root]
        while stack:
            node = stack[-1]
            if (node, variable) in memo:
                stack.pop()
                continue
            if node is variable:
                memo[node, variable] = ONE
                continue
            active = [n for n, c in enumerate(node.children) if self._depends[c] & bit]
            pending = [node.children[n] for n in active if (node.children[n], variable) not in memo]
            if pending:
                stack.extend(pending)
                continue
            local = self._local(node)
            memo[node, variable] = add(*(mul(local[n], memo[node.children[n], variable]) for n in active))
        return memo[root, variable]

    def jvp(self, root: Expr, seeds: Mapping[Var, Expr]) -> Expr:
        """``sum_v d root/d v * seeds[v]`` in one forward sweep (J p for one residual)."""
        mask = 0
        dot: dict[Expr, Expr] = {}
        for v, e in seeds.items():
            mask |= self._bit[v]
            dot[v] = e
        for node in topological([root]):
            if node in dot or not self._depends[node] & mask:
                continue
            local = self._local(node)
            parts = [mul(local[n], dot[c]) for n, c in enumerate(node.children) if self._depends[c] & mask]
            dot[node] = add(*parts)
        return dot.get(root, ZERO)

    def adjoint(self, root: Expr, seed: Expr) -> dict[Var, Expr]:
        """``{v: d root/d v * seed}`` in one backward sweep (a row of J^T times a number)."""
        bar: dict[Expr, list[Expr]] = {root: [seed]}
        used: dict[Expr, list[Expr]] = {root: [ONE]}
        result: dict[Var, Expr] = {}
        for node in reversed(topological([root])):
            if node not in bar or not self._depends[node]:
                continue
            value = add(*bar.pop(node))
            if isinstance(node, Var):
                result[node] = value
                continue
            # A node used under conditions alone gets a sum of guarded parts. Its slope may be infinite
            # where all of them fail, so it must stay behind them: the condition under which the node is
            # used at all.
            selects = logical_or(*dict.fromkeys(used.pop(node)))
            bare = assume(value, literals(selects))
            inside = mul(selects, *node.guards) if isinstance(node, Product) else selects
            for child, slope in zip(node.children, self._local(node), strict=True):
                if self._depends[child]:
                    safe = bare is value and slope.finite
                    bar.setdefault(child, []).append(mul(slope, value) if safe else mul(selects, slope, bare))
                    used.setdefault(child, []).append(inside)
        return {v: result[v] for v in self._bit if v in result}
