"""The order of a DAG: children before parents."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Protocol, Self, TypeVar


class Node(Protocol):
    """A node, or anything else, that is made of others of its kind."""

    @property
    def children(self) -> tuple[Self, ...]:
        """The nodes that this one is made of directly."""


_N = TypeVar("_N", bound=Node)


def topological(roots: Iterable[_N], leaves: Set[_N] = frozenset()) -> list[_N]:
    """Every node once, children before parents, in an order that depends on the structure alone.

    Iterative: a DAG may be deeper than Python's stack.

    Args:
        roots: where to begin.
        leaves: nodes whose children are passed over.
    """
    order: list[_N] = []
    opened: set[_N] = set()
    closed: set[_N] = set()
    stack = list(roots)[::-1]
    while stack:
        node = stack.pop()
        if node in closed:
            continue
        children = node.children
        if not children or node in opened or node in leaves:
            closed.add(node)
            order.append(node)
        else:
            opened.add(node)
            stack.append(node)
            stack.extend([child for child in reversed(children) if child not in closed])
    return order
