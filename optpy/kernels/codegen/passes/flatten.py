"""Elements of fields get their addresses, by the layout of the processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from optpy.ir import Access, Field, IndexValue, loops
from optpy.ir.loops.arithmetic import CLAMPED, NUMBER, PLACE, READ, with_args
from optpy.kernels.codegen.conventions import Conventions
from optpy.symbolic.affine import Affine
from optpy.symbolic.elements import is_element
from optpy.symbolic.expr import Expr, Var, const, make_call, var
from optpy.symbolic.order import topological


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
            case loops.LetSum() | loops.Fetch() | loops.PackLoad() | loops.PackStore() | loops.PackAdd():
                return (replace(s, operand=replace(s.operand, address=_address(s.operand.access, local, conventions))),)
            case _:
                return (s,)

    return _elements_read(replace(function, body=loops.rewrite(function.body, rule)), conventions)


def _elements_read(function: loops.Function, conventions: Conventions) -> loops.Function:
    """Elements at computed places are read at whole numbers inside their arrays."""

    def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
        return _read(children, conventions) if is_element(node) else with_args(node, children)

    values = (v for s in loops.walk(function.body) if isinstance(s, loops.Evaluate) for v in s.values)
    if not any(map(is_element, topological(values))):
        return function
    read = loops.map_values(function, rule)
    return replace(read, body=loops.rewrite(read.body, loops.with_own_leaves))


def _read(args: tuple[Expr, ...], conventions: Conventions) -> Expr:
    plane, *index = args
    assert isinstance(plane, Var)
    field: Field = plane.key.field
    lengths: list[Affine] = [*map(Affine.of, field.dims)]
    inside = [make_call(CLAMPED, (i, var(IndexValue(n)))) for i, n in zip(index, lengths, strict=True)]
    stride = 1
    if conventions.interleaved(field):
        stride = conventions.point_stride(field)
    elif len(lengths) > 1:
        lengths[-1] = Affine.of(loops.Pitch(field.dims))
    place = inside[0]
    for i, length in zip(inside[1:], lengths[1:], strict=True):
        place = make_call(PLACE, (place, var(IndexValue(length)), i))
    return make_call(NUMBER, (make_call(READ, (plane, place, const(stride))),))


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
