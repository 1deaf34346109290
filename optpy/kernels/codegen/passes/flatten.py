"""Elements of fields get their addresses, by the layout of the processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from optpy.ir import Access, Field, loops
from optpy.kernels.codegen.conventions import Conventions
from optpy.symbolic.affine import Affine


def flatten(function: loops.Function, conventions: Conventions) -> loops.Function:
    """Give every operand in memory its address: rows a pitch apart, interleaved channels, a box of local memory."""
    local = {s.field: s.extents for s in loops.walk(function.body) if isinstance(s, loops.Alloc)}

    def addressed(operand: loops.MemoryOperand | loops.Lane) -> loops.MemoryOperand | loops.Lane:
        if isinstance(operand, loops.Lane):
            return operand
        return replace(operand, address=_address(operand.access, local, conventions))

    def rule(s: loops.Statement) -> loops.Block:
        match s:
            case loops.Evaluate():
                reads = tuple((a, replace(load, operand=addressed(load.operand))) for a, load in s.reads)
                return (replace(s, reads=reads),)
            case loops.Store():
                return (replace(s, operand=addressed(s.operand)),)
            case loops.LetSum() | loops.PackLoad() | loops.PackStore():
                return (replace(s, operand=replace(s.operand, address=_address(s.operand.access, local, conventions))),)
            case _:
                return (s,)

    return replace(function, body=loops.rewrite(function.body, rule))


def _address(access: Access, local: Mapping[Field, tuple[int, ...]], conventions: Conventions) -> loops.Integer:
    if not access.index:
        return Affine(0)
    if access.field in local:
        return loops.Flat(access.index, tuple(map(Affine, local[access.field][1:])))
    dims = access.field.dims
    if conventions.interleaved(access.field):
        return loops.Flat(access.index, tuple(map(Affine.of, dims[1:])), conventions.point_stride(access.field))
    if len(dims) == 1:
        return access.index[0]
    return loops.Flat(access.index, (*map(Affine.of, dims[1:-1]), Affine.of(loops.Pitch(dims))))
