"""The nest of the GPU for what touches nothing but its own point: several points at a time, by vector loads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from optpy.ir import Access, Field, InBounds, IndexCondition, IndexValue, Plane, loops, point
from optpy.kernels.codegen.conventions import Conventions
from optpy.kernels.codegen.passes.on_grid import total_in
from optpy.kernels.codegen.symbol_table import SymbolTable
from optpy.symbolic.affine import Affine


def in_vectors(
    function: loops.Function, conventions: Conventions, sums: Sequence[int], mask: loops.Mask | None, width: int
) -> loops.Function:
    """The function whose threads take some neighbouring points at a time.

    It runs over the padding of rows, too, which is never read by anything else and left out of the sums.

    Args:
        function: one nest ``Points`` that ``is_elementwise``.
        conventions: those of where it runs.
        sums: for each of its reductions, which of its launch's sums it adds to.
        mask: where on its grid something is solved for, if other points are to be left out.
        width: the points of a thread: no more than one load holds.
    """
    (points,) = function.body
    assert isinstance(points, loops.Points)
    dims = tuple(i.dim for i in points.domain)
    reads, stores = _accesses(points.interior)
    body = loops.rewrite(total_in(points.interior, sums, loops.Flag("valid")), lambda s: _in_registers(s, conventions))
    valid: loops.Block = ()
    if any(isinstance(s, loops.Total) for s in points.interior):
        at, u = (Affine.of(loops.Variable(name)) for name in ("at", "u"))
        inside = loops.InRow(dims) if len(dims) > 1 else loops.Less(at + u, dims[0].length)
        valid = (loops.LetFlag("valid", (inside,)),)
    each = loops.Loop(loops.Variable("u"), Affine(0), Affine.of(loops.Variable("W")), (*valid, *body), "unrolled")
    before, after = _moves(reads, stores, width, conventions)
    return replace(function, body=(loops.Vectors(points.domain, width, mask, (*before, each, *after)),))


def is_elementwise(function: loops.Function, symbols: SymbolTable) -> bool:
    """Whether a function reads and stores nothing but its own point, so that several points can be taken at a time."""
    (points,) = function.body
    assert isinstance(points, loops.Points)
    block, dims = points.interior, tuple(i.dim for i in points.domain)
    plain = all(isinstance(s, loops.Evaluate | loops.Store | loops.Total) for s in block)
    reads, stores = _accesses(block)
    if points.border:
        return False  # whether a point is inside decides there
    if not plain or not points.domain or not stores or any(isinstance(s, loops.Store) and s.atomic for s in block):
        return False
    if any(a.field.dims and (a.field.dims != dims or a.index != point(points.domain)) for a in (*reads, *stores)):
        return False
    leaves = [key for s in block if isinstance(s, loops.Evaluate) for key in s.leaves]
    if any(isinstance(key, InBounds | IndexValue | IndexCondition | Plane) for key in leaves):
        return False
    stored = [a.field for a in stores]
    return all(stored.count(f) == f.channels for f in set(stored) if f.dims in symbols.interleaved)


def _accesses(block: loops.Block) -> tuple[list[Access], list[Access]]:
    """The accesses that are read, and those that are stored."""
    reads = [a for s in block if isinstance(s, loops.Evaluate) for a, _ in s.reads]
    return reads, [
        s.operand.access for s in block if isinstance(s, loops.Store) and isinstance(s.operand, loops.MemoryOperand)
    ]


def numbers_at_a_point(function: loops.Function, conventions: Conventions) -> int:
    """The numbers that a function which ``is_elementwise`` reads and stores at a point, padding included."""
    (points,) = function.body
    assert isinstance(points, loops.Points)
    reads, stores = _accesses(points.interior)
    fields = [a.field for a in {*reads, *stores}]
    padding = {f: conventions.point_stride(f) - f.channels for f in fields if conventions.interleaved(f)}
    return len(fields) + sum(padding.values())


def _in_registers(s: loops.Statement, conventions: Conventions) -> loops.Block:
    """The statement with its reads and its store among the numbers in registers."""
    match s:
        case loops.Evaluate():
            reads = tuple(
                (a, loops.Load(_lane("in", a, conventions))) if a.field.dims else (a, load) for a, load in s.reads
            )
            return (replace(s, reads=reads),)
        case loops.Store(operand=loops.MemoryOperand(access=access)):
            return (replace(s, operand=_lane("out", access, conventions)),)
    return (s,)


def _lane(prefix: str, access: Access, conventions: Conventions) -> loops.Lane:
    if conventions.interleaved(access.field):
        return loops.Lane(
            _run(prefix, access, conventions), access.field, access.channel, conventions.point_stride(access.field)
        )
    return loops.Lane(_run(prefix, access, conventions), access.field, 0, 1)


def _run(prefix: str, access: Access, conventions: Conventions) -> str:
    number = conventions.symbols.fields[access.field]
    return f"{prefix}{number}" if conventions.interleaved(access.field) else f"{prefix}{number}_{access.channel}"


def _moves(
    reads: Iterable[Access], stores: Iterable[Access], width: int, conventions: Conventions
) -> tuple[loops.Block, loops.Block]:
    """The vector loads before the points of a thread, and the vector stores after them."""
    before: list[loops.Statement] = []
    after: list[loops.Statement] = []
    for name, a in _runs("in", reads, conventions).items():
        before.append(
            loops.RunLoad(name, a, conventions.point_stride(a.field), _step(a.field, width, conventions), width)
        )
    for name, a in _runs("out", stores, conventions).items():
        stride = conventions.point_stride(a.field)
        before.append(loops.Zeros(name, a.field, width, stride, cleared=stride > a.field.channels))
        after.append(loops.RunStore(name, a, stride, _step(a.field, width, conventions), width))
    return tuple(before), tuple(after)


def _runs(prefix: str, accesses: Iterable[Access], conventions: Conventions) -> dict[str, Access]:
    """The runs of numbers that some accesses take, by name, each with the first of its numbers."""
    found: dict[str, Access] = {}
    for a in accesses:
        if a.field.dims:
            channel = 0 if conventions.interleaved(a.field) else a.channel
            found[_run(prefix, a, conventions)] = replace(a, channel=channel)
    return found


def _step(field: Field, width: int, conventions: Conventions) -> int:
    """Numbers that one instruction brings of those that the points of a thread have in one run."""
    stride = conventions.point_stride(field)
    return math.gcd(width * stride, conventions.widest(field)) if stride > field.channels else width
