"""The coordinates to solve for: unknowns themselves, or the tangents of those on manifolds."""

from __future__ import annotations

from collections.abc import Iterable

from optpy.ir.fields import Role
from optpy.ir.leaves import Access
from optpy.symbolic.elements import GIVEN_SLOPES
from optpy.symbolic.expr import ZERO, Call, Expr, Var
from optpy.symbolic.traverse import rebuild, transform


def is_unknown(key: object) -> bool:
    """Whether a leaf is a coordinate to solve for: of an unknown, or of the tangent of one on a manifold."""
    return isinstance(key, Access) and (
        key.field.role is Role.TANGENT or (key.field.role is Role.UNKNOWN and key.field.manifold is None)
    )


def at_zero(roots: Iterable[Expr]) -> list[Expr]:
    """The expressions where no unknown has moved: every tangent is 0. They are not to be differentiated any more."""

    def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
        if isinstance(node, Var):
            return ZERO if isinstance(node.key, Access) and node.key.field.role is Role.TANGENT else node
        if isinstance(node, Call) and node.op.name == GIVEN_SLOPES:
            return children[0]
        return node if children == node.children else rebuild(node, children)

    return transform(roots, rule)
