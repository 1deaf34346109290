"""The price of assembling J^T J, from counts that are known once data is bound."""

from __future__ import annotations

import math
from typing import Final

from optpy.ir import NormalMatrix, NormalTerm
from optpy.linear.system import System

IN_TURN: Final = 24.0
"""Multiplications by entries of J, in vectors, that take as long as adding one number to a block: points are visited in
turn. With it the assembly of bundle_fusion counts as 109 iterations. In ``python -m bench.preconditioners bundle_fusion
--size 64``, on a busy machine, making multigrid takes as long as 105 of them and making a factorisation 120, of which
all but the assembly is next to nothing: there are 12 nodes."""
_DOUBLE: Final = 2
"""Numbers of a product in float32 that are as long as one of the matrix. In float64 it is one: the price is then up to
a tenth too high."""


def assembling(system: System) -> float:
    """The iterations of conjugate gradients that take as long as assembling J^T J once, by estimate.

    Of each residual a product multiplies every entry of J twice: by p, and by what comes of that. Assembling stores the
    numbers that its blocks are made of, reads them again from each element that the residual reads, and adds them to
    all blocks there. Where the points of a residual are edges alone, products visit them in turn, too.

    Args:
        system: whose program has a ``NormalMatrix``.
    """
    normal = system.program.normal
    assert isinstance(normal, NormalMatrix)
    edges = {graph.edges for graph in system.graphs}
    assembly = product = 0.0
    for term in normal.terms:
        points = math.prod(system.sizes[i.dim] for i in term.domain)
        assembly += points * blocks_of_a_point(term)
        in_turn = not term.domain or term.domain[-1].dim in edges  # without a domain there is one point
        product += points * 2 * term.entries * (IN_TURN if in_turn else 1.0)
    return assembly / product if product else 0.0


def blocks_of_a_point(term: NormalTerm) -> float:
    """The cost of adding one residual to the matrix, in multiplications by entries of J, in vectors."""
    stored = 0 if term.stored is None else term.stored.channels
    read = added = 0
    for s in range(len(term.reads)):
        row = [entry for t in range(len(term.reads)) for entry in term.blocks[s, t]]
        read += len({entry.channel for entry in row} - {None})
        added += len(row)
    return _DOUBLE * (2 * stored + read) + IN_TURN * added  # what is stored over is brought from memory first
