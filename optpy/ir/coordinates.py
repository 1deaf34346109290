"""The coordinates to solve for: unknowns themselves, or the tangents of those on manifolds."""

from __future__ import annotations

from collections.abc import Iterable

from optpy.ir.fields import Role
from optpy.ir.leaves import Access
from optpy.symbolic.expr import ZERO, Expr, Var
from optpy.symbolic.traverse import map_variables


def is_unknown(key: object) -> bool:
    """Whether a leaf is a coordinate to solve for: of an unknown, or of the tangent of one on a manifold."""
    return isinstance(key, Access) and (
        key.field.role is Role.TANGENT or (key.field.role is Role.UNKNOWN and key.field.manifold is None)
    )


def at_zero(roots: Iterable[Expr]) -> list[Expr]:
    """The expressions where no unknown has moved: every tangent is 0."""

    def leaf(v: Var) -> Expr:
        return ZERO if isinstance(v.key, Access) and v.key.field.role is Role.TANGENT else v

    return map_variables(roots, leaf)
