"""The solver's vectors as fields: one for each unknown, of the layout of its tangent (of the unknown itself, but on a
manifold).

``p`` search direction, ``Ap`` = (J^T J + D) p, ``r`` linear residual, ``delta`` step, ``g`` gradient J^T F,
``C`` diagonal (or blocks) of J^T J, ``D`` damping, ``M`` inverse of its diagonal (or blocks), ``z`` preconditioned
residual where it is stored.
"""

from __future__ import annotations

from optpy.ir import REAL, Access, Domain, Field, Role, canonical_domain, point, tangent
from optpy.symbolic.expr import Expr, var


def vector(kind: str, unknown: Field, channels: int | None = None) -> Field:
    """The field of one of the solver's vectors that belongs to an unknown."""
    n = tangent(unknown).channels if channels is None else channels
    # The dot keeps them apart from the user's arrays, whose names are identifiers.
    return Field(f"{kind}.{unknown.name}", unknown.dims, n, REAL, Role.VECTOR)


def candidate(unknown: Field) -> Field:
    """The unknown at the end of a step: x + delta, or what that means on its manifold."""
    return vector("candidate", unknown, unknown.channels)


def block_channels(unknown: Field) -> int:
    """Stored entries of a symmetric block: the upper triangle."""
    n = tangent(unknown).channels
    return n * (n + 1) // 2


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
