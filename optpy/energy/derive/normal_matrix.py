"""J^T J as blocks that each residual adds: what an assembled matrix, and preconditioners made of it, are built from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.materialised import passes
from optpy.energy.derive.routines import Fixed
from optpy.energy.derive.vectors import D, R, Z, vector
from optpy.energy.derive.views import MultiIndex, shift
from optpy.ir import (
    Access,
    Assignment,
    BlockEntry,
    Field,
    Group,
    NormalMatrix,
    NormalTerm,
    Residual,
    Role,
    Routine,
    canonical_domain,
    point,
)
from optpy.symbolic.affine import Affine, Atom
from optpy.symbolic.expr import ONE, ZERO, Expr, add, logical_not, mul, split_content
from optpy.symbolic.factor import factor

_MOST_CHANNELS = 12
"""Rows of a block at most: beyond, one block is a page of memory, and dense algebra on it takes its time. It is what
native code has been made for (``MAX_BLOCK`` of the factorisation), and not set by a benchmark."""


_MOST_READS = 64
"""Elements that one residual reads at most: each pair of them is a block, with code of its own. By reasoning: a matrix
with more numbers in a row is read in more time than products take by J."""


def matrix_obstacle(unknowns: Sequence[Field], sources: Sequence[LinearisedResidual]) -> str | None:
    """The reason why there is no matrix: unknowns stand on several grids, or have many channels, or sums are read, or a
    residual reads much."""
    dims, channels = unknowns[0].dims, sum(u.channels for u in unknowns)
    other = next((u for u in unknowns if u.dims != dims), None)
    if other is not None:
        return f"'{unknowns[0]}' and '{other}' stand on different grids"
    if not dims:
        return "its unknowns stand on no grid"
    if summed := next((s.residual.label for s in sources for a in s.accesses if a.field not in unknowns), None):
        return f"'{summed}' reads a sum, which couples all that is summed"
    reads = {s.residual.label: len(dict.fromkeys(a.index for a in s.accesses)) for s in sources}
    if label := next((x for x, n in reads.items() if n > _MOST_READS), None):
        return f"'{label}' reads the unknowns at {reads[label]} places, and so couples more than {_MOST_READS} elements"
    return (
        f"{channels} numbers are unknown at each point, more than {_MOST_CHANNELS}"
        if channels > _MOST_CHANNELS
        else None
    )


def normal_matrix(
    sources: Sequence[LinearisedResidual], unknowns: Sequence[Field], fixed: Fixed
) -> tuple[NormalMatrix, list[Routine]]:
    """The matrix, and the routines that store what its blocks are made of.

    Args:
        sources: the linearised residuals.
        unknowns: what they are differentiated by (tangents, on manifolds); without a ``matrix_obstacle``.
        fixed: rows and columns of fixed elements are 0.
    """
    dims = unknowns[0].dims
    elements = tuple((u, a) for u in unknowns for a in range(u.channels))
    number = {e: n for n, e in enumerate(elements)}
    terms: list[NormalTerm] = []
    stores: list[tuple[Residual, Sequence[Assignment]]] = []
    for source in sources:
        if source.accesses:
            term, own = _term(source, number, fixed)
            terms.append(term)
            stores.append((source.residual, own))
    vectors = {kind: tuple((vector(kind, u), a) for u, a in elements) for kind in (R, Z, D)}
    return NormalMatrix(dims, elements, tuple(terms), vectors), passes(Group.NORMAL, stores, prepares=False)


def _term(
    source: LinearisedResidual, number: dict[tuple[Field, int], int], fixed: Fixed
) -> tuple[NormalTerm, list[Assignment]]:
    reads = tuple(dict.fromkeys(a.index for a in source.accesses))
    columns = [_columns(source, read, number, fixed) for read in reads]
    products: dict[tuple[int, int], dict[tuple[int, int], Expr]] = {}
    for s, t in combinations_with_replacement(range(len(reads)), 2):
        products[s, t] = _block(columns[s], columns[t])
        products[t, s] = {(b, a): e for (a, b), e in products[s, t].items()}
    split = {pair: {ab: split_content(e) for ab, e in block.items()} for pair, block in products.items()}
    kept = list(dict.fromkeys(rest for block in split.values() for _, rest in block.values() if rest is not ONE))
    channel = {e: n for n, e in enumerate(kept)}
    blocks = {
        pair: tuple(BlockEntry(a, b, float(c), channel.get(rest)) for (a, b), (c, rest) in block.items())
        for pair, block in split.items()
    }
    domain, entries = source.residual.domain, sum(len(p) for p in source.partials)
    if not kept:
        return NormalTerm(domain, reads, None, blocks, entries), []
    # In double: rounded to less, the sum of such products need not be positive definite where J^T J is.
    stored = Field(f"normal.{source.residual.label}", tuple(i.dim for i in domain), len(kept), "float64", Role.STORED)
    values = [Assignment(Access(stored, point(domain), n), e) for n, e in enumerate(factor(kept))]
    return NormalTerm(domain, reads, stored, blocks, entries), values


ColumnPartials = list[dict[int, Expr]]
"""For each component of a residual, its derivatives by the channels of one element."""


def _columns(
    source: LinearisedResidual, read: MultiIndex, number: dict[tuple[Field, int], int], fixed: Fixed
) -> ColumnPartials:
    return [
        {number[a.field, a.channel]: mul(_free(fixed, a), d) for a, d in p.items() if a.index == read}
        for p in source.partials
    ]


def _free(fixed: Fixed, access: Access) -> Expr:
    """1 where the element that is read is solved for."""
    if access.field not in fixed:
        return ONE
    here: dict[Atom, Affine] = dict(zip(canonical_domain(access.field.dims), access.index, strict=True))
    (condition,) = shift([logical_not(fixed[access.field])], here)
    return condition


def _block(rows: ColumnPartials, columns: ColumnPartials) -> dict[tuple[int, int], Expr]:
    """J_s^T J_t, without its zeros."""
    parts: dict[tuple[int, int], list[Expr]] = {}
    for row, column in zip(rows, columns, strict=True):
        for a, d in row.items():
            for b, e in column.items():
                parts.setdefault((a, b), []).append(mul(d, e))
    summed = {ab: add(*es) for ab, es in parts.items()}
    return {ab: e for ab, e in summed.items() if e is not ZERO}
