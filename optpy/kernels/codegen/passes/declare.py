"""What a function uses of its context gets a name at the function's beginning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from optpy.ir import Access, Dim, Field, InBounds, Index, IndexCondition, IndexValue, Scalar, loops
from optpy.symbolic.affine import Affine, Divides, Entry, FloorDiv
from optpy.symbolic.expr import Expr
from optpy.symbolic.traverse import variables


def declare(function: loops.Function) -> loops.Function:
    """Put the declarations of all sizes, pitches, tables, arrays, masks and scalars that the function uses first."""
    found = dict.fromkeys(x for s in loops.walk(function.body) for x in _used(s))
    local = {s.field for s in loops.walk(function.body) if isinstance(s, loops.Alloc)}
    written = {f for s in loops.walk(function.body) for f in _written(s)}
    declared: list[loops.Statement] = []
    for kind in (Dim, loops.Pitch, loops.Table, loops.Array, Scalar, loops.Mask):
        for x in found:
            if isinstance(x, loops.Array):
                x = replace(x, writable=x.field in written)
            if isinstance(x, kind) and not (isinstance(x, loops.Array) and x.field in local):
                declared.append(loops.Declare(x))
    return replace(function, body=(*declared, *function.body))


def _written(s: loops.Statement) -> tuple[Field, ...]:
    match s:
        case loops.Store(place=loops.Place(access=access)) | loops.PackStore(place=loops.Place(access=access)):
            return (access.field,)
        case loops.RunStore():
            return (s.access.field,)
        case _:
            return ()


def _used(node: Any) -> Iterator[Any]:
    """The sizes, pitches, tables, arrays and scalars that a statement, or a part of one, names."""
    match node:
        case Dim() | loops.Pitch() | Scalar() | loops.Mask():
            yield node
        case Index() | Field() | loops.Variable() | loops.Alloc():
            return
        case Expr():
            for v in variables([node]):
                yield from _used_by_leaf(v.key)
        case loops.Place(access=Access() as a):
            yield loops.Array(a.field, a.channel, False)
            yield from _used(node.address)
        case loops.RunLoad() | loops.RunStore():
            yield loops.Array(node.access.field, node.access.channel, False)
        case loops.Fetch():
            yield loops.Table(node.table)
            yield from _used(node.position)
        case loops.Lookup():
            yield from (x for part in (node.value, node.guard) for x in _used(part))
        case loops.Within():
            yield node.index.dim
        case loops.InRow():
            yield from (node.dims[-1], loops.Pitch(node.dims))
        case loops.Unravel():
            yield from (i.dim for i in node.domain[1:])
        case loops.Tiles() | loops.Teams() | loops.Vectors():
            yield from _used_by_grid(node)
        case Affine():
            for atom in node.atoms:
                yield from _used(atom.numerator) if isinstance(atom, FloorDiv) else _used(atom)
        case Entry():
            return  # defined by a Lookup
        case tuple():
            yield from (x for part in node for x in _used(part))
        case _ if is_dataclass(node) and not isinstance(node, Access):
            inner = [f.name for f in fields(node) if f.name not in loops.BLOCKS]
            yield from (x for name in inner for x in _used(getattr(node, name)))


def _used_by_leaf(key: Any) -> Iterator[Any]:
    match key:
        case Scalar():
            yield key
        case InBounds() | IndexValue():
            yield from (*_used(key.index), *(_used(key.dim) if isinstance(key, InBounds) else ()))
        case IndexCondition():
            c = key.condition
            yield from _used(c.numerator if isinstance(c, Divides) else c.value)


def _used_by_grid(nest: loops.Tiles | loops.Teams | loops.Vectors) -> Iterator[Any]:
    dims = tuple(i.dim for i in nest.domain)
    yield from (dims[:-1] if isinstance(nest, loops.Vectors) else dims)
    if isinstance(nest, loops.Vectors):
        yield loops.Pitch(dims)
    elif isinstance(nest, loops.Teams):
        return
    if nest.mask is not None:
        yield nest.mask
        if len(dims) > 1:
            yield loops.Pitch(dims)
