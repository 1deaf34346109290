"""The solver's vectors as fields over the grids of the unknowns, and what is read of a field at the current point."""

from __future__ import annotations

from optpy.ir import Access, Domain, Field, Vector, VectorKind, canonical_domain, point, tangent
from optpy.symbolic.expr import Expr, var

AP, C, D = VectorKind.AP, VectorKind.C, VectorKind.D
DELTA, G, M = VectorKind.DELTA, VectorKind.G, VectorKind.M
P, R, Z = VectorKind.P, VectorKind.R, VectorKind.Z
"""The symbols of the formulas here."""


def vector(kind: VectorKind, unknown: Field, blocks: bool = False) -> Field:
    """The field of one of the solver's vectors; see ``ir.Vector``.

    Args:
        kind: any but the candidate.
        unknown: or its tangent.
        blocks: whether it has a block for each element, not only the diagonal.
    """
    return Vector(kind, tangent(unknown), blocks).field


def candidate(unknown: Field) -> Field:
    """The unknown at the end of a step: x + delta, or what that means on its manifold."""
    return Vector(VectorKind.CANDIDATE, unknown).field


def block_channel(unknown: Field, a: int, b: int) -> int:
    """Position of entry (a, b) of the upper triangle, row by row."""
    a, b = min(a, b), max(a, b)
    return a * tangent(unknown).channels - a * (a - 1) // 2 + (b - a)


def at(field: Field, domain: Domain, channel: int) -> Access:
    """A field's channel at the current point of a domain."""
    return Access(field, point(domain), channel)


def here(field: Field, channel: int) -> Expr:
    """A field's channel at the current point of its own grid."""
    return var(at(field, canonical_domain(field.dims), channel))
