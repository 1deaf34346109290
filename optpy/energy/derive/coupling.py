"""The sparsity of J^T J: the elements of the unknowns that it couples, as levels of their grid need them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import final

from optpy.energy.derive.gather import moving_part
from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.vectors import AP, C, R, Z, vector
from optpy.energy.language.naming import shown
from optpy.ir import Access, Coupling, EdgeCoupling, Extent, Field, FieldChannel, Residual, Uncoupled, slot_read
from optpy.symbolic.affine import Affine, Atom

_MOST_COUPLED = 1024
"""Entries of a row of a coarse matrix. Beyond that the preconditioner takes more time and memory than it saves, by
reasoning: all of a row are read in each sweep."""


_MOST_JOINED = 64
"""Elements at distances that are not constant in one component of a residual: each pair of them is looked at, here and
again when graphs are bound."""


def coupling(sources: Sequence[LinearisedResidual], unknowns: Sequence[Field]) -> Coupling | Uncoupled:
    """The coupling, or why there are no levels of a grid: the unknowns stand on several grids, or distances depend on
    the place, or some dim is not coupled at all, or the stencils are so large that it would not pay.

    Distances between two slots of an edge depend on the data; they are left to be checked against it.
    """
    grids = {u.dims: u for u in reversed(unknowns)}
    if len(grids) > 1 or () in grids:
        places = ", ".join(f"{u.name!r} on {_grid(u.dims)}" for u in unknowns)
        return Uncoupled(f"the unknowns must all stand on one grid, but they are {places}")
    elements = tuple((u, a) for u in unknowns for a in range(u.channels))
    if summed := next((s.residual.label for s in sources for a in s.accesses if a.field not in unknowns), None):
        return Uncoupled(f"the term {summed!r} reads a sum, which couples all that is summed")
    pattern = _Pattern(elements, [0] * len(unknowns[0].dims))
    for source in sources:
        for partials in source.partials:
            if pattern.add_neighbours(partials):
                continue
            if len(partials) > _MOST_JOINED:
                return Uncoupled(
                    f"the term {source.residual.label!r} reads {len(partials)} elements whose distances are not the "
                    f"same everywhere, or depend on graphs; the most is {_MOST_JOINED}"
                )
            for a, b in product(partials, repeat=2):
                if not pattern.add(source.residual, a, b):
                    return Uncoupled(
                        f"the distance between {_text(source.residual, a)} and {_text(source.residual, b)} in the term "
                        f"{source.residual.label!r} is not the same everywhere"
                    )
    return pattern.coupling(unknowns[0].dims)


@final
@dataclass(slots=True)
class _Pattern:
    """The coupled elements, found pair by pair."""

    elements: tuple[FieldChannel, ...]
    reach: list[int]
    edges: dict[EdgeCoupling, None] = field(default_factory=dict)
    pairs: set[tuple[int, int]] = field(init=False)
    number: dict[FieldChannel, int] = field(init=False)

    def __post_init__(self) -> None:
        self.number = {e: n for n, e in enumerate(self.elements)}
        self.pairs = {(n, n) for n in self.number.values()}

    def add_neighbours(self, accesses: Collection[Access]) -> bool:
        """Take in that a residual reads all of them, at constant distances from one another; False if it does not."""
        if len({moving_part(a.index) for a in accesses}) > 1:
            return False
        for axis, constants in enumerate(zip(*([x.constant for x in a.index] for a in accesses), strict=True)):
            self.reach[axis] = max(self.reach[axis], max(constants) - min(constants))
        numbers = {self.number[a.field, a.channel] for a in accesses}
        self.pairs |= {(m, n) for m in numbers for n in numbers}
        return True

    def add(self, residual: Residual, a: Access, b: Access) -> bool:
        """Take in that a residual reads both; whether their distance is known, or will be once graphs are bound."""
        distance = _distance(a, b)
        if distance is not None:
            self.reach = [max(r, abs(d)) for r, d in zip(self.reach, distance, strict=True)]
        else:
            edges = _joined_by_edges(residual, a, b)
            if edges is None:
                return False
            self.edges[edges] = None
        self.pairs.add((self.number[a.field, a.channel], self.number[b.field, b.channel]))
        return True

    def coupling(self, dims: tuple[Extent, ...]) -> Coupling | Uncoupled:
        apart = [d for d, r in zip(dims, self.reach, strict=True) if r == 0]
        if apart:
            return Uncoupled(f"no term couples neighbours on the grid {_grid(dims)} along {apart[0]}")
        vectors = {kind: tuple((vector(kind, u), a) for u, a in self.elements) for kind in (Z, R, AP, C)}
        found = Coupling(
            dims, self.elements, tuple(self.reach), tuple(sorted(self.pairs)), vectors, edges=tuple(self.edges)
        )
        entries = prod(2 * r + 1 for r in found.coarse_reach) * len(self.pairs)
        if entries <= _MOST_COUPLED:
            return found
        reach = ", ".join(f"{r} along {d}" for d, r in zip(dims, self.reach, strict=True))
        return Uncoupled(
            f"the stencils are too large: unknowns are coupled up to {reach}, so that coarse matrices would have "
            f"{entries} entries for each point; the most is {_MOST_COUPLED}"
        )


def _distance(a: Access, b: Access) -> list[int] | None:
    differences = [x - y for x, y in zip(a.index, b.index, strict=True)]
    return [d.constant for d in differences] if all(d.is_constant for d in differences) else None


def _joined_by_edges(residual: Residual, a: Access, b: Access) -> EdgeCoupling | None:
    """The edges of a graph of which one slot is read by a, another by b."""
    first, second = slot_read(a.index), slot_read(b.index)
    if first is None or second is None or first.graph != second.graph or first.edge != second.edge:
        return None
    if first.axes != tuple(range(len(a.index))) or second.axes != first.axes:
        return None  # it is not the whole grid, or not in its order
    first, second = sorted((first, second), key=lambda read: read.slot)
    offset = tuple(p - q for p, q in zip(first.offsets, second.offsets, strict=True))
    return EdgeCoupling(first.graph, (first.slot, second.slot), offset, residual.label)


def _text(residual: Residual, access: Access) -> str:
    """An access in the user's own indices."""
    names: dict[Atom, Affine] = {i: Affine.of(w) for i, w in zip(residual.domain, residual.written, strict=False)}
    index = (a.substitute(names) for a in access.index)
    return shown(Access(access.field, tuple(index), access.channel))


def _grid(dims: Sequence[Extent]) -> str:
    return f"({', '.join(map(str, dims))}{',' if len(dims) == 1 else ''})" if dims else "no grid"
