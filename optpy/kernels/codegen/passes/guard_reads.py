"""Reads are guarded by the bounds checks that they need, and by no others."""

from __future__ import annotations

from dataclasses import replace

from optpy.ir import Access, Domain, Extent, InBounds, LoopVariable, entry_dim, loops
from optpy.kernels.codegen.lower import loop_offset
from optpy.kernels.codegen.tables import row_is_inside
from optpy.symbolic.affine import Affine, Atom, TableEntry


def guard_reads(function: loops.Function) -> loops.Function:
    """Give every read its operand and its guards, and every atomic addition its guards.

    In the interior, accesses at an offset from the point are inside; at the border they are checked. Others are checked
    everywhere, unless the data was when it was bound.
    """

    (points,) = function.body
    assert isinstance(points, loops.Points)
    interior = _guarded(points.interior, points.domain, (), checked=False)
    border = _guarded(points.border, points.domain, (), checked=True)
    return replace(function, body=(replace(points, interior=interior, border=border),))


def _guarded(block: loops.Block, domain: Domain, inner: Domain, checked: bool) -> loops.Block:
    """The block with guards; ``inner`` are the variables of the loops around it, within the point."""

    def guards(a: Access) -> tuple[InBounds, ...]:
        axes = zip(a.index, a.field.dims, strict=True)
        return tuple(InBounds(i, dim) for i, dim in axes if not _is_inside(i, dim, domain, inner, checked))

    found: list[loops.Statement] = []
    for s in block:
        match s:
            case loops.Evaluate():
                read = (key for key in s.leaves if isinstance(key, Access))
                found.append(replace(s, reads=tuple((a, loops.Load(loops.MemoryOperand(a), guards(a))) for a in read)))
            case loops.Store(operand=loops.MemoryOperand(access=access), atomic=True):
                found.append(replace(s, guards=guards(access)))
            case loops.Loop(variable=LoopVariable() as variable):
                found.append(replace(s, body=_guarded(s.body, domain, (*inner, variable), checked)))
            case loops.Edges():
                found.append(replace(s, body=_guarded(s.body, domain, (*inner, s.loop.edge), checked)))
            case _:
                blocks = {name: _guarded(b, domain, inner, checked) for name, b in loops.blocks_of(s).items()}
                found.append(loops.with_blocks(s, blocks))
    return tuple(found)


def _is_inside(a: Affine, dim: Extent, domain: Domain, inner: Domain, checked: bool) -> bool:
    """Whether an index is known to be inside a dim."""
    if any(_is_bound(x, dim) and a.offset_from(x) == 0 for x in a.atoms):
        return True  # checked when the graph was bound
    own, free = loop_offset(a, domain), loop_offset(a, inner)
    if own is not None and own[0].dim == dim and (own[1] == 0 or not checked):
        return True
    return free is not None and free[0].dim == dim and free[1] == 0


def _is_bound(atom: Atom, dim: Extent) -> bool:
    """Whether an atom is an entry that points into a dim, and is read at an edge for certain."""
    return isinstance(atom, TableEntry) and entry_dim(atom) == dim and row_is_inside(atom)
