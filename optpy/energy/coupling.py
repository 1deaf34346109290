"""Which elements of the unknowns J^T J couple: what a multigrid preconditioner has to know of an energy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from ..ir import Access, Coupling, Field
from .gather import LinearisedResidual
from .vectors import vector

_MOST_COUPLED = 1024
"""Entries of a row of a coarse matrix. Beyond that the preconditioner takes more time and memory than it saves."""


def coupling(sources: Sequence[LinearisedResidual], unknowns: Sequence[Field]) -> Coupling | None:
    """The coupling; None where multigrid would not apply: the unknowns stand on several grids, or distances depend
    on the place, or some dim is not coupled at all, or the stencils are so large that it would not pay."""
    dims = unknowns[0].dims
    if not dims or any(u.dims != dims for u in unknowns):
        return None
    elements = [(u, a) for u in unknowns for a in range(u.channels)]
    number = {e: n for n, e in enumerate(elements)}
    reach = [0] * len(dims)
    pairs = {(n, n) for n in range(len(elements))}
    for source in sources:
        for partials in source.partials:
            for a, b in product(partials, repeat=2):
                distance = _distance(a, b)
                if distance is None:
                    return None
                reach = [max(r, abs(d)) for r, d in zip(reach, distance, strict=True)]
                pairs.add((number[a.field, a.channel], number[b.field, b.channel]))
    vectors = {kind: tuple((vector(kind, u), a) for u, a in elements) for kind in ("z", "r", "Ap", "C")}
    found = Coupling(dims, tuple(elements), tuple(reach), tuple(sorted(pairs)), vectors)
    entries = prod(2 * r + 1 for r in found.coarse_reach) * len(pairs)
    return found if min(reach) > 0 and entries <= _MOST_COUPLED else None


def _distance(a: Access, b: Access) -> list[int] | None:
    differences = [x - y for x, y in zip(a.index, b.index, strict=True)]
    return [d.constant for d in differences] if all(d.is_constant for d in differences) else None
