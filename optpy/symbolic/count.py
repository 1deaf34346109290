"""Operation counts of expressions, shared subexpressions counted once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import final

from optpy.symbolic.expr import Call, Expr, Number, Product, Sum, Var
from optpy.symbolic.order import topological


@final
@dataclass(frozen=True, slots=True)
class OperationCount:
    """The number of operations of each kind in one evaluation."""

    add: int = 0
    multiply: int = 0
    divide: int = 0
    function: int = 0
    """Square roots, sines, exponentials, ..."""
    boolean: int = 0
    select: int = 0
    load: int = 0
    cost: int = 0
    """All of them weighted, in additions."""

    def __str__(self) -> str:
        return (
            f"{self.add} add, {self.multiply} mul, {self.divide} div, {self.function} function, "
            f"{self.boolean} boolean, {self.select} select, {self.load} load"
        )


EXPENSIVE = 20
"""Operations of at least this cost (see ``operations``) are worth a load: the functions, whose polynomials are as many
additions and multiplications, and no division or root. By reasoning; ``STREAM`` of the stencils' schedule, measured, is
about as much."""

KINDS = ("add", "multiply", "divide", "function", "boolean", "select", "load")
"""The kinds of operations that tables of them have a column for."""

DIVIDE_COST = 8
ROOT_COST = 10


def count(roots: Iterable[Expr], free: Collection[Expr] = ()) -> OperationCount:
    """The operations of evaluating all the expressions together, but for nodes that are free."""
    return count_nodes(e for e in topological(roots) if e not in free)


def count_nodes(nodes: Iterable[Expr]) -> OperationCount:
    """The operations of nodes alone, without those of what they are made of."""
    total: dict[str, int] = {}
    for node in nodes:
        for kind, n in _operations(node).items():
            total[kind] = total.get(kind, 0) + n
    return OperationCount(**total)


def _operations(node: Expr) -> dict[str, int]:
    if isinstance(node, Var):
        return {"load": 1, "cost": 1}
    if isinstance(node, Sum):
        additions = len(node.terms) - (node.constant == 0)
        multiplications = sum(c not in (1, -1) for c, _ in node.terms)
        return {"add": additions, "multiply": multiplications, "cost": additions + multiplications}
    if isinstance(node, Product):
        return _product_operations(node)
    if isinstance(node, Call):
        kind = "boolean" if node.boolean else "function"
        return {kind: 1 if node.op.cost else 0, "cost": node.op.cost}
    return {}


def _product_operations(node: Product) -> dict[str, int]:
    over = [x for b, x in node.factors if x > 0 and b not in node.guards]
    under = [-x for _, x in node.factors if x < 0]
    divide = int(bool(under))
    roots = sum(type(x) is not int for x in over + under)
    multiply = max(len(over) - 1, 0) + max(len(under) - 1, 0) + sum(map(_power_multiplications, over + under))
    select = int(bool(node.guards) and not node.boolean)
    boolean = max(len(node.guards) - 1, 0)
    cost = multiply + select + boolean + DIVIDE_COST * divide + ROOT_COST * roots
    return {
        "multiply": multiply,
        "divide": divide,
        "function": roots,
        "select": select,
        "boolean": boolean,
        "cost": cost,
    }


def _power_multiplications(exponent: Number) -> int:
    """Of ``x ** exponent`` by repeated squaring; ``x ** (n + 1/2)`` is ``x ** n * sqrt(x)``."""
    n = int(exponent)
    if n == 0:
        return 0
    return n.bit_length() - 1 + bin(n).count("1") - 1 + (exponent != n)


def count_unshared(roots: Iterable[Expr]) -> OperationCount:
    """As ``count``, with a subexpression counted at each of its uses: what it takes without sharing."""
    totals: dict[Expr, dict[str, int]] = {}
    roots = list(roots)
    for node in topological(roots):
        total = dict(_operations(node))
        for child in node.children:
            for kind, n in totals[child].items():
                total[kind] = total.get(kind, 0) + n
        totals[node] = total
    return OperationCount(**{kind: sum(totals[r].get(kind, 0) for r in roots) for kind in (*KINDS, "cost")})


def is_dear(node: Expr) -> bool:
    """Whether an expression is a function that is worth a load rather than being computed again."""
    return isinstance(node, Call) and not node.boolean and node.op.cost >= EXPENSIVE
