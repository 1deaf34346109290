"""The structure of J^T J before there is data: the elements that it couples, and the parts of its blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from optpy.ir.fields import Field, FieldChannel, VectorKind
from optpy.ir.spaces import Domain, Extent, Hypergraph
from optpy.symbolic.affine import Affine


@final
@dataclass(frozen=True, slots=True)
class EdgeCoupling:
    """Two slots of the edges of a graph at which one residual reads unknowns: their distance is in the data.

    Attributes:
        slots: the two, in their order.
        offset: of what is read at the first one from what is read at the second, beside that of the points.
        label: the residual's.
    """

    graph: Hypergraph
    slots: tuple[int, int]
    offset: tuple[int, ...]
    label: str


@final
@dataclass(frozen=True, slots=True)
class Coupling:
    """The sparsity of J^T J where all unknowns stand on one grid and are read at constant offsets of one another, or by
    edges, whose ends must be found to be near when they are known.

    Attributes:
        dims: of the grid.
        elements: the channels of all unknowns, numbered in this order.
        reach: of each dim, how far apart two points are at most that are coupled at a constant offset.
        pairs: (row, column) of elements that are coupled, sorted; symmetric, with the diagonal.
        vectors: the solver's vectors that a preconditioner works on, element by element.
        edges: what couples points of the grid at distances that the data decides.
    """

    dims: tuple[Extent, ...]
    elements: tuple[FieldChannel, ...]
    reach: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    vectors: Mapping[VectorKind, tuple[FieldChannel, ...]]
    edges: tuple[EdgeCoupling, ...] = ()

    @property
    def coarse_reach(self) -> tuple[int, ...]:
        """The reach of P^T J^T J P, where P interpolates linearly from every other point."""
        return tuple((r + 2) // 2 for r in self.reach)

    @property
    def longest(self) -> tuple[int, ...]:
        """The largest reach whose coarse reach is no more than this one's: how far apart the ends of edges may be."""
        return tuple(2 * r - 1 for r in self.coarse_reach)


@final
@dataclass(frozen=True, slots=True)
class Uncoupled:
    """The reason why there is no ``Coupling``, as part of a sentence."""

    reason: str


@final
@dataclass(frozen=True, slots=True)
class BlockEntry:
    """``block[row, column] += factor * stored[channel]``, or ``+= factor`` where the channel is None."""

    row: int
    column: int
    factor: float
    channel: int | None


@final
@dataclass(frozen=True, slots=True)
class NormalTerm:
    """The contribution of one residual to J^T J.

    Attributes:
        domain: of the residual.
        reads: the indices at which it reads unknowns.
        stored: numbers that the blocks are made of, for each point of the domain; None where there are none.
        blocks: of each pair of reads (row, column), by their positions.
        entries: of J, at each point of the domain.
    """

    domain: Domain
    reads: tuple[tuple[Affine, ...], ...]
    stored: Field | None
    blocks: Mapping[tuple[int, int], tuple[BlockEntry, ...]]
    entries: int


@final
@dataclass(frozen=True, slots=True)
class NormalMatrix:
    """J^T J as a sparse matrix of dense blocks, one row for each point of the grid that all unknowns stand on.

    Attributes:
        dims: of the grid.
        elements: the channels of all unknowns: the rows of a block.
        terms: what it is the sum of.
        vectors: the solver's vectors that a preconditioner works on, element by element.
    """

    dims: tuple[Extent, ...]
    elements: tuple[FieldChannel, ...]
    terms: tuple[NormalTerm, ...]
    vectors: Mapping[VectorKind, tuple[FieldChannel, ...]]
