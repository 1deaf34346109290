"""Short rows of many arrays are fetched into the cache before they are read.

A processor foresees by itself what is read in long runs. A stencil on a volume reads a hundred short rows at a time,
and waits for memory in most of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from optpy.ir import Access, Domain, Field, LoopVariable, loops
from optpy.kernels.codegen.conventions import Conventions
from optpy.symbolic.affine import Affine

ROWS = 2
"""So far ahead. 2, 8 and 12 rows take the same time: a product of volumetric_deformation, 64 x 64 x 64 points on one
thread of a busy machine, 9.4, 9.7 and 9.0 ns a point, and 18.4 with nothing fetched."""
POINTS = 256
"""Of a row at most: from there on the processor foresees the others."""

_AHEAD, _END = loops.Variable("ahead"), loops.Variable("ahead_end")


def fetch_ahead(function: loops.Function, conventions: Conventions) -> loops.Function:
    """Let the function that visits borders, the first to come to a row, fetch what a later row reads and stores.

    Of each array that is the row that stands farthest on: those before it have been read already. Images, whose rows
    are long, are left alone: image_warping is no faster by it.
    """

    def rule(s: loops.Statement) -> loops.Block:
        match s:
            case loops.Segments(body=(loops.Unravel() as row, *rest)) if len(row.domain) > 1:
                ends = [x.variable for x in loops.walk(s.body) if isinstance(x, loops.Loop) and x.kind == "narrow"]
                if ends and isinstance(ends[0], LoopVariable):
                    fetches = _fetches(s.body, (*row.domain, ends[0]), conventions)
                    return (replace(s, body=(row, *_along_row(fetches, conventions), *rest)),)
        return (s,)

    return replace(function, body=loops.rewrite(function.body, rule))


def _along_row(fetches: loops.Block, conventions: Conventions) -> loops.Block:
    """The loop that fetches a row; every array has the cache lines that one of the solver's numbers has."""
    begin = Affine.of(loops.Variable("begin"))
    stop = loops.MinMax("min", begin + POINTS, Affine.of(loops.Variable("end")))
    loop = loops.Loop(_AHEAD, begin, Affine.of(_END), fetches, step=conventions.dialect.lanes)
    return (loops.Let(str(_END), stop), loop) if fetches else ()


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
    """The element of a later row that is fetched."""
    *outer, row, _ = access.index
    return replace(access, index=(*outer, row + ROWS, Affine.of(_AHEAD)))


def _accesses(body: loops.Block) -> Iterator[tuple[Access, bool]]:
    """All that is read and stored in memory."""
    for s in loops.walk(body):
        match s:
            case loops.Evaluate():
                operands = (load.operand for _, load in s.reads)
                yield from ((o.access, False) for o in operands if isinstance(o, loops.MemoryOperand))
            case loops.Store(operand=loops.MemoryOperand() as operand):
                yield operand.access, True
