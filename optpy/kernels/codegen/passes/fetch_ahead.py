"""Rows of volumes are fetched into the cache while earlier ones are computed.

A processor foresees by itself what is read in long runs. A stencil on a volume reads a hundred short rows at a time,
and waits for memory in most of them; a point takes so many operations that the processor begins none of the next
vector's before it is done. So each vector of points fetches one for later: memory and arithmetic work side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from optpy.ir import Access, Domain, Field, LoopVariable, loops
from optpy.kernels.codegen.conventions import Conventions
from optpy.symbolic.affine import Affine

_AHEAD, _END = loops.Variable("ahead"), loops.Variable("ahead_end")
_ROW, _LATER = loops.Variable("row"), loops.Variable("later")


def fetch_ahead(function: loops.Function, conventions: Conventions) -> loops.Function:
    """Let each vector of points fetch what those at the same place of a later segment's row read and store.

    Of each array that is the row that stands farthest on: those before it have been read already. Images, whose rows
    are long, are left alone: image_warping is no faster by it. So are points that have loops of their own.

    Args:
        function: that visits the border or the interior of a grid.
        conventions: those of where it runs.
    """

    def rule(s: loops.Statement) -> loops.Block:
        match s:
            case loops.Segments(body=(loops.Unravel() as row, *rest)) if len(row.domain) > 1:
                domain = row.domain
                found = loops.rewrite(tuple(rest), lambda x: _in_vectors(x, domain, conventions))
                return (replace(s, body=(row, *found)),)
        return (s,)

    return replace(function, body=loops.rewrite(function.body, rule))


def _in_vectors(s: loops.Statement, rows: Domain, conventions: Conventions) -> loops.Block:
    """A loop over points as one over vectors, each of which fetches first; every other statement as it is."""
    if not (isinstance(s, loops.Loop) and s.kind in ("independent", "narrow") and isinstance(s.variable, LoopVariable)):
        return (s,)
    fetches = _fetches(s.body, (*rows, s.variable), conventions)
    if not fetches or any(map(loops.blocks_of, s.body)):
        return (s,)
    lanes, begin = conventions.dialect.lanes, Affine.of(_AHEAD)
    stop = loops.Let(str(_END), loops.MinMax("min", begin + lanes, s.high))
    points = replace(s, low=begin, high=Affine.of(_END))
    return (loops.Loop(_AHEAD, s.low, s.high, (*fetches, stop, points), step=lanes),)


def _fetches(body: loops.Block, domain: Domain, conventions: Conventions) -> loops.Block:
    """A fetch of each channel of what stands on the grid, at the row that stands farthest on."""
    dims = tuple(i.dim for i in domain)
    leading: dict[tuple[Field, int], tuple[list[int], Access, bool]] = {}
    for access, stored in _accesses(body):
        key, away = (access.field, access.channel), _distance(access, domain)
        if access.field.dims != dims or away is None or conventions.interleaved(access.field):
            continue
        if key not in leading or away > leading[key][0]:
            leading[key] = away, access, stored
    return tuple(loops.Fetch(loops.MemoryOperand(_later(a)), stored) for _, a, stored in leading.values())


def _distance(access: Access, domain: Domain) -> list[int] | None:
    """The rows from a point to an access, in each dim; None where that is not constant."""
    away = [i.offset_from(k) for i, k in zip(access.index[:-1], domain[:-1], strict=False)]
    known = [d for d in away if d is not None]
    return known if len(known) == len(domain) - 1 else None


def _later(access: Access) -> Access:
    """The element that is fetched: as far from the later row as the access is from this one."""
    *outer, row, _ = access.index
    return replace(access, index=(*outer, row + Affine.of(_LATER) - Affine.of(_ROW), Affine.of(_AHEAD)))


def _accesses(body: loops.Block) -> Iterator[tuple[Access, bool]]:
    """All that is read and stored in memory."""
    for s in loops.walk(body):
        match s:
            case loops.Evaluate():
                operands = (load.operand for _, load in s.reads)
                yield from ((o.access, False) for o in operands if isinstance(o, loops.MemoryOperand))
            case loops.Store(operand=loops.MemoryOperand() as operand):
                yield operand.access, True
