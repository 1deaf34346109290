"""The points of a domain as NumPy arrays: a slab of its first axis at a time, so that arrays stay small."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from optpy.errors import InternalError
from optpy.ir.spaces import Domain, Extent, LoopVariable
from optpy.symbolic.affine import Affine, FloorDiv, RowNumber, TableEntry

Integers = NDArray[np.int64]

POINTS_AT_A_TIME = 1 << 16
"""Points evaluated at a time."""


class Bindings(Protocol):
    """The values that an index depends on."""

    @property
    def sizes(self) -> Mapping[Extent, int]:
        """The number of points along each dimension."""

    @property
    def edges(self) -> Mapping[str, NDArray[Any]]:
        """The array (E, columns) of each graph, by its name."""


@final
@dataclass(frozen=True, slots=True)
class Slab:
    """A part of a domain: all points whose first index lies in a range."""

    domain: Domain
    start: int
    shape: tuple[int, ...]

    def index(self, affine: Affine, bound: Bindings) -> Integers:
        """The value of an affine index at every point, in a shape that broadcasts to the slab's."""
        total: Integers = np.full((1,) * len(self.shape), affine.constant, np.int64)
        for atom, c in affine.terms:
            if isinstance(atom, Extent):
                total = total + c * bound.sizes[atom]
            elif isinstance(atom, LoopVariable):
                total = total + c * self._axis(self.domain.index(atom))
            elif isinstance(atom, TableEntry):
                total = total + c * _entries(bound, atom, self.index(atom.row, bound))
            elif isinstance(atom, RowNumber):
                total = total + c * self._row(atom, bound)
            elif isinstance(atom, FloorDiv):
                total = total + c * (self.index(atom.numerator, bound) // atom.denominator)
            else:
                raise InternalError(f"the index {affine} of an energy has the atom {atom}")
        return total

    def _row(self, number: RowNumber, bound: Bindings) -> Integers:
        """The number of an edge; -1 where there is none."""
        flat, inside = np.zeros((1,) * len(self.shape), np.int64), np.ones((1,) * len(self.shape), np.bool_)
        for a, dim in zip(number.index, number.table.counted, strict=True):
            at, n = self.index(a, bound), bound.sizes[dim]
            flat, inside = flat * n + at, inside & (at >= 0) & (at < n)
        return np.where(inside, flat, -1)

    def _axis(self, axis: int) -> Integers:
        first = self.start if axis == 0 else 0
        values = np.arange(first, first + self.shape[axis], dtype=np.int64)
        return values.reshape([-1 if n == axis else 1 for n in range(len(self.shape))])


def _entries(bound: Bindings, entry: TableEntry, rows: Integers) -> Integers:
    """The entries at given rows; -1, outside of every grid, where there is no such row."""
    column = bound.edges[entry.table.name][:, entry.column]
    inside = (rows >= 0) & (rows < len(column))
    found: Integers = np.full(rows.shape, -1, np.int64)
    found[inside] = column[rows[inside]]
    return found


def slabs(domain: Domain, sizes: Mapping[Extent, int]) -> Iterator[Slab]:
    """The whole domain, part by part."""
    shape = tuple(sizes[i.dim] for i in domain)
    if not shape:
        yield Slab(domain, 0, ())
        return
    rows = max(POINTS_AT_A_TIME // max(math.prod(shape[1:]), 1), 1)
    for start in range(0, max(shape[0], 1), rows):  # an empty domain is one empty slab
        yield Slab(domain, start, (min(rows, shape[0] - start), *shape[1:]))
